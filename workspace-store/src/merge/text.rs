//! Three-way merge of text by lines.
//!
//! Clean only where it is provably so: hunks of the two sides neither overlap nor touch, or are the
//! same. Everything else becomes a region with markers that holds both sides.

use std::ops::Range;
use std::time::{Duration, Instant};

use similar::{Algorithm, DiffTag, capture_diff_slices_deadline};

use crate::diff::split_lines as lines;

/// After this time a coarser comparison is good enough: its hunks are larger, never wrong.
const TIME_LIMIT: Duration = Duration::from_secs(5);

/// What the markers name.
#[derive(Debug, Clone, Default)]
pub struct MergeLabels {
    /// The side that is there.
    pub ours: String,
    /// What both came from.
    pub base: String,
    /// The side that comes.
    pub theirs: String,
}

/// Text joined from two sides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MergedText {
    /// The text; with markers if it has a conflict.
    pub(super) text: Vec<u8>,
    /// Whether a region could not be joined.
    pub(super) has_conflict: bool,
}

/// Whether content may be merged by lines: valid UTF-8 without NUL.
pub(super) fn is_text(content: &[u8]) -> bool {
    !content.contains(&0) && std::str::from_utf8(content).is_ok()
}

/// Lines of the base that one side replaced.
#[derive(Debug, Clone)]
struct Hunk {
    base: Range<usize>,
    side: Range<usize>,
}

/// Joins two texts that came from `base`; without one, everything that differs is a conflict.
pub(super) fn merge_text(
    base: Option<&[u8]>,
    ours: &[u8],
    theirs: &[u8],
    labels: &MergeLabels,
) -> MergedText {
    let base_lines = lines(base.unwrap_or_default());
    let our_lines = lines(ours);
    let their_lines = lines(theirs);
    let our_hunks = hunks(&base_lines, &our_lines);
    let their_hunks = hunks(&base_lines, &their_lines);
    let mut merged = MergedText {
        text: Vec::with_capacity(ours.len().max(theirs.len())),
        has_conflict: false,
    };
    let mut done = 0;
    let (mut our_next, mut their_next) = (0, 0);
    while let Some(start) = first_start(&our_hunks[our_next..], &their_hunks[their_next..]) {
        let (our_first, their_first) = (our_next, their_next);
        let mut end = start;
        // Hunks that touch belong together.
        loop {
            let before = (our_next, their_next);
            take_touching(&our_hunks, &mut our_next, &mut end);
            take_touching(&their_hunks, &mut their_next, &mut end);
            if before == (our_next, their_next) {
                break;
            }
        }
        append(&mut merged.text, &base_lines[done..start]);
        let region = start..end;
        let our_part = side_of(&our_hunks[our_first..our_next], &region)
            .map_or(&base_lines[region.clone()], |range| &our_lines[range]);
        let their_part = side_of(&their_hunks[their_first..their_next], &region)
            .map_or(&base_lines[region.clone()], |range| &their_lines[range]);
        if our_first == our_next {
            append(&mut merged.text, their_part);
        } else if their_first == their_next || our_part == their_part {
            append(&mut merged.text, our_part);
        } else {
            merged.has_conflict = true;
            let base_part = base.map(|_| &base_lines[region]);
            append_conflict(&mut merged.text, our_part, base_part, their_part, labels);
        }
        done = end;
    }
    append(&mut merged.text, &base_lines[done..]);
    merged
}

/// Whether a text still has a line that begins as the markers of a conflict with this label do.
pub(super) fn has_markers(content: &[u8], theirs_label: &str) -> bool {
    let last = format!(">>>>>>> {theirs_label}");
    lines(content)
        .iter()
        .any(|line| line.starts_with(b"<<<<<<< ours: ") || line.trim_ascii_end() == last.as_bytes())
}

fn hunks(base: &[&[u8]], side: &[&[u8]]) -> Vec<Hunk> {
    let deadline = Instant::now() + TIME_LIMIT;
    capture_diff_slices_deadline(Algorithm::Myers, base, side, Some(deadline))
        .into_iter()
        .filter(|operation| operation.tag() != DiffTag::Equal)
        .map(|operation| Hunk {
            base: operation.old_range(),
            side: operation.new_range(),
        })
        .collect()
}

fn first_start(ours: &[Hunk], theirs: &[Hunk]) -> Option<usize> {
    ours.first()
        .into_iter()
        .chain(theirs.first())
        .map(|hunk| hunk.base.start)
        .min()
}

fn take_touching(hunks: &[Hunk], next: &mut usize, end: &mut usize) {
    while let Some(hunk) = hunks.get(*next)
        && hunk.base.start <= *end
    {
        *end = (*end).max(hunk.base.end);
        *next += 1;
    }
}

/// The side's lines for a region of the base; `None` if the side did not change it.
fn side_of(hunks: &[Hunk], region: &Range<usize>) -> Option<Range<usize>> {
    let (first, last) = (hunks.first()?, hunks.last()?);
    let start = first.side.start - (first.base.start - region.start);
    let end = last.side.end + (region.end - last.base.end);
    Some(start..end)
}

fn append(text: &mut Vec<u8>, lines: &[&[u8]]) {
    for line in lines {
        text.extend_from_slice(line);
    }
}

fn append_conflict(
    text: &mut Vec<u8>,
    ours: &[&[u8]],
    base: Option<&[&[u8]]>,
    theirs: &[&[u8]],
    labels: &MergeLabels,
) {
    let marker = |text: &mut Vec<u8>, sign: &str, label: &str| {
        // A side may lack the newline at its end.
        if text.last().is_some_and(|last| *last != b'\n') {
            text.push(b'\n');
        }
        text.extend_from_slice(sign.as_bytes());
        if !label.is_empty() {
            text.push(b' ');
            text.extend_from_slice(label.as_bytes());
        }
        text.push(b'\n');
    };
    marker(text, "<<<<<<<", &format!("ours: {}", labels.ours));
    append(text, ours);
    if let Some(base) = base {
        marker(text, "|||||||", &format!("base: {}", labels.base));
        append(text, base);
    }
    marker(text, "=======", "");
    append(text, theirs);
    marker(text, ">>>>>>>", &format!("theirs: {}", labels.theirs));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn labels() -> MergeLabels {
        MergeLabels {
            ours: "main".into(),
            base: "b".into(),
            theirs: "agent".into(),
        }
    }

    fn merged(base: &str, ours: &str, theirs: &str) -> (String, bool) {
        let merged = merge_text(
            Some(base.as_bytes()),
            ours.as_bytes(),
            theirs.as_bytes(),
            &labels(),
        );
        (String::from_utf8(merged.text).unwrap(), merged.has_conflict)
    }

    #[test]
    fn changes_apart_from_each_other_are_joined() {
        let base = "1\n2\n3\n4\n5\n";
        let (text, has_conflict) = merged(base, "1\nours\n3\n4\n5\n", "1\n2\n3\n4\ntheirs\nmore\n");
        assert_eq!(text, "1\nours\n3\n4\ntheirs\nmore\n");
        assert!(!has_conflict);
    }

    #[test]
    fn changes_that_touch_are_a_conflict_that_holds_both() {
        let (text, has_conflict) = merged("1\n2\n3\n", "1\nours\n3\n", "1\n2\ntheirs\n");
        assert!(has_conflict);
        assert_eq!(
            text,
            "1\n<<<<<<< ours: main\nours\n3\n||||||| base: b\n2\n3\n=======\n2\ntheirs\n\
             >>>>>>> theirs: agent\n"
        );
        assert!(has_markers(text.as_bytes(), "theirs: agent"));
        assert!(!has_markers(b"a\n=======\n", "theirs: agent"));
    }

    #[test]
    fn the_same_change_is_taken_once_and_two_insertions_are_never_concatenated() {
        assert_eq!(
            merged("1\n2\n", "1\nnew\n2\n", "1\nnew\n2\n"),
            ("1\nnew\n2\n".into(), false)
        );
        let (_, has_conflict) = merged("1\n", "1\nours\n", "1\ntheirs\n");
        assert!(has_conflict);
    }

    #[test]
    fn a_missing_newline_at_the_end_stays_or_is_a_conflict() {
        assert_eq!(
            merged("1\n2\n3\n4", "0\n2\n3\n4", "1\n2\n3\n4"),
            ("0\n2\n3\n4".into(), false)
        );
        let (text, has_conflict) = merged("1", "2", "3");
        assert!(has_conflict);
        assert_eq!(
            text,
            "<<<<<<< ours: main\n2\n||||||| base: b\n1\n=======\n3\n>>>>>>> theirs: agent\n"
        );
    }

    fn text() -> impl Strategy<Value = String> {
        prop::collection::vec(
            prop::sample::select(vec!["a\n", "b\n", "c\n", "d\n", "e\n"]),
            0..12,
        )
        .prop_map(|lines| lines.concat())
    }

    proptest! {
        #[test]
        fn a_side_without_changes_gives_way(base in text(), side in text()) {
            prop_assert_eq!(merged(&base, &base, &side), (side.clone(), false));
            prop_assert_eq!(merged(&base, &side, &base), (side.clone(), false));
            prop_assert_eq!(merged(&base, &side, &side), (side, false));
        }

        #[test]
        fn the_sides_may_be_swapped(base in text(), ours in text(), theirs in text()) {
            let one = merged(&base, &ours, &theirs);
            let other = merged(&base, &theirs, &ours);
            prop_assert_eq!(one.1, other.1);
            if !one.1 {
                prop_assert_eq!(one.0, other.0);
            }
        }

        #[test]
        fn every_line_of_a_side_that_is_not_in_the_base_is_in_the_result(
            base in text(), ours in text(), theirs in text()
        ) {
            let (text, _) = merged(&base, &ours, &theirs);
            for side in [&ours, &theirs] {
                for line in side.lines().filter(|line| !base.contains(*line)) {
                    prop_assert!(text.lines().any(|found| found == line));
                }
            }
        }
    }
}
