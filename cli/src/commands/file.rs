//! `ls`, `cat`.

use computerd_api::v1::{EntryKind, ListedEntry, PathQuery};

use crate::args::file::{CatArgs, LsArgs};
use crate::args::target::PathTarget;
use crate::context::Context;
use crate::error::{CommandError, Result};
use crate::output::color::Role;
use crate::output::time::absolute;

/// Lists a directory.
pub async fn ls(context: &Context<'_>, arguments: LsArgs) -> Result<()> {
    let printer = context.printer;
    let client = context.client().await?;
    let (name, query) = query(arguments.target, arguments.recursive);
    let listing = client.list(&name, &query).await?;
    if printer.is_json() {
        return printer.json("listing", &listing);
    }
    let size_width = listing
        .entries
        .iter()
        .map(|entry| entry.state.size_bytes.to_string().len())
        .max()
        .unwrap_or(0);
    for entry in &listing.entries {
        if arguments.long {
            printer.write(long_prefix(entry, size_width))?;
        }
        if arguments.nul {
            printer.write(entry.name.as_bytes())?;
            printer.write([0])?;
            continue;
        }
        let shown = printer.path(&entry.name);
        if entry.state.kind == EntryKind::Directory {
            printer.write(printer.palette.paint_bytes(Role::Directory, &shown))?;
            printer.write("/")?;
        } else {
            printer.write(shown)?;
        }
        if let (true, Some(target)) = (arguments.long, &entry.state.symlink_target) {
            printer.write(" -> ")?;
            printer.write(printer.path(target))?;
        }
        printer.write("\n")?;
    }
    Ok(())
}

/// Prints a file's bytes.
pub async fn cat(context: &Context<'_>, arguments: CatArgs) -> Result<()> {
    let printer = context.printer;
    if printer.is_json() {
        return Err(CommandError::usage(
            "cat prints the bytes of a file, not JSON",
            "leave --json away; `kura ls --json` describes the file",
        ));
    }
    if arguments.target.path.as_bytes().is_empty() {
        return Err(CommandError::usage(
            "no file is given",
            "write NAME:PATH or NAME@REV:PATH; `kura ls NAME` lists what there is",
        ));
    }
    let client = context.client().await?;
    let (name, query) = query(arguments.target, false);
    let mut content = client.content(&name, &query).await?;
    while let Some(bytes) = content.next().await? {
        printer.write(&bytes)?;
    }
    Ok(())
}

fn query(target: PathTarget, recursive: bool) -> (String, PathQuery) {
    let query = PathQuery {
        revision: target.revision,
        path: target.path,
        recursive,
    };
    (target.name, query)
}

fn long_prefix(entry: &ListedEntry, size_width: usize) -> String {
    let state = &entry.state;
    format!(
        "{}{} {:>3} {:>5} {:>5} {:>size_width$} {} ",
        kind_letter(state.kind),
        format_mode(state.mode),
        entry.link_count,
        state.uid,
        state.gid,
        state.size_bytes,
        absolute(&state.mtime),
    )
}

fn kind_letter(kind: EntryKind) -> char {
    match kind {
        EntryKind::File => '-',
        EntryKind::Directory => 'd',
        EntryKind::Symlink => 'l',
        EntryKind::Fifo => 'p',
        EntryKind::Socket => 's',
        EntryKind::CharDevice => 'c',
        EntryKind::BlockDevice => 'b',
    }
}

/// Permission bits as `ls -l` shows them.
fn format_mode(mode: u32) -> String {
    let mut text = String::with_capacity(9);
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> shift & 0o7;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (mode & special != 0, bits & 1 != 0) {
            (false, false) => '-',
            (false, true) => 'x',
            (true, true) => letter,
            (true, false) => letter.to_ascii_uppercase(),
        });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_look_as_in_ls() {
        for (mode, text) in [
            (0o644, "rw-r--r--"),
            (0o755, "rwxr-xr-x"),
            (0o4755, "rwsr-xr-x"),
            (0o2640, "rw-r-S---"),
            (0o1777, "rwxrwxrwt"),
            (0o1776, "rwxrwxrwT"),
            (0, "---------"),
        ] {
            assert_eq!(format_mode(mode), text);
        }
    }
}
