//! `status`.

use computerd_api::v1::{MountInfo, WorkspaceStatus};

use super::short_id;
use crate::args::workspace::StatusArgs;
use crate::context::Context;
use crate::error::Result;
use crate::output::color::Role;
use crate::output::diff::format_counts;
use crate::output::sanitize::sanitize;
use crate::output::table::format_bytes;
use crate::output::time::relative;

/// Shows the state of a workspace.
pub async fn status(context: &Context<'_>, arguments: StatusArgs) -> Result<()> {
    let printer = context.printer;
    let client = context.client().await?;
    let status = client.workspace_status(&arguments.name).await?;
    if printer.is_json() {
        return printer.json("workspace_status", &status);
    }
    for line in lines(context, &status) {
        printer.line(line)?;
    }
    Ok(())
}

fn lines(context: &Context<'_>, status: &WorkspaceStatus) -> Vec<String> {
    let printer = context.printer;
    let now = context.now();
    let workspace = &status.workspace;
    let mut lines = vec![
        format!("Workspace {}", printer.paint(Role::Header, &workspace.name)),
        format!(
            "  head        {} {} ({}, {})",
            printer.paint(Role::Id, short_id(&workspace.head)),
            first_line(&status.head_commit.message),
            sanitize(status.head_commit.author.as_bytes()),
            relative(&workspace.head_time, now)
        ),
    ];
    let changed: Vec<_> = status
        .uncommitted
        .iter()
        .filter(|branch| branch.changes.total() > 0)
        .collect();
    if changed.is_empty() {
        lines.push("  uncommitted none".to_owned());
    }
    for branch in changed {
        lines.push(format!(
            "  uncommitted {} on {}",
            printer.paint(Role::Changed, &format_counts(&branch.changes)),
            branch.branch
        ));
    }
    for branch in &status.conflicts {
        let conflicts = super::merge::describe(branch);
        let conflicts = printer.paint(Role::Removed, &conflicts);
        lines.push(format!("  conflicts   {conflicts}"));
    }
    for branch in &status.branches {
        lines.push(format!(
            "  branch      {} {}{}",
            printer.paint(Role::Id, short_id(&branch.commit)),
            printer.paint(Role::Reference, &branch.name),
            if branch.is_default { " (default)" } else { "" }
        ));
    }
    for mount in &status.mounts {
        lines.push(format!("  mount       {}", describe_mount(mount)));
    }
    for lease in &status.leases {
        lines.push(format!(
            "  lease       {} by {} (fence {})",
            lease.branch,
            sanitize(lease.holder.as_bytes()),
            lease.fence
        ));
    }
    let sizes = &status.sizes;
    let mut parts = vec![format!("{} commits of its own", sizes.commit_count)];
    parts.extend(sizes.entry_count.map(|count| format!("{count} entries")));
    parts.extend(
        sizes
            .content_bytes
            .map(|bytes| format!("{} of content", format_bytes(bytes))),
    );
    if sizes.overlay_bytes > 0 {
        parts.push(format!("journal {}", format_bytes(sizes.overlay_bytes)));
    }
    parts.push(format!("store {}", format_bytes(sizes.store_bytes)));
    lines.push(format!("  size        {}", parts.join(", ")));
    lines
}

/// One line about a mount.
pub fn describe_mount(mount: &MountInfo) -> String {
    let what = mount
        .branch
        .clone()
        .unwrap_or_else(|| short_id(&mount.commit).to_owned());
    let shared = if mount.shared && !mount.read_only {
        ", beside others"
    } else {
        ""
    };
    format!(
        "{} {what} as {}, {}{shared}",
        sanitize(mount.mountpoint.as_bytes()),
        sanitize(mount.principal.as_bytes()),
        access(mount)
    )
}

/// What may be done in a mount, in a word.
pub fn access(mount: &MountInfo) -> &'static str {
    match (mount.read_only, mount.restricted) {
        (true, _) => "read-only",
        (false, true) => "by grants",
        (false, false) => "live",
    }
}

/// The first line of a message, harmless.
pub fn first_line(message: &str) -> String {
    match message.lines().next() {
        Some(line) if !line.trim().is_empty() => sanitize(line.as_bytes()),
        _ => "(no message)".to_owned(),
    }
}
