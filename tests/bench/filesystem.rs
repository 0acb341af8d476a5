//! Programs in a mount against the plain disk and other FUSE file systems, by a script that runs
//! each scenario in all directories in turn.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::measure::{Bench, Times, is_installed, succeed};
use crate::report::{Report, Section, milliseconds, seconds};

/// Rounds of the long scenarios: each takes up to a minute.
const LONG_ROUNDS: usize = 2;

pub(crate) fn measure(bench: &Bench, script: Option<&Path>, report: &mut Report) -> Result<()> {
    let Some(script) = script else {
        bench.say("no script given (--fsbench): programs in a mount are not measured");
        return Ok(());
    };
    let store = bench.store();
    store.kura(&["init", "bench"])?;
    let mount = store.directory("mount");
    store.kura(&["mount", "bench", &mount.to_string_lossy(), "--allow-other"])?;
    let base = bench.directory("filesystem-base")?;
    let peers = Peers::mount(bench)?;
    let mut targets = vec![("kura", mount)];
    targets.extend(peers.mounted.iter().cloned());

    let short = run_script(
        bench,
        script,
        &base,
        &targets,
        &["--quick"],
        bench.repetitions,
    )?;
    let long: Vec<String> = scenarios(script)?
        .into_iter()
        .filter(|name| short.get(name).is_none())
        .collect();
    let only = long.join(",");
    // The long ones take minutes with each peer: only ours.
    let long = run_script(
        bench,
        script,
        &base,
        &targets[..1],
        &["--only", &only],
        LONG_ROUNDS,
    )?;
    drop(peers);

    let mut columns = vec!["scenario", "ext4", "kura", "ratio", "spread"];
    columns.extend(targets[1..].iter().map(|(name, _)| *name));
    let mut section = Section::new("Programs in a mount", "", &columns);
    let mut ratios = Vec::new();
    for results in [&short, &long] {
        for (name, result) in results.as_object().context("figures by scenario")? {
            let times = |directory: &Path| -> Times {
                let list = &result["seconds"][&*directory.to_string_lossy()];
                let list = list.as_array().map(Vec::as_slice).unwrap_or_default();
                Times(list.iter().filter_map(Value::as_f64).collect())
            };
            let base = times(&base);
            let pairs = |directory: &Path| -> Times {
                let own = times(directory);
                Times(
                    own.0
                        .iter()
                        .zip(&base.0)
                        .map(|(own, base)| own / base)
                        .collect(),
                )
            };
            let (ours, ratio) = (times(&targets[0].1), pairs(&targets[0].1));
            if ratio.median().is_finite() {
                ratios.push(ratio.median());
            }
            let mut cells = vec![
                name.clone(),
                milliseconds(base.median()),
                milliseconds(ours.median()),
                format!("{:.2}", ratio.median()),
                format!("{:.2} to {:.2}", ratio.least(), ratio.greatest()),
            ];
            cells.extend(targets[1..].iter().map(|(_, directory)| {
                let ratio = pairs(directory).median();
                if ratio.is_finite() {
                    format!("{ratio:.2}")
                } else {
                    "–".to_owned()
                }
            }));
            section.row(&cells);
        }
    }
    let count = ratios.len() as f64;
    let mean = (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / count).exp();
    let worst = ratios.iter().copied().fold(f64::NAN, f64::max);
    section.text(&format!(
        "Times in milliseconds, medians of {} rounds ({LONG_ROUNDS} of the long scenarios), each in all directories in \
         turn; the ratio to ext4 is the median of the pairs, beside it the least and the greatest. Profile `cached`. \
         **Geometric mean {mean:.2}, worst {worst:.2}.**",
        bench.repetitions
    ));
    section.text(&format!(
        "The slowest round of all took {}.",
        seconds(longest(&short).max(longest(&long)))
    ));
    report.set("filesystem", section);
    Ok(())
}

fn longest(results: &Value) -> f64 {
    let lists = results.as_object().into_iter().flatten();
    lists
        .filter_map(|(_, result)| result["seconds"].as_object())
        .flat_map(|seconds| seconds.values())
        .filter_map(Value::as_array)
        .flatten()
        .filter_map(Value::as_f64)
        .fold(0.0, f64::max)
}

fn run_script(
    bench: &Bench,
    script: &Path,
    base: &Path,
    targets: &[(&str, PathBuf)],
    arguments: &[&str],
    rounds: usize,
) -> Result<Value> {
    let out = bench.directory("filesystem-figures")?.join("figures.json");
    let mut command = Command::new("python3");
    command.arg(script).arg("--base").arg(base);
    for (_, directory) in targets {
        command.arg("--target").arg(directory);
    }
    command
        .args(["--reps", &rounds.to_string()])
        .arg("--json")
        .arg(&out)
        .args(arguments);
    succeed(&mut command)?;
    Ok(serde_json::from_slice(&fs::read(&out)?)?)
}

/// The script tells its scenarios when it is asked for one that it doesn't know.
fn scenarios(script: &Path) -> Result<Vec<String>> {
    let run = e2e::run(
        Command::new("python3")
            .arg(script)
            .args(["--base", "/", "--only", "?"]),
    );
    let list = run
        .stderr
        .rsplit_once("there are: ")
        .context("no list of scenarios")?
        .1;
    Ok(list.trim().split(", ").map(str::to_owned).collect())
}

/// Other FUSE file systems over plain directories.
struct Peers {
    mounted: Vec<(&'static str, PathBuf)>,
}

impl Peers {
    fn mount(bench: &Bench) -> Result<Self> {
        let mut peers = Self {
            mounted: Vec::new(),
        };
        for name in ["bindfs", "fuse-overlayfs"] {
            if !is_installed(name) {
                bench.say(&format!("{name} is not installed: not compared"));
                continue;
            }
            let directory = bench.directory(&format!("peer-{name}"))?;
            let path = |name: &str| -> Result<PathBuf> {
                let path = directory.join(name);
                fs::create_dir_all(&path)?;
                Ok(path)
            };
            let (lower, upper, work, mount) = (
                path("lower")?,
                path("upper")?,
                path("work")?,
                path("mount")?,
            );
            let mut command = Command::new(name);
            match name {
                "bindfs" => command.arg(&upper).arg(&mount),
                _ => command
                    .arg("-o")
                    .arg(format!(
                        "lowerdir={},upperdir={},workdir={}",
                        lower.display(),
                        upper.display(),
                        work.display()
                    ))
                    .arg(&mount),
            };
            succeed(&mut command)?;
            peers.mounted.push((name, mount));
        }
        Ok(peers)
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        for (_, mount) in &self.mounted {
            let _ = e2e::run(Command::new("umount").arg("-l").arg(mount));
        }
    }
}
