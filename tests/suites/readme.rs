//! The README tells the truth: its commands and links exist.

use std::fs;
use std::process::Command;

use e2e::{binary, repository_root, run};

/// Lines of the README's shell blocks.
fn commands() -> Vec<String> {
    let text = fs::read_to_string(repository_root().join("README.md")).expect("README.md");
    let mut is_shell = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        if line.starts_with("```") {
            is_shell = line.trim_end() == "```sh";
        } else if is_shell {
            lines.push(line.trim().to_owned());
        }
    }
    assert!(lines.len() > 8, "no shell blocks in the README");
    lines
}

#[test]
fn every_verb_and_option_of_the_readme_exists() {
    for line in commands() {
        let words: Vec<&str> = line
            .split('#')
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .skip_while(|word| *word == "$" || *word == "sudo")
            .collect();
        let ["kura", verb, arguments @ ..] = words.as_slice() else {
            continue;
        };
        let help = run(Command::new(binary("kura")).args([*verb, "--help"]))
            .ok()
            .stdout;
        for option in arguments.iter().filter(|word| word.starts_with("--")) {
            let option = option.split('=').next().unwrap_or_default();
            assert!(
                help.contains(option),
                "`{line}`: kura {verb} has no {option}"
            );
        }
    }
}

#[test]
fn every_script_and_link_of_the_readme_exists() {
    let root = repository_root();
    let text = fs::read_to_string(root.join("README.md")).expect("README.md");
    let mut count = 0;
    for part in text.split("](").skip(1) {
        let link = part.split([')', '#']).next().unwrap_or_default();
        if link.is_empty() || link.contains("://") {
            continue;
        }
        assert!(
            root.join(link).exists(),
            "the README links to {link}, which is not there"
        );
        count += 1;
    }
    assert!(count > 3, "the README has no links");
    for line in commands() {
        if let Some(word) = line.split_whitespace().next()
            && (word.starts_with("tests/") || word.starts_with(".ci/"))
        {
            assert!(
                root.join(word).exists(),
                "the README runs {word}, which is not there"
            );
        }
    }
}
