//! Small changes of ever larger files, committed after each.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::measure::{Bench, Times};
use crate::plot::{Line, Plot};
use crate::report::{Report, Section, bytes, seconds};
use crate::tree::Numbers;

const MIB: u64 = 1 << 20;

pub(crate) fn measure(bench: &Bench, max_mib: u64, report: &mut Report) -> Result<()> {
    let sizes: Vec<u64> = [16, 64, 256, 1024, 4096]
        .into_iter()
        .filter(|size| *size <= max_mib)
        .collect();
    let names = [
        "write it",
        "first commit",
        "write 4 KiB inside",
        "commit of that",
        "append 4 KiB",
        "commit of that ",
    ];
    let mut rows: Vec<Vec<f64>> = vec![Vec::new(); names.len()];
    let mut grown = Vec::new();
    for size in &sizes {
        bench.say(&format!("a file of {size} MiB"));
        let store = bench.store();
        store.kura(&["init", "demo"])?;
        store.commit_by_hand("demo");
        let mount = store.mount("demo");
        let path = mount.join("file");
        let mut times = vec![Times::default(); names.len()];
        times[0].add(write(&path, *size)?);
        times[1].add(store.timed(&["commit", "demo", "-m", "all of it"])?);
        let before = store.stored_bytes()?;
        let mut numbers = Numbers::new(*size);
        for _ in 0..bench.repetitions {
            let file = OpenOptions::new().read(true).write(true).open(&path)?;
            let at = numbers.below(size * MIB / 4096) * 4096;
            let block = incompressible(&mut numbers, 4096);
            let start = Instant::now();
            file.write_all_at(&block, at)?;
            drop(file);
            times[2].add(start.elapsed());
            times[3].add(store.timed(&["commit", "demo", "-m", "one block"])?);
            let start = Instant::now();
            OpenOptions::new()
                .append(true)
                .open(&path)?
                .write_all(&block)?;
            times[4].add(start.elapsed());
            times[5].add(store.timed(&["commit", "demo", "-m", "appended"])?);
        }
        let changes = 2 * bench.repetitions as u64;
        grown.push(store.stored_bytes()?.saturating_sub(before) / changes);
        rows.iter_mut()
            .zip(times)
            .for_each(|(row, times)| row.push(times.median()));
    }
    let mut columns = vec!["".to_owned()];
    columns.extend(sizes.iter().map(|size| bytes(size * MIB)));
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let mut section = Section::new(
        "Small changes of large files",
        "A file that does not compress, in a mount; after the first commit blocks are written at random places and \
         appended, with a commit after each. Writing is open, write and close, without fsync.",
        &columns,
    );
    for (name, row) in names.iter().zip(&rows) {
        section.row_of(name.trim(), row.iter().map(|time| seconds(*time)));
    }
    section.row_of(
        "stored for each change",
        grown.iter().map(|size| bytes(*size)),
    );
    let x: Vec<f64> = sizes.iter().map(|size| *size as f64).collect();
    let lines = [2, 3, 4, 5].map(|row| {
        let name = match row {
            3 => "commit of a block inside",
            5 => "commit of an append",
            row => names[row],
        };
        Line::new(
            name,
            &x,
            &rows[row]
                .iter()
                .map(|time| time * 1000.0)
                .collect::<Vec<_>>(),
        )
    });
    section.plot(Plot {
        name: "growth-file-size",
        title: "Small changes against the file's size",
        x: "MiB",
        y: "ms",
        lines: lines.to_vec(),
    });
    report.set("large-file", section);
    Ok(())
}

fn write(path: &Path, size_mib: u64) -> Result<Duration> {
    let mut numbers = Numbers::new(size_mib);
    let mut block = incompressible(&mut numbers, MIB as usize);
    let start = Instant::now();
    let mut file = File::create(path)?;
    for number in 0..size_mib {
        // No two blocks are the same.
        block[..8].copy_from_slice(&number.to_le_bytes());
        block.rotate_left(8);
        file.write_all(&block)?;
    }
    drop(file);
    Ok(start.elapsed())
}

fn incompressible(numbers: &mut Numbers, length: usize) -> Vec<u8> {
    (0..length).map(|_| numbers.below(256) as u8).collect()
}
