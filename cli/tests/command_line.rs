//! The command line as a whole: help, reference, man pages, completions, and what the program
//! does when there is no store or nobody to ask.

use std::path::Path;
use std::process::{Command, Output};

use clap::{CommandFactory, Parser};
use clap_complete::Shell;
use workspace_cli::args::Cli;
use workspace_cli::docs;

fn built() -> clap::Command {
    let mut command = Cli::command();
    command.build();
    command
}

/// Every verb with its path, nested ones too.
fn verbs(command: &clap::Command, path: &str, found: &mut Vec<(String, clap::Command)>) {
    for verb in command.get_subcommands() {
        let path = format!("{path} {}", verb.get_name());
        found.push((path.clone(), verb.clone()));
        verbs(verb, &path, found);
    }
}

fn all_verbs() -> Vec<(String, clap::Command)> {
    let mut found = Vec::new();
    verbs(&built(), "kura", &mut found);
    found
}

fn kura(store: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kura"));
    command
        .env_clear()
        .env("KURA_STORE", store)
        .env("KURA_COMPUTERD", "/nonexistent/computerd");
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("output is UTF-8")
}

fn run(command: &mut Command) -> (Option<i32>, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().expect("the program starts");
    (status.code(), text(&stdout), text(&stderr))
}

#[test]
fn the_definitions_are_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn every_verb_has_help_with_an_example_that_parses() {
    for (path, mut verb) in all_verbs() {
        let help = verb.render_long_help().to_string();
        let (_, examples) = help
            .split_once("Examples:\n")
            .unwrap_or_else(|| panic!("{path} has no examples"));
        let name = path.split(' ').nth(1).unwrap();
        let mut has_own = false;
        for line in examples.lines().map(str::trim) {
            let Some(words) = example_words(line) else {
                continue;
            };
            has_own |= words.iter().any(|word| word == name);
            if let Err(error) = Cli::try_parse_from(&words) {
                panic!("{path}: example `{line}` does not parse: {error}");
            }
        }
        assert!(has_own, "{path} has no example of its own");
    }
}

/// The words of an example; `None` for one of another program, or with a shell substitution.
fn example_words(line: &str) -> Option<Vec<String>> {
    let line = line.split(" # ").next()?.split(['>', '|', '&']).next()?;
    if !line.starts_with("kura ") || line.contains("$(") {
        return None;
    }
    let mut words = Vec::new();
    for (at, part) in line.split('\'').enumerate() {
        if at % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    Some(words)
}

#[test]
fn every_verb_takes_the_global_options() {
    for (path, verb) in all_verbs() {
        for option in ["json", "quiet", "color", "store"] {
            let is_there = verb
                .get_arguments()
                .any(|argument| argument.get_id() == option);
            assert!(is_there, "{path} does not take --{option}");
        }
    }
}

#[test]
fn the_reference_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/cli.md");
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        stored == docs::reference(),
        "docs/cli.md is out of date; run `kura util reference > docs/cli.md`"
    );
}

#[test]
fn every_verb_has_a_man_page() {
    let pages = docs::man_pages().unwrap();
    for (path, verb) in all_verbs() {
        if verb.is_hide_set() || path.starts_with("kura util") {
            continue;
        }
        let name = format!("{}.1", path.replace(' ', "-"));
        let page = pages.iter().find(|page| page.0 == name);
        let page = text(&page.unwrap_or_else(|| panic!("no page {name}")).1);
        assert!(page.contains(".TH"), "{name} has no title");
        assert!(page.contains("Examples:"), "{name} has no examples");
    }
}

#[test]
fn every_shell_gets_completions_of_every_verb() {
    for shell in [
        Shell::Bash,
        Shell::Zsh,
        Shell::Fish,
        Shell::Elvish,
        Shell::PowerShell,
    ] {
        let script = text(&docs::completions(shell));
        for verb in built().get_subcommands().filter(|verb| !verb.is_hide_set()) {
            assert!(
                script.contains(verb.get_name()),
                "{shell}: {}",
                verb.get_name()
            );
        }
    }
}

#[test]
fn man_pages_are_written_and_counted() {
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("man");
    let (code, stdout, _) = run(kura(directory.path()).arg("man").arg(&target));
    assert_eq!((code, stdout.as_str()), (Some(0), ""));
    assert!(target.join("kura-mount.1").is_file());
}

#[test]
fn without_a_store_a_verb_says_how_to_begin() {
    let directory = tempfile::tempdir().unwrap();
    let store = directory.path().join("absent");
    let (code, stdout, stderr) = run(kura(&store).args(["status", "demo"]));
    assert_eq!((code, stdout.as_str()), (Some(4), ""));
    assert!(
        stderr.starts_with("error: there is no store in "),
        "{stderr}"
    );
    assert!(stderr.contains("\nhint: `kura init NAME`"), "{stderr}");
    assert!(!store.exists(), "looking made the store");
}

#[test]
fn errors_are_json_on_request() {
    let directory = tempfile::tempdir().unwrap();
    let store = directory.path().join("absent");
    let (code, stdout, stderr) = run(kura(&store).args(["log", "demo", "--json"]));
    assert_eq!((code, stdout.as_str()), (Some(4), ""));
    let error: serde_json::Value = serde_json::from_str(&stderr).unwrap();
    assert_eq!(error["schema"], 1);
    assert_eq!(error["type"], "error");
    assert_eq!(error["kind"], "not_found");
}

#[test]
fn a_daemon_that_is_missing_is_an_error_with_a_hint() {
    let directory = tempfile::tempdir().unwrap();
    let (code, _, stderr) = run(kura(directory.path()).args(["init", "demo"]));
    assert_eq!(code, Some(6), "{stderr}");
    assert!(stderr.contains("/nonexistent/computerd"), "{stderr}");
    assert!(stderr.contains("KURA_COMPUTERD"), "{stderr}");
}

#[test]
fn wrong_command_lines_end_with_2() {
    let directory = tempfile::tempdir().unwrap();
    for words in [
        &["comit", "demo"][..],
        &["log", "a/b"],
        &["restore", "demo", "../x", "--from", "HEAD"],
        &["show", "demo@HEAD", "HEAD"],
        &["cat", "demo:x", "--json"],
        &["help", "nothing"],
    ] {
        let mut command = kura(directory.path());
        // The store looks present, so that only the command line can be at fault.
        std::fs::write(directory.path().join("kura.db"), "").unwrap();
        let (code, stdout, stderr) = run(command.args(words));
        assert_eq!(
            (code, stdout.as_str()),
            (Some(2), ""),
            "{words:?}: {stderr}"
        );
    }
    let (_, _, stderr) = run(kura(directory.path()).args(["comit", "demo"]));
    assert!(stderr.contains("commit"), "no suggestion: {stderr}");
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let script = format!(
        "{} help environment --color never; echo \"status $?\" >&2",
        env!("CARGO_BIN_EXE_kura")
    );
    // The read end is closed before anything is written.
    let (_, _, stderr) = run(Command::new("bash")
        .arg("-c")
        .arg(format!("( sleep 0.3; {script} ) | true")));
    assert_eq!(stderr, "status 0\n");
}

#[test]
fn help_topics_are_data() {
    let directory = tempfile::tempdir().unwrap();
    for topic in docs::TOPICS {
        let (code, stdout, stderr) = run(kura(directory.path()).args(["help", topic]));
        assert_eq!((code, stderr.as_str()), (Some(0), ""));
        assert!(stdout.lines().count() > 5, "{topic}: {stdout}");
    }
    let (_, stdout, _) = run(kura(directory.path()).args(["help", "daemon", "logs"]));
    assert!(stdout.contains("--follow"), "{stdout}");
}
