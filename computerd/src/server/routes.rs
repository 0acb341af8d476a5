//! The table of routes.

use computerd_api::v1::route;

use super::Api;
use crate::ui;
use crate::verbs::{
    attribution, commits, config, control, diff, files, grants, history, merge, mounts, principals,
    purge, references, resolve, revert,
};
use crate::verbs::{transfer, workspaces};

/// What a principal with a token may ask for; the verbs look at its grants. Everything else is the
/// administrator's.
pub(super) const OPEN_TO_PRINCIPALS: &[(&str, &str)] = &[
    ("GET", route::VERSION),
    ("GET", route::OPENAPI),
    ("GET", route::WORKSPACES),
    ("GET", route::WORKSPACE),
    ("POST", route::COMMITS),
    ("POST", route::LOG),
    ("POST", route::SHOW),
    ("POST", route::DIFF),
    ("POST", route::LIST),
    ("POST", route::CONTENT),
    ("POST", route::RESTORE),
    ("POST", route::ROLLBACK),
    ("POST", route::MERGE),
    ("POST", route::CONFLICTS),
    ("POST", route::RESOLVE),
    ("POST", route::BLAME),
    ("POST", route::RUNS),
    ("POST", route::RUN_BEGIN),
    ("POST", route::RUN_END),
    ("POST", route::UNDO),
    ("POST", route::OPERATIONS),
    ("POST", route::FORK),
    ("POST", route::HANDOFF),
    ("GET", route::BRANCHES),
    ("POST", route::BRANCHES),
    ("DELETE", route::BRANCH),
    ("GET", route::TAGS),
    ("POST", route::TAGS),
    ("DELETE", route::TAG),
    ("GET", route::WORKSPACE_CONFIG),
    ("GET", route::MOUNTS),
    ("POST", route::AUDIT),
    ("POST", route::GRANTS),
];

/// What the page may ask for: what it shows, and going back.
pub const OPEN_TO_PAGE: &[(&str, &str)] = &[
    ("GET", route::WORKSPACES),
    ("GET", route::WORKSPACE),
    ("POST", route::LOG),
    ("POST", route::SHOW),
    ("POST", route::DIFF),
    ("POST", route::BLAME),
    ("POST", route::RUNS),
    ("POST", route::AUDIT),
    ("POST", route::ROLLBACK),
    ("POST", route::UNDO),
];

pub(super) fn add(api: &mut Api) {
    api.get(route::VERSION, "Versions", control::version);
    api.get(route::DAEMON, "State of the daemon", control::status);
    api.post(
        route::DAEMON_STOP,
        "End the daemon: commit, unmount, close",
        control::stop,
    );
    api.get(route::WORKSPACES, "List workspaces", workspaces::list);
    api.stream(route::WORKSPACES, "Make a workspace", workspaces::create);
    api.get(route::WORKSPACE, "State of a workspace", workspaces::status);
    api.post(
        route::COMMITS,
        "Commit uncommitted changes",
        commits::commit,
    );
    api.post(route::LOG, "History, newest first", history::log);
    api.post(route::SHOW, "One commit with its changes", history::show);
    api.post(route::BLAME, "Who last changed a path", attribution::blame);
    api.post(route::RUNS, "List runs", attribution::runs);
    api.post(
        route::RUN_BEGIN,
        "Begin a run's step",
        attribution::begin_run,
    );
    api.post(
        route::RUN_END,
        "End a run's step: commit what it left",
        attribution::end_run,
    );
    api.post(route::DIFF, "Difference between two states", diff::diff);
    api.post(route::LIST, "Entries of a directory", files::list);
    api.bytes(route::CONTENT, "Bytes of a file", files::content);
    api.stream(route::EXPORT, "Write a state out", transfer::export);
    api.stream(route::IMPORT, "Bring content in", transfer::import);
    api.post(route::RESTORE, "Bring paths back", revert::restore);
    api.post(route::ROLLBACK, "Set a branch back", revert::rollback);
    api.post(route::MERGE, "Bring another history in", merge::merge);
    api.post(
        route::CONFLICTS,
        "List what could not be joined",
        resolve::conflicts,
    );
    api.post(
        route::RESOLVE,
        "Take paths out of the conflicts",
        resolve::resolve,
    );
    api.post(
        route::PURGE,
        "Remove content from all versions",
        purge::purge,
    );
    api.post(route::UNDO, "Take an operation back", revert::undo);
    api.post(route::OPERATIONS, "List operations", history::operations);
    api.post(
        route::FORK,
        "Make a workspace from a state of this one",
        workspaces::fork,
    );
    api.post(route::HANDOFF, "Pass a workspace on", workspaces::handoff);
    api.get(route::BRANCHES, "List branches", references::branches);
    api.post(route::BRANCHES, "Make a branch", references::create_branch);
    api.delete(route::BRANCH, "Remove a branch", references::delete_branch);
    api.get(route::TAGS, "List tags", references::tags);
    api.post(route::TAGS, "Make a tag", references::create_tag);
    api.delete(route::TAG, "Remove a tag", references::delete_tag);
    api.get(
        route::WORKSPACE_CONFIG,
        "Settings of a workspace",
        config::list,
    );
    api.post(
        route::WORKSPACE_CONFIG,
        "Change a setting of a workspace",
        config::set,
    );
    api.get(
        route::CONFIG,
        "Settings that workspaces begin with",
        config::list_store,
    );
    api.get(route::PRINCIPALS, "List principals", principals::list);
    api.post(route::PRINCIPALS, "Make a principal", principals::add);
    api.post(
        route::PRINCIPAL_STATE,
        "Disable a principal, or let it in again",
        principals::set_state,
    );
    api.post(route::TOKENS_LIST, "List tokens", principals::tokens);
    api.post(
        route::TOKENS,
        "Make a token; its secret is in the answer and nowhere else",
        principals::create_token,
    );
    api.delete(route::TOKEN, "Revoke a token", principals::revoke_token);
    api.get(route::GROUPS, "List groups", principals::groups);
    api.post(
        route::GROUPS,
        "Put principals into a group, or take them out",
        principals::change_group,
    );
    api.post(
        route::GRANTS,
        "List grants, or explain which decide about a path",
        grants::list,
    );
    api.post(
        route::GRANT,
        "Give, change or revoke a grant",
        grants::change,
    );
    api.get(route::MOUNTS, "List mounts", mounts::list);
    api.post(route::MOUNTS, "Mount a workspace", mounts::mount);
    api.post(
        route::UNMOUNT,
        "End a mount: flush, commit, unmount",
        mounts::unmount,
    );
    api.post(route::AUDIT, "Audit entries, newest first", history::audit);
    api.post(
        route::AUDIT_HEAD,
        "Newest audit entry, signed on request",
        history::audit_head,
    );
    api.post(
        route::AUDIT_VERIFY,
        "Check the whole audit chain",
        history::verify_audit,
    );
    api.lasting(
        route::UI,
        "Serve the page to look at, for as long as the connection lasts",
        ui::open,
    );
    api.get(
        route::VOLUME_PLUGIN,
        "State of Docker's volume driver",
        control::volume_plugin,
    );
    api.post(
        route::VOLUME_PLUGIN,
        "Serve Docker's volume driver",
        control::start_volume_plugin,
    );
    api.delete(
        route::VOLUME_PLUGIN,
        "End Docker's volume driver",
        control::stop_volume_plugin,
    );
}
