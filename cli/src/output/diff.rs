//! Differences as text: unified, as counts, as names.
//!
//! Bytes that come from files and names go through the printer's rules before they get here as
//! closures, so that a terminal never gets raw control characters.

use computerd_api::v1::{
    ChangeCounts, ChangeKind, ChangedAspect, DiffEntry, DiffResult, EntryKind, EntryState, PathText,
};

use super::color::{Palette, Role};
use super::sanitize::{sanitize, sanitize_text};

/// How differences are rendered.
#[derive(Debug, Clone, Copy)]
pub struct DiffStyle {
    /// Colours.
    pub palette: Palette,
    /// Whether the text goes to a terminal, so that names and lines are made harmless.
    pub is_terminal: bool,
}

/// Width of the names and bars of a stat.
const STAT_BAR_WIDTH: u64 = 40;

impl DiffStyle {
    fn path(self, path: &PathText) -> Vec<u8> {
        if path.as_bytes().is_empty() {
            return b".".to_vec();
        }
        if self.is_terminal {
            sanitize(path.as_bytes()).into_bytes()
        } else {
            path.as_bytes().to_vec()
        }
    }

    fn content(self, bytes: &[u8]) -> Vec<u8> {
        if self.is_terminal {
            sanitize_text(bytes).into_bytes()
        } else {
            bytes.to_vec()
        }
    }

    /// `A<TAB>path`; a move is `R<TAB>old<TAB>new`. With a NUL as `end` names are exact, and the
    /// two names of a move are separated by a NUL too.
    pub fn name_status(self, diff: &DiffResult, end: u8) -> Vec<u8> {
        let is_exact = end == 0;
        let name = |path: &PathText| {
            if is_exact {
                path.as_bytes().to_vec()
            } else {
                self.path(path)
            }
        };
        let mut text = Vec::new();
        for entry in &diff.entries {
            let letter = entry.change.letter().to_string();
            text.extend(self.palette.paint(role(entry.change), &letter).as_bytes());
            text.push(b'\t');
            if let Some(old_path) = &entry.old_path {
                text.extend(name(old_path));
                text.push(if is_exact { 0 } else { b'\t' });
            }
            text.extend(name(&entry.path));
            text.push(end);
        }
        text
    }

    /// Counts of changed lines, with bars.
    pub fn stat(self, diff: &DiffResult) -> Vec<u8> {
        let names: Vec<Vec<u8>> = diff.entries.iter().map(|entry| self.title(entry)).collect();
        let width = names
            .iter()
            .map(|name| String::from_utf8_lossy(name).chars().count())
            .max()
            .unwrap_or(0);
        let most = diff
            .entries
            .iter()
            .map(|entry| entry.inserted_lines.unwrap_or(0) + entry.deleted_lines.unwrap_or(0))
            .max()
            .unwrap_or(0);
        let digits = most.to_string().len().max(3);
        let mut text = Vec::new();
        for (entry, name) in diff.entries.iter().zip(&names) {
            text.push(b' ');
            text.extend(name);
            let padding = width - String::from_utf8_lossy(name).chars().count();
            text.extend(std::iter::repeat_n(b' ', padding));
            text.extend(b" | ");
            text.extend(self.stat_cell(entry, most, digits).as_bytes());
            text.push(b'\n');
        }
        text.extend(summary(diff).as_bytes());
        text.push(b'\n');
        text
    }

    fn stat_cell(self, entry: &DiffEntry, most: u64, digits: usize) -> String {
        let inserted = entry.inserted_lines.unwrap_or(0);
        let deleted = entry.deleted_lines.unwrap_or(0);
        if entry.is_binary {
            let size = |state: &Option<EntryState>| state.as_ref().map_or(0, |s| s.size_bytes);
            let (old, new) = (size(&entry.old), size(&entry.new));
            return format!("{:>digits$} {old} -> {new} bytes", "Bin");
        }
        if inserted + deleted == 0 {
            return format!("{:>digits$} {}", 0, what_changed(entry))
                .trim_end()
                .to_owned();
        }
        let scale = |count: u64| match (count, most.max(1)) {
            (0, _) => 0,
            (count, most) if most <= STAT_BAR_WIDTH => count,
            (count, most) => (count * STAT_BAR_WIDTH / most).max(1),
        };
        let bar = |sign: &str, count: u64| sign.repeat(usize::try_from(count).unwrap_or(0));
        format!(
            "{:>digits$} {}{}",
            inserted + deleted,
            self.palette.paint(Role::Added, &bar("+", scale(inserted))),
            self.palette.paint(Role::Removed, &bar("-", scale(deleted))),
        )
    }

    fn title(self, entry: &DiffEntry) -> Vec<u8> {
        let mut title = Vec::new();
        if let Some(old_path) = &entry.old_path {
            title.extend(self.path(old_path));
            title.extend(b" => ");
        }
        title.extend(self.path(&entry.path));
        title
    }

    /// Headers and hunks of every entry.
    pub fn unified(self, diff: &DiffResult) -> Vec<u8> {
        let mut text = Vec::new();
        for entry in &diff.entries {
            self.unified_entry(entry, &mut text);
        }
        text
    }

    fn unified_entry(self, entry: &DiffEntry, text: &mut Vec<u8>) {
        let new_path = self.path(&entry.path);
        let old_path = entry
            .old_path
            .as_ref()
            .map_or_else(|| new_path.clone(), |path| self.path(path));
        let header = [b"diff a/", &old_path[..], b" b/", &new_path[..]].concat();
        self.header_line(&header, text);
        for line in header_lines(entry, self) {
            self.header_line(&line, text);
        }
        let Some(hunks) = &entry.text else {
            if entry.is_binary {
                text.extend(b"Binary content differs\n");
            }
            return;
        };
        let side = |prefix: &[u8], path: &[u8], is_there: bool| {
            if is_there {
                [prefix, path].concat()
            } else {
                b"/dev/null".to_vec()
            }
        };
        let old = side(b"a/", &old_path, entry.old.is_some());
        let new = side(b"b/", &new_path, entry.new.is_some());
        self.header_line(&[b"--- ", &old[..]].concat(), text);
        self.header_line(&[b"+++ ", &new[..]].concat(), text);
        for line in hunks.as_bytes().split_inclusive(|byte| *byte == b'\n') {
            let (body, has_newline) = match line.strip_suffix(b"\n") {
                Some(body) => (body, true),
                None => (line, false),
            };
            let body = self.content(body);
            match line.first() {
                Some(b'+') => text.extend(self.palette.paint_bytes(Role::Added, &body)),
                Some(b'-') => text.extend(self.palette.paint_bytes(Role::Removed, &body)),
                Some(b'@') => text.extend(self.palette.paint_bytes(Role::Position, &body)),
                _ => text.extend(body),
            }
            if has_newline {
                text.push(b'\n');
            }
        }
        if !text.ends_with(b"\n") {
            text.push(b'\n');
        }
    }

    fn header_line(self, line: &[u8], text: &mut Vec<u8>) {
        text.extend(self.palette.paint_bytes(Role::Header, line));
        text.push(b'\n');
    }
}

/// The colour of a kind of change.
pub fn role(change: ChangeKind) -> Role {
    match change {
        ChangeKind::Added => Role::Added,
        ChangeKind::Deleted => Role::Removed,
        ChangeKind::Modified | ChangeKind::Renamed => Role::Changed,
    }
}

/// What kind of entry it is, for people.
pub fn kind_name(kind: EntryKind) -> &'static str {
    match kind {
        EntryKind::File => "file",
        EntryKind::Directory => "directory",
        EntryKind::Symlink => "symlink",
        EntryKind::Fifo => "fifo",
        EntryKind::Socket => "socket",
        EntryKind::CharDevice => "character device",
        EntryKind::BlockDevice => "block device",
    }
}

/// `2 added, 1 deleted`; `no changes` if there are none.
pub fn format_counts(counts: &ChangeCounts) -> String {
    let parts: Vec<String> = [
        (counts.added, "added"),
        (counts.modified, "modified"),
        (counts.deleted, "deleted"),
        (counts.renamed, "renamed"),
    ]
    .into_iter()
    .filter(|(count, _)| *count > 0)
    .map(|(count, what)| format!("{count} {what}"))
    .collect();
    if parts.is_empty() {
        "no changes".to_owned()
    } else {
        parts.join(", ")
    }
}

fn summary(diff: &DiffResult) -> String {
    let sum = |count: fn(&DiffEntry) -> Option<u64>| -> u64 {
        diff.entries.iter().filter_map(count).sum()
    };
    let plural =
        |count: u64, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let mut text = format!(" {} changed", plural(diff.counts.total(), "path"));
    let inserted = sum(|entry| entry.inserted_lines);
    let deleted = sum(|entry| entry.deleted_lines);
    if inserted > 0 {
        text.push_str(&format!(", {}(+)", plural(inserted, "insertion")));
    }
    if deleted > 0 {
        text.push_str(&format!(", {}(-)", plural(deleted, "deletion")));
    }
    text
}

/// `mode, owner` and the like, of an entry without changed lines.
fn what_changed(entry: &DiffEntry) -> String {
    let state = entry.new.as_ref().or(entry.old.as_ref());
    let kind = state.map_or("", |state| match state.kind {
        EntryKind::File => "",
        kind => kind_name(kind),
    });
    let aspects: Vec<&str> = entry
        .aspects
        .iter()
        .map(|aspect| aspect_name(*aspect))
        .collect();
    match (entry.change, kind, aspects.is_empty()) {
        (ChangeKind::Added, kind, _) => format!("new {kind}").trim_end().to_owned(),
        (ChangeKind::Deleted, kind, _) => format!("deleted {kind}").trim_end().to_owned(),
        (_, _, true) => String::new(),
        _ => aspects.join(", "),
    }
}

fn aspect_name(aspect: ChangedAspect) -> &'static str {
    match aspect {
        ChangedAspect::Kind => "kind",
        ChangedAspect::Content => "content",
        ChangedAspect::Mode => "mode",
        ChangedAspect::Owner => "owner",
        ChangedAspect::Mtime => "time",
        ChangedAspect::Xattrs => "xattrs",
        ChangedAspect::Links => "links",
    }
}

fn header_lines(entry: &DiffEntry, style: DiffStyle) -> Vec<Vec<u8>> {
    let mut lines: Vec<Vec<u8>> = Vec::new();
    let describe =
        |state: &EntryState| format!("{} mode {:04o}", kind_name(state.kind), state.mode);
    match (&entry.old, &entry.new) {
        (None, Some(new)) => lines.push(format!("new {}", describe(new)).into()),
        (Some(old), None) => lines.push(format!("deleted {}", describe(old)).into()),
        _ => {}
    }
    if let Some(old_path) = &entry.old_path {
        lines.push([b"rename from ", &style.path(old_path)[..]].concat());
        lines.push([b"rename to ", &style.path(&entry.path)[..]].concat());
    }
    if let (Some(old), Some(new)) = (&entry.old, &entry.new) {
        if old.kind != new.kind {
            let (old, new) = (kind_name(old.kind), kind_name(new.kind));
            lines.push(format!("kind {old} -> {new}").into());
        }
        if old.mode != new.mode {
            lines.push(format!("mode {:04o} -> {:04o}", old.mode, new.mode).into());
        }
        if (old.uid, old.gid) != (new.uid, new.gid) {
            let (old, new) = ((old.uid, old.gid), (new.uid, new.gid));
            lines.push(format!("owner {}:{} -> {}:{}", old.0, old.1, new.0, new.1).into());
        }
        if entry.aspects.contains(&ChangedAspect::Xattrs) {
            lines.push(b"extended attributes differ".to_vec());
        }
        if entry.aspects.contains(&ChangedAspect::Links) {
            lines.push(b"hard links differ".to_vec());
        }
        let is_time_alone = entry
            .aspects
            .iter()
            .all(|aspect| *aspect == ChangedAspect::Mtime);
        if is_time_alone && old.mtime != new.mtime {
            lines.push(format!("time {} -> {}", old.mtime, new.mtime).into());
        }
    }
    let target = |state: &Option<EntryState>| state.as_ref()?.symlink_target.clone();
    let (old, new) = (target(&entry.old), target(&entry.new));
    if old != new {
        for (sign, target) in [("-", old), ("+", new)] {
            if let Some(target) = target {
                lines.push([sign.as_bytes(), b"link to ", &style.path(&target)[..]].concat());
            }
        }
    }
    if entry.is_binary {
        let size = |state: &Option<EntryState>| state.as_ref().map_or(0, |state| state.size_bytes);
        let (old, new) = (size(&entry.old), size(&entry.new));
        lines.push(format!("size {old} -> {new} bytes").into());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: DiffStyle = DiffStyle {
        palette: Palette::PLAIN,
        is_terminal: false,
    };

    fn file(mode: u32, size_bytes: u64) -> EntryState {
        EntryState {
            kind: EntryKind::File,
            mode,
            uid: 0,
            gid: 0,
            size_bytes,
            mtime: "2026-11-30T00:00:00Z".into(),
            blob: None,
            symlink_target: None,
            rdev: None,
        }
    }

    fn entry(change: ChangeKind, path: &str) -> DiffEntry {
        let is_there = change != ChangeKind::Deleted;
        let was_there = change != ChangeKind::Added;
        DiffEntry {
            change,
            path: path.into(),
            old_path: None,
            old: was_there.then(|| file(0o644, 4)),
            new: is_there.then(|| file(0o644, 6)),
            aspects: Vec::new(),
            is_binary: false,
            inserted_lines: None,
            deleted_lines: None,
            text: None,
        }
    }

    fn sample() -> DiffResult {
        let mut renamed = entry(ChangeKind::Renamed, "new");
        renamed.old_path = Some("old".into());
        let mut changed = entry(ChangeKind::Modified, "src/a.rs");
        changed.inserted_lines = Some(2);
        changed.deleted_lines = Some(1);
        changed.new = Some(file(0o755, 6));
        changed.aspects = vec![ChangedAspect::Content, ChangedAspect::Mode];
        changed.text = Some("@@ -1 +1,2 @@\n-x\n+y\n+z\n".into());
        let mut binary = entry(ChangeKind::Modified, "logo.png");
        binary.is_binary = true;
        DiffResult {
            from: None,
            to: None,
            entries: vec![entry(ChangeKind::Added, "a\tb"), renamed, changed, binary],
            counts: ChangeCounts {
                added: 1,
                modified: 2,
                deleted: 0,
                renamed: 1,
            },
        }
    }

    #[test]
    fn names_follow_their_letter_and_a_tab() {
        assert_eq!(
            PLAIN.name_status(&sample(), b'\n'),
            b"A\ta\tb\nR\told\tnew\nM\tsrc/a.rs\nM\tlogo.png\n"
        );
        let style = DiffStyle {
            is_terminal: true,
            ..PLAIN
        };
        assert!(
            style
                .name_status(&sample(), b'\n')
                .starts_with(b"A\ta\\tb\n")
        );
        assert!(
            style
                .name_status(&sample(), 0)
                .starts_with(b"A\ta\tb\0R\told\0new\0")
        );
    }

    #[test]
    fn counts_have_bars_and_a_sum() {
        let mut diff = sample();
        diff.entries[0].path = "added".into();
        assert_eq!(
            String::from_utf8(PLAIN.stat(&diff)).unwrap(),
            " added      |   0 new\n \
             old => new |   0\n \
             src/a.rs   |   3 ++-\n \
             logo.png   | Bin 4 -> 6 bytes\n \
             4 paths changed, 2 insertions(+), 1 deletion(-)\n"
        );
    }

    #[test]
    fn unified_text_has_headers_like_git() {
        let mut diff = sample();
        diff.entries.remove(0);
        assert_eq!(
            String::from_utf8(PLAIN.unified(&diff)).unwrap(),
            "diff a/old b/new\nrename from old\nrename to new\n\
             diff a/src/a.rs b/src/a.rs\nmode 0644 -> 0755\n\
             --- a/src/a.rs\n+++ b/src/a.rs\n@@ -1 +1,2 @@\n-x\n+y\n+z\n\
             diff a/logo.png b/logo.png\nsize 4 -> 6 bytes\nBinary content differs\n"
        );
    }

    #[test]
    fn lines_of_files_cant_steer_a_terminal() {
        let mut diff = sample();
        diff.entries.truncate(1);
        diff.entries[0].text = Some("@@ -0,0 +1 @@\n+\x1b[2J".into());
        let style = DiffStyle {
            palette: Palette::COLORED,
            is_terminal: true,
        };
        let text = String::from_utf8(style.unified(&diff)).unwrap();
        assert!(text.contains("+\\x1b[2J"), "{text}");
        assert!(text.ends_with('\n'));
    }

    #[test]
    fn counts_are_words() {
        assert_eq!(format_counts(&ChangeCounts::default()), "no changes");
        assert_eq!(
            format_counts(&sample().counts),
            "1 added, 2 modified, 1 renamed"
        );
    }
}
