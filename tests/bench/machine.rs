//! What the figures were measured on.

use std::fs;
use std::process::Command;

use e2e::{binary, run};

/// One line: processors, memory, kernel, distribution, programs.
pub(crate) fn describe() -> String {
    let processors = std::thread::available_parallelism().map_or(0, usize::from);
    let memory_gib = file("/proc/meminfo")
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))
        .and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok())
        .map_or(0, |kib| kib.div_ceil(1 << 20));
    let kernel = file("/proc/sys/kernel/osrelease");
    let system = file("/etc/os-release")
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="))
        .map(|name| name.trim_matches('"').to_owned())
        .unwrap_or_default();
    let mut programs = vec![version(&binary("kura").to_string_lossy(), "--version")];
    for name in ["git", "restic", "borg", "bindfs", "fuse-overlayfs"] {
        let argument = if name == "restic" {
            "version"
        } else {
            "--version"
        };
        if crate::measure::is_installed(name) {
            programs.push(version(name, argument));
        }
    }
    format!(
        "{processors} processors, {memory_gib} GiB, Linux {}, {system}; {}.",
        kernel.trim(),
        programs.join(", ")
    )
}

/// Load of the machine before the measurement: others at work make the figures worthless.
pub(crate) fn load() -> f64 {
    let text = file("/proc/loadavg");
    let first = text.split_whitespace().next();
    first.and_then(|load| load.parse().ok()).unwrap_or(f64::NAN)
}

fn version(program: &str, argument: &str) -> String {
    let run = run(Command::new(program).arg(argument));
    let lines = run.stdout.lines().chain(run.stderr.lines());
    let line = lines.map(str::trim).find(|line| !line.is_empty());
    let words: Vec<&str> = line.unwrap_or_default().split_whitespace().collect();
    let number = words
        .iter()
        .find(|word| word.starts_with(|first: char| first.is_ascii_digit()));
    let name = program.rsplit('/').next().unwrap_or(program);
    format!("{name} {}", number.unwrap_or(&"?"))
}

fn file(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}
