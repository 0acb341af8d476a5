//! Measures Kura beside other programs on this machine and writes docs/benchmarks.md and its plots.
//!
//! `cargo run --release -p e2e --bin bench -- --out docs`. Every group runs the real programs on
//! the real disk; whatever is compared is measured in turn in the same run. Needs root, a quiet
//! machine, and what the groups compare with (git; restic, borg, bindfs and fuse-overlayfs where
//! they are installed).

mod commit;
mod filesystem;
mod growth;
mod history;
mod large_file;
mod machine;
mod measure;
mod plot;
mod report;
mod tree;

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::{Parser, ValueEnum};

use measure::Bench;
use report::Report;

/// Measures Kura beside other programs on this machine.
#[derive(Debug, Parser)]
struct Arguments {
    /// Directory for benchmarks.md and the directory benchmarks/ with plots and raw figures.
    #[arg(long, default_value = "docs")]
    out: PathBuf,
    /// Scratch directory on the disk to be measured; needs about 30 GB for everything.
    #[arg(long, default_value = "/var/tmp/kura-bench")]
    scratch: PathBuf,
    /// Groups to measure; the others keep the figures of the last run.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Group>,
    /// Script that compares directories scenario by scenario (`fsbench.py`).
    #[arg(long, env = "KURA_FSBENCH")]
    fsbench: Option<PathBuf>,
    /// Runs of each short measurement.
    #[arg(long, default_value_t = 5)]
    repetitions: usize,
    /// Largest workspace of the group `growth`, in files.
    #[arg(long, default_value_t = 1_000_000)]
    max_files: u64,
    /// Longest history of the group `history`, in commits.
    #[arg(long, default_value_t = 10_000)]
    max_commits: u64,
    /// Largest file of the group `large-file`, in MiB.
    #[arg(long, default_value_t = 4096)]
    max_file_mib: u64,
}

/// What is measured together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Group {
    /// Programs in a mount against ext4 and other FUSE file systems.
    Filesystem,
    /// A tree of 50,000 files against git, restic and borg.
    Commit,
    /// Verbs, memory and size as the number of files grows.
    Growth,
    /// Verbs and size as the history grows.
    History,
    /// Small changes of ever larger files.
    LargeFile,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let bench = Bench::new(&arguments.scratch, arguments.repetitions)?;
    let mut report = Report::open(&arguments.out)?;
    let groups = match &*arguments.only {
        [] => Group::value_variants(),
        only => only,
    };
    for group in groups {
        let name = format!("{group:?}");
        bench.say(&format!("== {name}"));
        match group {
            Group::Filesystem => {
                let script = arguments.fsbench.as_deref();
                filesystem::measure(&bench, script, &mut report)
            }
            Group::Commit => commit::measure(&bench, &mut report),
            Group::Growth => growth::measure(&bench, arguments.max_files, &mut report),
            Group::History => history::measure(&bench, arguments.max_commits, &mut report),
            Group::LargeFile => large_file::measure(&bench, arguments.max_file_mib, &mut report),
        }
        .with_context(|| format!("measure {name}"))?;
        report.write()?;
    }
    bench.say(&format!("written: {}", report.path().display()));
    Ok(())
}
