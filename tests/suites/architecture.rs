//! Rules about the source tree: who may depend on whom, where SQL, the kernel's protocol and HTTP
//! live, how long files are, and that every guarantee of docs/semantics.md names a test that exists.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use cargo_metadata::{DependencyKind, MetadataCommand};
use e2e::repository_root;
use walkdir::WalkDir;

/// A file owns one thing; longer than this it owns several.
const MAX_FILE_LINES: usize = 1000;

/// Crates that each crate of the workspace must not depend on.
const FORBIDDEN: &[(&str, &[&str])] = &[
    (
        "workspace-store",
        &[
            "tokio",
            "axum",
            "hyper",
            "clap",
            "anyhow",
            "indicatif",
            "fuse-mount",
            "computerd",
            "computerd-api",
            "workspace-cli",
        ],
    ),
    (
        "fuse-mount",
        &[
            "rusqlite",
            "tokio",
            "axum",
            "hyper",
            "clap",
            "anyhow",
            "computerd",
            "computerd-api",
            "workspace-cli",
        ],
    ),
    (
        "computerd-api",
        &[
            "workspace-store",
            "fuse-mount",
            "rusqlite",
            "axum",
            "clap",
            "computerd",
            "workspace-cli",
        ],
    ),
    (
        "computerd",
        &["rusqlite", "zstd", "fastcdc", "workspace-cli"],
    ),
    (
        "workspace-cli",
        &[
            "rusqlite",
            "workspace-store",
            "fuse-mount",
            "computerd",
            "axum",
        ],
    ),
];

fn sources() -> Vec<PathBuf> {
    let root = repository_root();
    let mut paths = Vec::new();
    for directory in ["workspace-store", "fuse-mount", "computerd", "cli", "tests"] {
        for entry in WalkDir::new(root.join(directory)) {
            let path = entry.expect("a readable source tree").into_path();
            if path.extension().is_some_and(|extension| extension == "rs")
                && !path.components().any(|part| part.as_os_str() == "target")
            {
                paths.push(path);
            }
        }
    }
    assert!(paths.len() > 30, "only {} sources found", paths.len());
    paths.sort();
    paths
}

fn relative(path: &Path) -> String {
    path.strip_prefix(repository_root())
        .expect("a path in the repository")
        .to_string_lossy()
        .into_owned()
}

/// The part of a file before its `mod tests`, without comments.
fn program_lines(text: &str) -> Vec<(usize, &str)> {
    let mut lines = Vec::new();
    let mut previous_is_test_attribute = false;
    for (index, line) in text.lines().enumerate() {
        let trimmed = line.trim_start();
        if previous_is_test_attribute && trimmed.starts_with("mod tests") && line.contains('{') {
            break;
        }
        if !trimmed.is_empty() {
            previous_is_test_attribute = trimmed.starts_with("#[cfg(test)]");
        }
        if !trimmed.starts_with("//") {
            lines.push((index + 1, line));
        }
    }
    lines
}

fn is_test_file(path: &str) -> bool {
    path.starts_with("tests/") || path.contains("/tests/") || path.ends_with("/tests.rs")
}

fn fail_if_any(what: &str, offences: &[String]) {
    assert!(offences.is_empty(), "{what}:\n{}", offences.join("\n"));
}

#[test]
fn crates_depend_only_downwards() {
    let metadata = MetadataCommand::new()
        .manifest_path(repository_root().join("Cargo.toml"))
        .no_deps()
        .exec()
        .expect("cargo metadata");
    let packages: BTreeMap<String, BTreeSet<String>> = metadata
        .packages
        .iter()
        .map(|package| {
            let dependencies = package
                .dependencies
                .iter()
                .filter(|dependency| dependency.kind == DependencyKind::Normal)
                .map(|dependency| dependency.name.clone())
                .collect();
            (package.name.to_string(), dependencies)
        })
        .collect();
    let mut offences = Vec::new();
    for (package, forbidden) in FORBIDDEN {
        let dependencies = packages
            .get(*package)
            .unwrap_or_else(|| panic!("no package {package}"));
        for name in *forbidden {
            if dependencies.contains(*name) {
                offences.push(format!("{package} depends on {name}"));
            }
        }
    }
    fail_if_any("layers are broken", &offences);
}

#[test]
fn each_technology_is_named_in_one_place_only() {
    // (word, where it may stand)
    const PLACES: &[(&str, &[&str])] = &[
        (
            "rusqlite",
            &["workspace-store/src/db/", "workspace-store/src/db.rs"],
        ),
        ("axum", &["computerd/src/"]),
        (
            "FUSE_INIT",
            &["fuse-mount/src/fuse/", "fuse-mount/src/fuse.rs"],
        ),
        ("clap::", &["cli/src/", "computerd/src/command_line.rs"]),
    ];
    let mut offences = Vec::new();
    for path in sources() {
        let name = relative(&path);
        if is_test_file(&name) {
            continue;
        }
        let text = fs::read_to_string(&path).expect("a readable source");
        for (line_number, line) in program_lines(&text) {
            for (word, places) in PLACES {
                if line.contains(word) && !places.iter().any(|place| name.starts_with(place)) {
                    offences.push(format!("{name}:{line_number}: {word}"));
                }
            }
        }
    }
    fail_if_any("named outside its place", &offences);
}

#[test]
fn the_semantics_layer_knows_no_kernel_protocol() {
    let mut offences = Vec::new();
    for path in sources() {
        let name = relative(&path);
        if !name.starts_with("fuse-mount/src/fs/") && name != "fuse-mount/src/fs.rs" {
            continue;
        }
        let text = fs::read_to_string(&path).expect("a readable source");
        for (line_number, line) in program_lines(&text) {
            if line.contains("/dev/fuse") || line.contains("zerocopy") {
                offences.push(format!("{name}:{line_number}: {}", line.trim()));
            }
        }
    }
    fail_if_any("the kernel's protocol in fs", &offences);
}

#[test]
fn files_have_at_most_a_thousand_lines() {
    let mut offences = Vec::new();
    for path in sources() {
        let count = fs::read_to_string(&path)
            .expect("a readable source")
            .lines()
            .count();
        if count > MAX_FILE_LINES {
            offences.push(format!("{}: {count} lines", relative(&path)));
        }
    }
    fail_if_any("files that own too much", &offences);
}

#[test]
fn every_file_opens_with_what_it_owns() {
    let mut offences = Vec::new();
    for path in sources() {
        let text = fs::read_to_string(&path).expect("a readable source");
        let first = text.lines().next().unwrap_or_default();
        if !first.starts_with("//! ") || first.contains("Placeholder") {
            offences.push(relative(&path));
        }
    }
    fail_if_any("files without an opening `//!`", &offences);
}

#[test]
fn nothing_is_left_to_do_in_the_source() {
    // Written apart so that this file does not match itself.
    let words = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("XX", "X:"),
        concat!("db", "g!("),
        concat!("unimple", "mented!("),
        concat!("to", "do!("),
    ];
    let mut offences = Vec::new();
    for path in sources() {
        let text = fs::read_to_string(&path).expect("a readable source");
        for (index, line) in text.lines().enumerate() {
            if words.iter().any(|word| line.contains(word)) {
                offences.push(format!(
                    "{}:{}: {}",
                    relative(&path),
                    index + 1,
                    line.trim()
                ));
            }
        }
    }
    fail_if_any("left to do", &offences);
}

#[test]
fn programs_do_not_unwrap() {
    let unwrap = concat!(".unwr", "ap()");
    let mut offences = Vec::new();
    for path in sources() {
        let name = relative(&path);
        if is_test_file(&name) {
            continue;
        }
        let text = fs::read_to_string(&path).expect("a readable source");
        for (line_number, line) in program_lines(&text) {
            if line.contains(unwrap) {
                offences.push(format!("{name}:{line_number}: {}", line.trim()));
            }
        }
    }
    fail_if_any("unwrap outside tests", &offences);
}

#[test]
fn every_unsafe_block_says_why_it_is_sound() {
    let mut offences = Vec::new();
    for path in sources() {
        let text = fs::read_to_string(&path).expect("a readable source");
        let lines: Vec<&str> = text.lines().collect();
        for (index, line) in lines.iter().enumerate() {
            let code = line.trim_start();
            if code.starts_with("//") || !code.contains(concat!("unsafe", " {")) {
                continue;
            }
            let above = &lines[index.saturating_sub(8)..index];
            if !above.iter().any(|line| line.contains("SAFETY:")) {
                offences.push(format!("{}:{}", relative(&path), index + 1));
            }
        }
    }
    fail_if_any("unsafe without a reason", &offences);
}

#[test]
fn every_guarantee_names_a_test_that_exists() {
    let text =
        fs::read_to_string(repository_root().join("docs/semantics.md")).expect("docs/semantics.md");
    let tests: BTreeSet<String> = sources()
        .iter()
        .flat_map(|path| {
            let text = fs::read_to_string(path).expect("a readable source");
            text.lines()
                .filter_map(|line| {
                    let name = line
                        .trim_start()
                        .trim_start_matches("async ")
                        .strip_prefix("fn ")?;
                    Some(name.split(['(', '<']).next()?.to_owned())
                })
                .collect::<Vec<_>>()
        })
        .collect();
    let mut offences = Vec::new();
    let mut found = 0;
    for number in 1..=12 {
        let tag = format!("[G-{number}]");
        let Some(start) = text.find(&tag) else {
            offences.push(format!("{tag} is missing"));
            continue;
        };
        let rest = &text[start + tag.len()..];
        let section = &rest[..rest.find("[G-").unwrap_or(rest.len())];
        let named: Vec<&str> = section
            .split('`')
            .skip(1)
            .step_by(2)
            .filter(|word| {
                let name = word
                    .trim_start_matches("fuse_")
                    .trim_start_matches("docker_");
                name.starts_with(&format!("g{number}_"))
            })
            .collect();
        for name in &named {
            found += 1;
            if !tests.contains(*name) {
                offences.push(format!("{tag} names `{name}`, which is no test"));
            }
        }
        if named.is_empty() && !section.contains("Not there yet") {
            offences.push(format!(
                "{tag} names no test and does not say that it is not there yet"
            ));
        }
    }
    assert!(found > 0, "no guarantee names a test");
    fail_if_any("docs/semantics.md and the tests disagree", &offences);
}

#[test]
fn the_repository_names_no_place_of_its_making() {
    // Written apart so that this file does not match itself.
    let words = [
        concat!("/wo", "rk/"),
        concat!("deb.deb", "ian.org"),
        concat!("registry.npm", "js.org"),
    ];
    let mut offences = Vec::new();
    let root = repository_root();
    for entry in WalkDir::new(&root).into_iter().filter_entry(|entry| {
        !matches!(
            entry.file_name().to_str(),
            Some("target" | ".git" | "Cargo.lock")
        )
    }) {
        let entry = entry.expect("a readable source tree");
        let Ok(text) = fs::read_to_string(entry.path()) else {
            continue;
        };
        for (index, line) in text.lines().enumerate() {
            if words.iter().any(|word| line.contains(word)) {
                offences.push(format!("{}:{}", relative(entry.path()), index + 1));
            }
        }
    }
    fail_if_any("names a machine's path or a registry's host", &offences);
}
