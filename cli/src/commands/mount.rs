//! `mount`, `umount`, `ls-mounts`.

use computerd_api::v1::{MountRequest, UnmountRequest};

use super::short_id;
use crate::args::mount::{MountArgs, Profile, UmountArgs};
use crate::context::{Context, mount_point};
use crate::error::{CommandError, Result};
use crate::output::sanitize::sanitize;
use crate::output::table::TextTable;
use crate::output::time::relative;

/// Mounts a workspace; returns when it is usable.
pub async fn mount(context: &Context<'_>, arguments: MountArgs) -> Result<()> {
    let printer = context.printer;
    let directory = mount_point(&arguments.directory)?;
    let client = context.client().await?;
    let is_new = match std::fs::create_dir(&directory) {
        Ok(()) => true,
        // A dead mount exists and can't be looked at; the daemon has the better error.
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => false,
        Err(error) => {
            let what = format!("make directory {}", directory.display());
            return Err(CommandError::io(what, &error));
        }
    };
    let request = MountRequest {
        workspace: arguments.target.name,
        revision: arguments.target.revision,
        mountpoint: directory.as_path().into(),
        principal: arguments.principal,
        read_only: arguments.read_only,
        allow_other: arguments.allow_other,
        uid_map: arguments.uid_map,
        gid_map: arguments.gid_map,
        new_branch: arguments.branch,
        profile: arguments.profile.map(Profile::name).map(str::to_owned),
        repair: arguments.repair,
    };
    let outcome = client.mount(&request).await;
    if outcome.is_err() && is_new {
        // Best effort: leave nothing behind that wasn't there before.
        let _ = std::fs::remove_dir(&directory);
    }
    let mounted = outcome?;
    if printer.is_json() {
        return printer.json("mount", &mounted);
    }
    printer.note(format!(
        "mounted {}",
        super::status::describe_mount(&mounted.mount)
    ));
    printer.operation(mounted.operation.as_ref());
    Ok(())
}

/// Ends a mount.
pub async fn umount(context: &Context<'_>, arguments: UmountArgs) -> Result<()> {
    let printer = context.printer;
    let request = UnmountRequest {
        mountpoint: mount_point(&arguments.directory)?.as_path().into(),
        lazy: arguments.lazy,
    };
    let ended = context.client().await?.unmount(&request).await?;
    if printer.is_json() {
        return printer.json("umount", &ended);
    }
    let what = if ended.is_new {
        "committed as"
    } else {
        "everything was committed, at"
    };
    printer.note(format!(
        "unmounted {} from {}; {what} {}",
        ended.workspace,
        sanitize(ended.mountpoint.as_bytes()),
        short_id(&ended.commit)
    ));
    printer.operation(ended.operation.as_ref());
    Ok(())
}

/// Lists the mounts.
pub async fn list(context: &Context<'_>) -> Result<()> {
    let printer = context.printer;
    let list = context.client().await?.mounts().await?;
    if printer.is_json() {
        return printer.json("mounts", &list);
    }
    if list.mounts.is_empty() {
        printer.note("nothing is mounted");
        return Ok(());
    }
    let now = context.now();
    let titles = [
        "DIRECTORY",
        "WORKSPACE",
        "STATE",
        "AS",
        "ACCESS",
        "UNCOMMITTED",
        "SINCE",
    ];
    let mut table = TextTable::new(&titles).right(5);
    for mount in &list.mounts {
        let state = match &mount.branch {
            Some(branch) => sanitize(branch.as_bytes()),
            None => short_id(&mount.commit).to_owned(),
        };
        table.row([
            sanitize(mount.mountpoint.as_bytes()),
            sanitize(mount.workspace.as_bytes()),
            state,
            sanitize(mount.principal.as_bytes()),
            super::status::access(mount).to_owned(),
            mount.uncommitted_count.to_string(),
            relative(&mount.since, now),
        ]);
    }
    printer.write(table.render())
}
