//! What verbs and the store come to as the history grows: one small change after the other.

use std::fs;

use anyhow::Result;

use crate::measure::{Bench, Times};
use crate::plot::{Line, Plot};
use crate::report::{Report, Section, bytes, count, seconds};
use crate::tree;

const FILES: u64 = 1000;
const CHANGED_BYTES: usize = 4096;
/// Commits that the growing times are measured over.
const WINDOW: u64 = 50;

pub(crate) fn measure(bench: &Bench, max_commits: u64, report: &mut Report) -> Result<()> {
    let marks: Vec<u64> = [100, 1_000, 3_000, 10_000]
        .into_iter()
        .filter(|commits| *commits <= max_commits)
        .collect();
    let source = bench.directory("history-source")?;
    tree::make(&source, FILES, CHANGED_BYTES as u64)?;
    let store = bench.store();
    let from = source.to_string_lossy().into_owned();
    store.kura(&["init", "demo", "--from", &from])?;
    store.commit_by_hand("demo");
    let mount = store.mount("demo");
    let watched = tree::path_of(FILES / 2);
    let watched_text = watched.to_string_lossy().into_owned();

    let names = [
        "commit",
        "log, newest 20",
        "log of one path",
        "diff with the first version",
    ];
    let mut rows: Vec<Vec<f64>> = vec![Vec::new(); names.len()];
    let mut stored = Vec::new();
    let mut window = Times::default();
    for number in 1..=marks.last().copied().unwrap_or(0) {
        // Every hundredth commit changes the path that is asked for.
        let path = match number % 100 {
            0 => watched.clone(),
            _ => tree::path_of(number % FILES),
        };
        fs::write(
            mount.join(path),
            tree::text(number | 1 << 50, CHANGED_BYTES),
        )?;
        window.add(store.timed(&["commit", "demo", "-m", "a change"])?);
        if window.0.len() as u64 > WINDOW {
            window.0.remove(0);
        }
        if !marks.contains(&number) {
            continue;
        }
        bench.say(&format!("{number} commits"));
        let first = format!("HEAD~{number}");
        let commands: [&[&str]; 3] = [
            &["log", "demo", "-n", "20"],
            &["log", "demo", &watched_text],
            &["diff", "demo", &first, "HEAD", "--name-status"],
        ];
        rows[0].push(window.median());
        for (row, command) in rows[1..].iter_mut().zip(commands) {
            let mut times = Times::default();
            for _ in 0..bench.repetitions {
                times.add(store.timed(command)?);
            }
            row.push(times.median());
        }
        stored.push(store.stored_bytes()?);
    }
    bench.remove(&source)?;

    let mut columns = vec!["".to_owned()];
    columns.extend(
        marks
            .iter()
            .map(|commits| format!("{} commits", count(*commits))),
    );
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let mut section = Section::new(
        "Growth with the history",
        &format!(
            "A workspace of {} files; each commit changes one file of {}. Whole commands; the commit is the median of \
             the last {WINDOW}.",
            count(FILES),
            bytes(CHANGED_BYTES as u64)
        ),
        &columns,
    );
    for (name, row) in names.iter().zip(&rows) {
        section.row_of(name, row.iter().map(|time| seconds(*time)));
    }
    section.row_of("size of the store", stored.iter().map(|size| bytes(*size)));
    let x: Vec<f64> = marks.iter().map(|commits| *commits as f64).collect();
    let lines = names.iter().zip(&rows).map(|(name, row)| {
        Line::new(
            name,
            &x,
            &row.iter().map(|time| time * 1000.0).collect::<Vec<_>>(),
        )
    });
    section.plot(Plot {
        name: "growth-history",
        title: "Verbs against the length of the history",
        x: "commits",
        y: "ms",
        lines: lines.collect(),
    });
    report.set("history", section);
    Ok(())
}
