//! The verbs: one function each, from arguments to output.

pub mod audit;
pub mod blame;
pub mod branch;
pub mod commit;
pub mod config;
pub mod consent;
pub mod daemon;
pub mod diff;
pub mod file;
pub mod grant;
pub mod log;
pub mod merge;
pub mod mount;
pub mod principal;
pub mod program;
pub mod purge;
pub mod revert;
pub mod run;
pub mod status;
pub mod transfer;
pub mod ui;
pub mod volume_plugin;
pub mod workspace;

use crate::args::Command;
use crate::context::Context;
use crate::error::{ExitStatus, Result};

/// Runs one verb.
///
/// # Errors
/// Why it failed; nothing of it has been printed yet.
pub async fn run(context: &Context<'_>, command: Command) -> Result<ExitStatus> {
    match command {
        Command::Init(arguments) => workspace::init(context, arguments).await?,
        Command::List(_) => workspace::list(context).await?,
        Command::Status(arguments) => status::status(context, arguments).await?,
        Command::Mount(arguments) => mount::mount(context, arguments).await?,
        Command::Umount(arguments) => mount::umount(context, arguments).await?,
        Command::LsMounts(_) => mount::list(context).await?,
        Command::Commit(arguments) => commit::commit(context, arguments).await?,
        Command::Log(arguments) => log::log(context, arguments).await?,
        Command::Show(arguments) => log::show(context, arguments).await?,
        Command::Blame(arguments) => blame::blame(context, arguments).await?,
        Command::Run(arguments) => return run::run(context, arguments).await,
        Command::Runs(arguments) => blame::runs(context, arguments).await?,
        Command::Diff(arguments) => return diff::diff(context, arguments).await,
        Command::Ls(arguments) => file::ls(context, arguments).await?,
        Command::Cat(arguments) => file::cat(context, arguments).await?,
        Command::Export(arguments) => transfer::export(context, arguments).await?,
        Command::Import(arguments) => transfer::import(context, arguments).await?,
        Command::Restore(arguments) => revert::restore(context, arguments).await?,
        Command::Rollback(arguments) => return revert::rollback(context, arguments).await,
        Command::Merge(arguments) => return merge::merge(context, arguments).await,
        Command::Conflicts(arguments) => merge::conflicts(context, arguments).await?,
        Command::Resolve(arguments) => merge::resolve(context, arguments).await?,
        Command::Undo(arguments) => revert::undo(context, arguments).await?,
        Command::Purge(arguments) => purge::purge(context, arguments).await?,
        Command::Operations(arguments) => revert::operations(context, arguments).await?,
        Command::Fork(arguments) => workspace::fork(context, arguments).await?,
        Command::Branch(arguments) => branch::branch(context, arguments).await?,
        Command::Tag(arguments) => branch::tag(context, arguments).await?,
        Command::Handoff(arguments) => workspace::handoff(context, arguments).await?,
        Command::Principal(arguments) => principal::principal(context, arguments).await?,
        Command::Group(arguments) => principal::group(context, arguments).await?,
        Command::Grant(arguments) => grant::grant(context, arguments).await?,
        Command::Revoke(arguments) => grant::revoke(context, arguments).await?,
        Command::Grants(arguments) => grant::grants(context, arguments).await?,
        Command::Audit(arguments) => audit::audit(context, arguments).await?,
        Command::Ui(arguments) => ui::ui(context, arguments).await?,
        Command::Config(arguments) => config::config(context, arguments).await?,
        Command::Daemon(arguments) => daemon::daemon(context, arguments).await?,
        Command::VolumePlugin(arguments) => volume_plugin::serve(context, arguments).await?,
        Command::Completions(arguments) => program::completions(context, &arguments)?,
        Command::Man(arguments) => program::man(context, &arguments)?,
        Command::Version(_) => program::version(context).await?,
        Command::Help(arguments) => program::help(context, &arguments)?,
        Command::Util(arguments) => program::util(context, &arguments)?,
    }
    Ok(ExitStatus::Success)
}

/// The first 12 digits of an id, enough for people.
pub fn short_id(id: &str) -> &str {
    id.get(..12).unwrap_or(id)
}
