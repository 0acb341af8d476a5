//! Everything that is made from the clap definitions: docs/cli.md, man pages, completions; and
//! the help topics.

use std::io;

use clap::{Arg, Command, CommandFactory};
use clap_complete::Shell;

use crate::args::Cli;
use crate::env::VARIABLES;
use crate::error::EXIT_CODES;

/// Names of the help topics.
pub const TOPICS: &[&str] = &["exit-codes", "environment", "revisions"];

const REVISIONS: &str = "\
NAME             a workspace: its default branch, live (with what is uncommitted) when mounted
NAME@REV         a workspace at a revision
NAME@REV:PATH    a path in it; NAME:PATH is the live state

A revision is one of
  3f2a91           a commit's id, or the beginning of it if no other commit begins so
  main             a branch: its newest commit
  v1               a tag
  HEAD             the newest commit of the default branch
  REV~2            the commit two before REV (first parents)
  @{2 hours ago}   what the default branch named at that time
  REV@{yesterday}  what the branch REV named at that time

Paths begin at the root of the workspace. Quote revisions with braces and spaces.
";

/// The text of a help topic.
pub fn topic(name: &str) -> Option<String> {
    match name {
        "exit-codes" => Some(
            EXIT_CODES
                .iter()
                .map(|(code, meaning)| format!("{code:>4}  {meaning}\n"))
                .collect(),
        ),
        "environment" => Some(
            VARIABLES
                .iter()
                .map(|variable| format!("{:<15} {}\n", variable.name, variable.description))
                .collect(),
        ),
        "revisions" => Some(REVISIONS.to_owned()),
        _ => None,
    }
}

/// The completion script of a shell.
pub fn completions(shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "kura", &mut script);
    script
}

/// The man pages: file name and content, one for kura and one for each verb.
///
/// # Errors
/// Never for a buffer in memory; the generator's interface has it.
pub fn man_pages() -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut command = Cli::command();
    command.build();
    let mut pages = Vec::new();
    add_pages(&command, "kura", &mut pages)?;
    Ok(pages)
}

fn add_pages(command: &Command, name: &str, pages: &mut Vec<(String, Vec<u8>)>) -> io::Result<()> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone())
        .title(name)
        .render(&mut page)?;
    pages.push((format!("{name}.1"), page));
    for verb in visible_verbs(command) {
        add_pages(verb, &format!("{name}-{}", verb.get_name()), pages)?;
    }
    Ok(())
}

/// The reference of the command line, docs/cli.md.
pub fn reference() -> String {
    let mut command = Cli::command();
    command.build();
    let mut text = String::from(
        "<!-- Made by `kura util reference`; a test of the crate `workspace-cli` checks it. -->\n\n\
         # The command line\n\n\
         stdout is data, everything else is on stderr. With `--json` a verb prints one JSON object \
         with `\"schema\": 1` and its `\"type\"`; keys may be added, never changed. Paths that are \
         not UTF-8 are `{\"bytes_hex\": \"…\"}` there.\n\n",
    );
    text.push_str("| verb | does |\n|---|---|\n");
    for verb in visible_verbs(&command) {
        let name = verb.get_name();
        text.push_str(&format!(
            "| [`kura {name}`](#kura-{name}) | {} |\n",
            about(verb)
        ));
    }
    text.push_str("\n## Global options\n\n");
    text.push_str(&options_table(command.get_arguments()));
    for verb in visible_verbs(&command) {
        add_section(verb, &format!("kura {}", verb.get_name()), 2, &mut text);
    }
    text.push_str("\n## Revisions\n\n```text\n");
    text.push_str(REVISIONS);
    text.push_str("```\n\n## Exit codes\n\n| code | meaning |\n|---|---|\n");
    for (code, meaning) in EXIT_CODES {
        text.push_str(&format!("| {code} | {meaning} |\n"));
    }
    text.push_str("\n## Environment\n\n| variable | does |\n|---|---|\n");
    for variable in VARIABLES {
        text.push_str(&format!(
            "| `{}` | {} |\n",
            variable.name, variable.description
        ));
    }
    text
}

fn add_section(command: &Command, path: &str, level: usize, text: &mut String) {
    text.push_str(&format!(
        "\n{} {path}\n\n{}.\n\n",
        "#".repeat(level),
        about(command)
    ));
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim();
    text.push_str(&format!("```text\n{usage}\n```\n"));
    let is_own = |argument: &&Arg| !argument.is_global_set() && argument.get_id() != "help";
    let own: Vec<&Arg> = command.get_arguments().filter(is_own).collect();
    if !own.is_empty() {
        text.push('\n');
        text.push_str(&options_table(own.into_iter()));
    }
    if let Some(examples) = command.get_after_help() {
        let examples = examples.to_string();
        let (before, examples) = examples
            .split_once("Examples:\n")
            .unwrap_or((&examples, ""));
        if !before.trim().is_empty() {
            text.push_str(&format!("\n{}\n", before.trim()));
        }
        let lines: Vec<&str> = examples.lines().map(str::trim).collect();
        text.push_str(&format!("\n```sh\n{}\n```\n", lines.join("\n").trim()));
    }
    for verb in visible_verbs(command) {
        add_section(
            verb,
            &format!("{path} {}", verb.get_name()),
            level + 1,
            text,
        );
    }
}

fn options_table<'a>(arguments: impl Iterator<Item = &'a Arg>) -> String {
    let mut text = String::from("| argument | meaning |\n|---|---|\n");
    for argument in arguments.filter(|argument| !argument.is_hide_set()) {
        let escape = |text: String| text.replace('|', "\\|");
        let mut meaning = argument
            .get_help()
            .map(ToString::to_string)
            .unwrap_or_default();
        let values: Vec<String> = argument
            .get_possible_values()
            .iter()
            .map(|value| format!("`{}`", value.get_name()))
            .collect();
        if !values.is_empty() && argument.get_action().takes_values() {
            meaning.push_str(&format!(": {}", values.join(", ")));
        }
        let defaults: Vec<String> = argument
            .get_default_values()
            .iter()
            .map(|value| value.to_string_lossy().into_owned())
            .filter(|value| !value.is_empty())
            .collect();
        if !defaults.is_empty() && argument.get_action().takes_values() {
            meaning.push_str(&format!(" [default: {}]", defaults.join(" ")));
        }
        text.push_str(&format!(
            "| `{}` | {} |\n",
            escape(argument_name(argument)),
            escape(meaning)
        ));
    }
    text
}

fn argument_name(argument: &Arg) -> String {
    let value = argument
        .get_value_names()
        .map(|names| {
            names
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(" ")
        })
        .unwrap_or_default();
    if argument.is_positional() {
        let repeated = argument
            .get_num_args()
            .is_some_and(|range| range.max_values() > 1);
        let repeated = if repeated { "…" } else { "" };
        return format!("{value}{repeated}");
    }
    let mut names: Vec<String> = Vec::new();
    names.extend(argument.get_short().map(|short| format!("-{short}")));
    names.extend(argument.get_long().map(|long| format!("--{long}")));
    let mut text = names.join(", ");
    if argument.get_action().takes_values() {
        text.push_str(&format!(" {value}"));
    }
    text
}

fn about(command: &Command) -> String {
    command
        .get_about()
        .map(ToString::to_string)
        .unwrap_or_default()
}

fn visible_verbs(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|verb| !verb.is_hide_set())
}
