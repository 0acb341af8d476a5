//! A tree of 50,000 files: the first version and one after a change, beside git, restic and borg.

use std::fs;
use std::path::Path;

use anyhow::Result;

use crate::measure::{Bench, Times, disk_bytes, is_installed, shell};
use crate::report::{Report, Section, bytes, seconds};
use crate::tree;

const FILES: u64 = 50_000;
const MEAN_BYTES: u64 = 4096;
const CHANGED: u64 = 100;
const ROUNDS: usize = 3;

#[derive(Default)]
struct Row {
    first: Times,
    again: Times,
    stored: u64,
}

pub(crate) fn measure(bench: &Bench, report: &mut Report) -> Result<()> {
    let source = bench.directory("commit-source")?;
    tree::make(&source, FILES, MEAN_BYTES)?;
    let mut rows: Vec<(&str, Row)> = ["kura, in a mount", "git", "restic", "borg"]
        .into_iter()
        .filter(|name| name.starts_with("kura") || is_installed(name))
        .map(|name| (name, Row::default()))
        .collect();
    for round in 0..ROUNDS {
        for (name, row) in &mut rows {
            bench.say(&format!("{name}, round {}", round + 1));
            match *name {
                "git" | "restic" | "borg" => other(bench, name, &source, row)?,
                _ => kura(bench, &source, row)?,
            }
        }
    }
    bench.remove(&source)?;

    let git = rows.iter().find(|(name, _)| *name == "git");
    let of_git = |figure: f64, of: fn(&Row) -> f64| {
        git.map_or(String::new(), |(_, row)| format!("{:.2}", figure / of(row)))
    };
    let mut section = Section::new(
        "Versions of a tree of 50,000 files",
        &format!(
            "Text files of {} on average. \"First\" is everything that `git add -A && git commit` does after the \
             tree was written (`kura commit` with automatic commits off, `restic backup`, `borg create`), \"again\" the \
             same after {CHANGED} files were changed. Medians of {ROUNDS} rounds in turn.",
            bytes(MEAN_BYTES)
        ),
        &[
            "program", "first", "of git's", "again", "of git's", "stored", "of git's",
        ],
    );
    for (name, row) in &rows {
        let (first, again, stored) = (row.first.median(), row.again.median(), row.stored as f64);
        section.row(&[
            (*name).to_owned(),
            seconds(first),
            of_git(first, |row| row.first.median()),
            seconds(again),
            of_git(again, |row| row.again.median()),
            bytes(row.stored),
            of_git(stored, |row| row.stored as f64),
        ]);
    }
    report.set("commit", section);
    Ok(())
}

fn change(root: &Path, seed: u64) -> Result<()> {
    for number in 0..CHANGED {
        let number = number * (FILES / CHANGED);
        fs::write(
            root.join(tree::path_of(number)),
            tree::text(number ^ seed, 5000),
        )?;
    }
    Ok(())
}

fn kura(bench: &Bench, source: &Path, row: &mut Row) -> Result<()> {
    let store = bench.store();
    store.kura(&["init", "demo"])?;
    store.commit_by_hand("demo");
    let mount = store.mount("demo");
    copy(source, &mount)?;
    row.first
        .add(store.timed(&["commit", "demo", "-m", "first"])?);
    row.stored = store.stored_bytes()?;
    change(&mount, 1 << 40)?;
    row.again
        .add(store.timed(&["commit", "demo", "-m", "again"])?);
    Ok(())
}

fn other(bench: &Bench, name: &str, source: &Path, row: &mut Row) -> Result<()> {
    let work = bench.directory("commit-work")?;
    let repository = bench.directory("commit-repository")?;
    copy(source, &work)?;
    let at = repository.display();
    let (init, save) = match name {
        "git" => (
            format!("git init -q --separate-git-dir {at}/r ."),
            "git add -A && git commit -qm version".to_owned(),
        ),
        "restic" => (
            format!("RESTIC_PASSWORD=bench restic -q init -r {at}/r"),
            format!("RESTIC_PASSWORD=bench restic -q backup -r {at}/r ."),
        ),
        _ => (
            format!("borg init -e none {at}/r"),
            format!(
                "BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK=yes borg create {at}/r::$(date +%s%N) ."
            ),
        ),
    };
    shell(&work, &init)?;
    row.first.add(shell(&work, &save)?);
    row.stored = disk_bytes(&repository, &["r"])?;
    change(&work, 1 << 40)?;
    row.again.add(shell(&work, &save)?);
    bench.remove(&work)?;
    bench.remove(&repository)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    shell(
        from,
        &format!("cp -a . '{}' && sync -f '{}'", to.display(), to.display()),
    )?;
    Ok(())
}
