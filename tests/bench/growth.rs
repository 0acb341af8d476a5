//! What verbs, memory and size come to as a workspace grows: nothing that changes one file may
//! grow with the tree.

use std::fs;
use std::time::Instant;

use anyhow::Result;

use crate::measure::{Bench, Times, shell};
use crate::plot::{Line, Plot};
use crate::report::{Report, Section, bytes, count, seconds};
use crate::tree;

const MEAN_BYTES: u64 = 512;
const VERBS: [&str; 7] = [
    "mount and first ls",
    "commit of one file",
    "diff of two versions",
    "rollback of one file",
    "fork",
    "status",
    "log",
];

pub(crate) fn measure(bench: &Bench, max_files: u64, report: &mut Report) -> Result<()> {
    let sizes: Vec<u64> = [1_000, 10_000, 100_000, 1_000_000]
        .into_iter()
        .filter(|files| *files <= max_files)
        .collect();
    let mut columns = vec!["".to_owned()];
    columns.extend(sizes.iter().map(|files| format!("{} files", count(*files))));
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let mut section = Section::new(
        "Growth with the number of files",
        &format!(
            "Whole commands, with the start of the program `kura` (some 5 ms). Files of {} on average, 50 in a \
             directory; the tree is imported, then mounted and walked by `find` once.",
            bytes(MEAN_BYTES)
        ),
        &columns,
    );
    let mut verbs: Vec<Vec<Times>> = vec![Vec::new(); VERBS.len()];
    let (mut imports, mut finds, mut memory, mut stored) = (vec![], vec![], vec![], vec![]);
    for files in &sizes {
        bench.say(&format!("{files} files"));
        let source = bench.directory("growth-source")?;
        tree::make(&source, *files, MEAN_BYTES)?;
        let store = bench.store();
        let from = source.to_string_lossy().into_owned();
        imports.push(
            store
                .timed(&["init", "demo", "--from", &from])?
                .as_secs_f64(),
        );
        bench.remove(&source)?;
        store.commit_by_hand("demo");
        let mount = store.directory("mount");
        let at = mount.to_string_lossy().into_owned();
        let mut times = vec![Times::default(); VERBS.len()];
        for round in 0..bench.repetitions {
            let start = Instant::now();
            store.kura(&["mount", "demo", &at])?;
            fs::read_dir(&mount)?.for_each(drop);
            times[0].add(start.elapsed());
            if round == 0 {
                finds.push(shell(&mount, "find . | wc -l")?.as_secs_f64());
                memory.push(store.memory_bytes()? as f64);
            }
            let path = tree::path_of(files / 2);
            fs::write(mount.join(&path), format!("round {round}\n"))?;
            times[1].add(store.timed(&["commit", "demo", "-m", "one file"])?);
            times[2].add(store.timed(&["diff", "demo", "HEAD~1", "HEAD"])?);
            times[3].add(store.timed(&["rollback", "demo", "HEAD~1", "--yes"])?);
            times[4].add(store.timed(&["fork", "demo", &format!("fork-{round}")])?);
            times[5].add(store.timed(&["status", "demo"])?);
            times[6].add(store.timed(&["log", "demo", "-n", "20"])?);
            store.kura(&["umount", &at])?;
        }
        stored.push(store.stored_bytes()? as f64);
        verbs
            .iter_mut()
            .zip(times)
            .for_each(|(verb, times)| verb.push(times));
    }
    for (name, times) in VERBS.iter().zip(&verbs) {
        section.row_of(name, times.iter().map(|times| seconds(times.median())));
    }
    section.row_of("import", imports.iter().map(|time| seconds(*time)));
    section.row_of(
        "find, the first walk",
        finds.iter().map(|time| seconds(*time)),
    );
    section.row_of(
        "memory of the daemon",
        memory.iter().map(|size| bytes(*size as u64)),
    );
    section.row_of(
        "size of the store",
        stored.iter().map(|size| bytes(*size as u64)),
    );

    let x: Vec<f64> = sizes.iter().map(|files| *files as f64).collect();
    let line = |name: &str, values: Vec<f64>| Line::new(name, &x, &values);
    let lines = VERBS.iter().zip(&verbs).map(|(name, times)| {
        line(
            name,
            times.iter().map(|times| times.median() * 1000.0).collect(),
        )
    });
    section.plot(Plot {
        name: "growth-verbs",
        title: "Verbs against the number of files",
        x: "files",
        y: "ms",
        lines: lines.collect(),
    });
    let mebibytes = |values: &[f64]| values.iter().map(|value| value / 1048576.0).collect();
    section.plot(Plot {
        name: "growth-sizes",
        title: "Memory and store against the number of files",
        x: "files",
        y: "MiB",
        lines: vec![
            line("memory of the daemon", mebibytes(&memory)),
            line("size of the store", mebibytes(&stored)),
        ],
    });
    report.set("growth", section);
    Ok(())
}
