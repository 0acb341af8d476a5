//! The same operations in a mount and in a plain directory must come to the same: every answer,
//! attribute and byte, with commits, remounts and killed workers in between [G-1, G-7, G-11].
//!
//! Sequences are made from seeds. One that differs is made as short as it can be and printed as
//! Rust, to be kept below as a test. `KURA_DIFFERENTIAL_SEEDS=1000..2000` runs those seeds instead
//! of the usual ones.

#[path = "differential/operation.rs"]
mod operation;
#[path = "differential/side.rs"]
mod side;

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use e2e::{TestMount, TestStore, assert_same_tree, wait_until};
use operation::{Op, Recipe, generate};
use side::{Side, Snapshot, become_user, first_difference};

const SEEDS: Range<u64> = 0..120;
/// Longest time for making a sequence short.
const SHRINK_TIME: Duration = Duration::from_secs(120);

/// A mount and a plain directory.
struct Bench {
    store: TestStore,
    mount: TestMount,
    plain: PathBuf,
    runs: u64,
    was_killed: bool,
}

impl Bench {
    fn new() -> Self {
        let store = TestStore::new();
        store.init("demo", None);
        let mount = store.mount("demo");
        let plain = store.scratch_directory("plain");
        Self {
            store,
            mount,
            plain,
            runs: 0,
            was_killed: false,
        }
    }

    /// Commits; a worker may have been killed just now.
    fn commit(&self) {
        let mut result = None;
        wait_until("a commit is made", Duration::from_secs(30), || {
            let run = self.store.kura(&["commit", "demo", "-m", "between"]);
            let is_made = run.code == 0;
            result = Some(run);
            is_made
        });
        let _ = result.expect("it was tried").ok();
    }

    /// Runs a sequence in new directories.
    fn run(&mut self, ops: &[Op]) -> Result<(), String> {
        if std::mem::take(&mut self.was_killed) {
            // The keeper would wait longer and longer.
            *self = Self::new();
        }
        self.was_killed = ops.contains(&Op::KillWorker);
        let number = self.runs.to_string();
        self.runs += 1;
        let mut actual = Side::new(self.mount.join(&number));
        let mut expected = Side::new(self.plain.join(&number));
        let result = catch_unwind(AssertUnwindSafe(|| {
            for (position, op) in ops.iter().enumerate() {
                match op {
                    Op::Commit => self.commit(),
                    Op::KillWorker => self.store.kill_worker(),
                    Op::Remount => {
                        become_user(0);
                        actual.close_all();
                        expected.close_all();
                        let _ = self.store.daemon();
                        self.store.unmount(&self.mount);
                        self.mount = self.store.mount("demo");
                        actual.top = self.mount.join(&number);
                    }
                    _ => {}
                }
                step(&mut expected, &mut actual, *op)
                    .map_err(|message| format!("operation {position}, {op:?}: {message}"))?;
            }
            step(&mut expected, &mut actual, Op::Check)
                .map_err(|message| format!("at the end: {message}"))
        }));
        become_user(0);
        actual.remove();
        expected.remove();
        result.unwrap_or_else(|panic| Err(panic_message(panic.as_ref())))
    }

    /// Leaves operations out as long as the sequence still differs.
    fn shrink(&mut self, mut ops: Vec<Op>, mut message: String) -> (Vec<Op>, String) {
        let deadline = Instant::now() + SHRINK_TIME;
        let mut chunk = ops.len() / 2;
        while chunk > 0 {
            let mut start = 0;
            let before = ops.len();
            while start < ops.len() && Instant::now() < deadline {
                let mut fewer = ops.clone();
                fewer.drain(start..(start + chunk).min(ops.len()));
                match self.run(&fewer) {
                    Ok(()) => start += chunk,
                    Err(found) => (ops, message) = (fewer, found),
                }
            }
            if chunk > 1 || ops.len() == before {
                chunk /= 2;
            }
        }
        (ops, message)
    }

    /// Runs the sequences of some seeds.
    fn run_seeds(&mut self, seeds: Range<u64>, recipe: Recipe) {
        for seed in seeds {
            let ops = generate(seed, recipe);
            if let Err(message) = self.run(&ops) {
                let (ops, message) = self.shrink(ops, message);
                panic!("seed {seed}: {message}\n{}", as_test(&ops));
            }
        }
    }
}

/// One operation on both sides.
fn step(expected: &mut Side, actual: &mut Side, op: Op) -> Result<(), String> {
    if op == Op::Check || op == Op::Remount {
        become_user(0);
        actual.check_listings()?;
        return compare(
            &expected.snapshot(),
            &actual.snapshot(),
            &expected.top,
            &actual.top,
        );
    }
    let (wanted, found) = (expected.apply(op), actual.apply(op));
    if wanted == found {
        return Ok(());
    }
    let shown = |outcome: &side::Outcome| match outcome {
        Ok(bytes) => format!(
            "{} bytes {:?}",
            bytes.len(),
            String::from_utf8_lossy(&bytes[..bytes.len().min(60)])
        ),
        Err(errno) => format!("{:?}", nix::errno::Errno::from_raw(*errno)),
    };
    Err(format!(
        "gives {} in the mount, {} in a plain directory",
        shown(&found),
        shown(&wanted)
    ))
}

fn compare(
    expected: &Snapshot,
    actual: &Snapshot,
    expected_top: &Path,
    actual_top: &Path,
) -> Result<(), String> {
    if expected == actual {
        return Ok(());
    }
    let trees = catch_unwind(|| assert_same_tree(&expected.tree, &actual.tree));
    let mut message = trees.map_or_else(|panic| panic_message(panic.as_ref()), |()| String::new());
    for path in expected.tree.keys() {
        let (plain, mounted) = (expected_top.join(path), actual_top.join(path));
        if let Some(offset) = first_difference(&plain, &mounted) {
            message += &format!("\n{path:?} differs from byte {offset} on");
        }
    }
    for (path, count) in &expected.link_counts {
        let found = actual.link_counts.get(path);
        if found != Some(count) {
            message += &format!("\n{path:?} has {found:?} links, not {count}");
        }
    }
    if expected.open_files != actual.open_files {
        message += &format!(
            "\nopen files are {:?}, not {:?}",
            actual.open_files, expected.open_files
        );
    }
    Err(message)
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_else(|| "a panic without a message".to_owned())
}

/// The sequence as a test of this file.
fn as_test(ops: &[Op]) -> String {
    let mut text = "#[test]\nfn fuse_…() {\n    replay(&[\n".to_owned();
    for op in ops {
        text += &format!("        Op::{op:?},\n");
    }
    text + "    ]);\n}\n"
}

/// Runs a kept sequence.
fn replay(ops: &[Op]) {
    if let Err(message) = Bench::new().run(ops) {
        panic!("{message}");
    }
}

fn seeds(usual: Range<u64>) -> Range<u64> {
    let Ok(text) = std::env::var("KURA_DIFFERENTIAL_SEEDS") else {
        return usual;
    };
    let parsed = text
        .split_once("..")
        .and_then(|(start, end)| Some(start.parse().ok()?..end.parse().ok()?));
    parsed.unwrap_or_else(|| panic!("KURA_DIFFERENTIAL_SEEDS is not like 1000..2000: {text}"))
}

#[test]
fn fuse_g11_operations_come_to_the_same_as_in_a_plain_directory() {
    let recipe = Recipe {
        length: 80,
        whole_mount: true,
    };
    Bench::new().run_seeds(seeds(SEEDS), recipe);
}

#[test]
fn fuse_g11_threads_beside_each_other_come_to_the_same_as_in_a_plain_directory() {
    const THREADS: u64 = 4;
    let bench = Bench::new();
    let all = seeds(SEEDS);
    let share = (all.end - all.start).div_ceil(THREADS);
    let recipe = Recipe {
        length: 150,
        whole_mount: false,
    };
    let (store, mount, plain) = (&bench.store, &bench.mount, &bench.plain);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let first = (all.start + thread * share).min(all.end);
                let seeds = first..(first + share).min(all.end);
                scope.spawn(move || {
                    for seed in seeds {
                        let mut actual = Side::new(mount.join(seed.to_string()));
                        let mut expected = Side::new(plain.join(seed.to_string()));
                        for (position, op) in generate(seed, recipe).into_iter().enumerate() {
                            if let Err(message) = step(&mut expected, &mut actual, op) {
                                panic!("seed {seed}, operation {position}, {op:?}: {message}");
                            }
                        }
                        let end = step(&mut expected, &mut actual, Op::Check);
                        end.unwrap_or_else(|message| panic!("seed {seed} at the end: {message}"));
                        become_user(0);
                    }
                })
            })
            .collect();
        let mut kills = 3;
        while workers.iter().any(|worker| !worker.is_finished()) {
            let _ = store.kura(&["commit", "demo", "-m", "beside"]);
            thread::sleep(Duration::from_millis(300));
            if kills > 0 {
                store.kill_worker();
                kills -= 1;
            }
        }
    });
    let _ = bench.store.daemon();
    bench.store.unmount(&bench.mount);
    let again = bench.store.mount("demo");
    for seed in all {
        let mut expected = Side::existing(bench.plain.join(seed.to_string()));
        let mut actual = Side::existing(again.join(seed.to_string()));
        let same = step(&mut expected, &mut actual, Op::Check);
        same.unwrap_or_else(|message| panic!("seed {seed} after a remount: {message}"));
    }
}

#[test]
fn fuse_g11_a_copy_by_somebody_else_takes_set_id_bits_away() {
    replay(&[
        Op::MakeDirectory { path: 3, mode: 511 },
        Op::MakeDirectory { path: 6, mode: 511 },
        Op::Open {
            slot: 1,
            path: 8,
            flags: 66,
        },
        Op::Open {
            slot: 2,
            path: 7,
            flags: 66,
        },
        Op::SetMode {
            path: 7,
            mode: 2541,
        },
        Op::Become { user: 1234 },
        Op::Write {
            slot: 1,
            offset: 45056,
            length: 20480,
            fill: 70,
        },
        Op::CopyRange {
            from: 1,
            to: 2,
            from_offset: 49151,
            to_offset: 24576,
            length: 4441,
        },
    ]);
}
