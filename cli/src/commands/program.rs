//! `completions`, `man`, `version`, `help`, `util`.

use clap::CommandFactory;
use computerd_api::v1::VersionInfo;
use serde::Serialize;

use crate::args::Cli;
use crate::args::program::{CompletionsArgs, HelpArgs, ManArgs, UtilArgs, UtilCommand};
use crate::context::Context;
use crate::docs;
use crate::error::{CommandError, Result};

/// Prints the completion script of a shell.
pub fn completions(context: &Context<'_>, arguments: &CompletionsArgs) -> Result<()> {
    context.printer.write(docs::completions(arguments.shell))
}

/// Writes the man pages.
pub fn man(context: &Context<'_>, arguments: &ManArgs) -> Result<()> {
    let directory = &arguments.directory;
    let failed = |error| CommandError::io(format!("write into {}", directory.display()), &error);
    std::fs::create_dir_all(directory).map_err(failed)?;
    let pages = docs::man_pages().map_err(failed)?;
    for (name, page) in &pages {
        std::fs::write(directory.join(name), page).map_err(failed)?;
    }
    context
        .printer
        .note(format!("{} pages in {}", pages.len(), directory.display()));
    Ok(())
}

/// Versions of both programs.
#[derive(Debug, Serialize)]
struct Versions {
    kura: &'static str,
    computerd: Option<VersionInfo>,
}

/// Prints the versions; never starts the daemon.
pub async fn version(context: &Context<'_>) -> Result<()> {
    let printer = context.printer;
    let mut versions = Versions {
        kura: env!("CARGO_PKG_VERSION"),
        computerd: None,
    };
    if let Ok(client) = context.client_without_start()
        && matches!(client.is_running().await, Ok(true))
    {
        versions.computerd = Some(client.version().await?);
    }
    if printer.is_json() {
        return printer.json("version", &versions);
    }
    printer.line(format!("kura {}", versions.kura))?;
    if let Some(daemon) = &versions.computerd {
        printer.line(format!(
            "computerd {} (interface {}, store format {})",
            daemon.version, daemon.api_version, daemon.format_version
        ))?;
    }
    Ok(())
}

/// Prints the help of a verb or a topic.
pub fn help(context: &Context<'_>, arguments: &HelpArgs) -> Result<()> {
    let printer = context.printer;
    if let [word] = arguments.words.as_slice()
        && let Some(text) = docs::topic(word)
    {
        return printer.write(text);
    }
    let mut command = Cli::command();
    command.build();
    let mut found = &mut command;
    for word in &arguments.words {
        found = found.find_subcommand_mut(word).ok_or_else(|| {
            CommandError::usage(
                format!("there is no verb and no topic '{word}'"),
                format!(
                    "`kura --help` lists the verbs; topics are {}",
                    docs::TOPICS.join(", ")
                ),
            )
        })?;
    }
    let help = found.render_long_help();
    if printer.palette == crate::output::color::Palette::COLORED {
        printer.write(help.ansi().to_string())
    } else {
        printer.write(help.to_string())
    }
}

/// Tools for the project itself.
pub fn util(context: &Context<'_>, arguments: &UtilArgs) -> Result<()> {
    match arguments.command {
        UtilCommand::Reference => context.printer.write(docs::reference()),
    }
}
