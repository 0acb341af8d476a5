//! Settings of workspaces, and leases, which are kept as settings.

use std::collections::BTreeMap;
use std::time::Duration;

use computerd_api::v1::{ConfigChange, ConfigChanged, ConfigList, ConfigOrigin, ConfigSetting};
use fuse_mount::fs::CommitPolicy;
use serde::{Deserialize, Serialize};
use workspace_store::WorkspaceId;
use workspace_store::policy::Access;
use workspace_store::workspace::WorkspaceInfo;

use crate::daemon::Daemon;
use crate::error::{Error, ErrorKind, Result};
use crate::server::Call;

/// Whether commits are made by themselves.
const COMMIT_AUTO: &str = "commit.auto";
/// Time without a change after which a commit is made.
const COMMIT_QUIET_MS: &str = "commit.quiet-ms";
/// Longest time from a change to its commit.
const COMMIT_MAX_INTERVAL_MS: &str = "commit.max-interval-ms";
/// How data is cached.
const MOUNT_PROFILE: &str = "mount.profile";

/// Settings with this prefix hold leases and are not shown as settings.
pub const LEASE_PREFIX: &str = "lease.";

/// A setting that exists.
struct Known {
    key: &'static str,
    default: &'static str,
    description: &'static str,
    check: fn(&str) -> std::result::Result<(), String>,
}

const KNOWN: &[Known] = &[
    Known {
        key: COMMIT_AUTO,
        default: "true",
        description: "make commits by themselves while files change",
        check: |value| match value {
            "true" | "false" => Ok(()),
            _ => Err("must be true or false".to_owned()),
        },
    },
    Known {
        key: COMMIT_MAX_INTERVAL_MS,
        default: "5000",
        description: "longest time from a change to its commit, in milliseconds",
        check: |value| check_milliseconds(value, 50, 86_400_000),
    },
    Known {
        key: COMMIT_QUIET_MS,
        default: "500",
        description: "time without a change after which a commit is made, in milliseconds",
        check: |value| check_milliseconds(value, 10, 3_600_000),
    },
    Known {
        key: MOUNT_PROFILE,
        default: "cached",
        description: "how data of mounts is cached",
        check: |value| match value {
            "cached" => Ok(()),
            _ => Err("must be 'cached'".to_owned()),
        },
    },
];

fn check_milliseconds(value: &str, least: u64, most: u64) -> std::result::Result<(), String> {
    match value.parse::<u64>() {
        Ok(number) if (least..=most).contains(&number) => Ok(()),
        _ => Err(format!("must be a whole number from {least} to {most}")),
    }
}

fn known(key: &str) -> Result<&'static Known> {
    let key = key.replace('_', "-");
    KNOWN.iter().find(|known| known.key == key).ok_or_else(|| {
        let names: Vec<&str> = KNOWN.iter().map(|known| known.key).collect();
        Error::new(ErrorKind::NotFound, format!("there is no setting '{key}'"))
            .with_hint(format!("settings are: {}", names.join(", ")))
    })
}

fn setting(known: &Known, stored: &BTreeMap<String, String>) -> ConfigSetting {
    let value = stored.get(known.key);
    ConfigSetting {
        key: known.key.to_owned(),
        value: value.map_or(known.default, String::as_str).to_owned(),
        origin: match value {
            Some(_) => ConfigOrigin::Workspace,
            None => ConfigOrigin::Default,
        },
        description: known.description.to_owned(),
    }
}

/// Settings of a workspace with their origin.
pub fn list(call: &Call) -> Result<ConfigList> {
    let workspace = call.scope(None)?.workspace;
    let stored = call.daemon.store.settings(workspace.id)?;
    Ok(ConfigList {
        settings: KNOWN.iter().map(|known| setting(known, &stored)).collect(),
    })
}

/// Changes a setting of a workspace; its mounts follow at once.
pub fn set(call: &Call, change: ConfigChange) -> Result<ConfigChanged> {
    let daemon = &call.daemon;
    let scope = call.scope(change.principal.as_ref())?;
    let (workspace, principal) = (&scope.workspace, &scope.principal);
    let known = known(&change.key)?;
    scope.require_everywhere(Access::Write, &format!("set {}", known.key))?;
    if let Some(value) = &change.value {
        (known.check)(value).map_err(|why| {
            Error::new(
                ErrorKind::InvalidInput,
                format!("set {} to '{value}': it {why}", known.key),
            )
            .with_hint(format!("the default is {}", known.default))
        })?;
    }
    let operation =
        daemon
            .store
            .set_setting(workspace.id, known.key, change.value.as_deref(), principal)?;
    daemon.mounts.apply_settings(daemon, workspace.id)?;
    let stored = daemon.store.settings(workspace.id)?;
    Ok(ConfigChanged {
        setting: setting(known, &stored),
        operation: Some(daemon.operation_reference(&workspace.name, operation)),
    })
}

/// The defaults, which workspaces without a setting of their own have.
pub fn list_store(_: &Call) -> Result<ConfigList> {
    let nothing = BTreeMap::new();
    Ok(ConfigList {
        settings: KNOWN.iter().map(|known| setting(known, &nothing)).collect(),
    })
}

/// When changes of a workspace become commits by themselves.
pub fn policy(daemon: &Daemon, workspace: WorkspaceId) -> Result<CommitPolicy> {
    let stored = daemon.store.settings(workspace)?;
    let value = |key: &str| -> Result<String> { Ok(setting(known(key)?, &stored).value) };
    let milliseconds = |key: &str| -> Result<Duration> {
        let text = value(key)?;
        let number = text.parse().map_err(|_| {
            Error::new(
                ErrorKind::Corrupt,
                format!("setting {key} has the value '{text}', which is no number"),
            )
        })?;
        Ok(Duration::from_millis(number))
    };
    Ok(CommitPolicy {
        enabled: value(COMMIT_AUTO)? == "true",
        quiet: milliseconds(COMMIT_QUIET_MS)?,
        max_interval: milliseconds(COMMIT_MAX_INTERVAL_MS)?,
    })
}

/// The profile of a workspace's mounts.
pub fn profile(daemon: &Daemon, workspace: WorkspaceId, asked: Option<&String>) -> Result<String> {
    let known = known(MOUNT_PROFILE)?;
    let profile = match asked {
        Some(asked) => asked.clone(),
        None => setting(known, &daemon.store.settings(workspace)?).value,
    };
    (known.check)(&profile).map_err(|why| {
        Error::new(
            ErrorKind::Unsupported,
            format!("mount with the profile '{profile}': it {why}"),
        )
    })?;
    Ok(profile)
}

/// A writer's claim of a branch, made by a handoff.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// Principal that may write.
    pub holder: String,
    /// Number that only grows.
    pub fence: u64,
}

/// Who may write to a branch; everybody if nobody claims it.
pub fn lease(daemon: &Daemon, workspace: WorkspaceId, branch: &str) -> Result<Option<Lease>> {
    let stored = daemon.store.settings(workspace)?;
    Ok(leases_in(&stored).remove(branch))
}

/// The leases of a workspace by branch.
pub fn leases(daemon: &Daemon, workspace: WorkspaceId) -> Result<BTreeMap<String, Lease>> {
    Ok(leases_in(&daemon.store.settings(workspace)?))
}

fn leases_in(stored: &BTreeMap<String, String>) -> BTreeMap<String, Lease> {
    stored
        .iter()
        .filter_map(|(key, value)| {
            let branch = key.strip_prefix(LEASE_PREFIX)?;
            Some((branch.to_owned(), serde_json::from_str(value).ok()?))
        })
        .collect()
}

/// Refuses to let a principal change a branch that another one was given.
///
/// # Errors
/// `PermissionDenied`.
pub fn check_lease(
    daemon: &Daemon,
    workspace: &WorkspaceInfo,
    branch: &str,
    principal: &str,
) -> Result<()> {
    match lease(daemon, workspace.id, branch)? {
        Some(lease) if lease.holder != principal => Err(Error::new(
            ErrorKind::PermissionDenied,
            format!(
                "change branch {branch} of {} as {principal}: it was handed over to {} (fence {})",
                workspace.name, lease.holder, lease.fence
            ),
        )
        .with_hint(format!(
            "act for its holder with --as {}, work on a branch of your own, or undo the handoff; \
             `kura operations {}` lists it",
            lease.holder, workspace.name
        ))),
        _ => Ok(()),
    }
}

/// Gives a branch to `holder`; the operation and the new lease.
pub fn take_lease(
    daemon: &Daemon,
    workspace: WorkspaceId,
    branch: &str,
    holder: &str,
    author: &str,
) -> Result<(u64, Lease)> {
    let key = format!("{LEASE_PREFIX}{branch}");
    // Of all leases that there ever were: an undone one must not come back with its number.
    let operations = daemon.store.operations(workspace, 0)?;
    let of_branch = operations.iter().filter(|record| record.target == key);
    let fences = of_branch.filter_map(|record| {
        let lease: Lease = serde_json::from_str(record.after.as_deref()?).ok()?;
        Some(lease.fence)
    });
    let fence = fences.max().unwrap_or(0) + 1;
    let lease = Lease {
        holder: holder.to_owned(),
        fence,
    };
    let value = serde_json::to_string(&lease)
        .map_err(|error| Error::new(ErrorKind::Internal, format!("encode a lease: {error}")))?;
    let operation = daemon
        .store
        .set_setting(workspace, &key, Some(&value), author)?;
    Ok((operation, lease))
}

/// Lets a mounted branch follow a lease that was changed: writable again if all who have it mounted
/// may write.
pub fn apply_lease(daemon: &Daemon, workspace: &WorkspaceInfo, branch: &str) -> Result<()> {
    let Some(filesystem) = daemon.mounts.filesystem(workspace.id, branch) else {
        return Ok(());
    };
    let lease = lease(daemon, workspace.id, branch)?;
    let is_fenced = daemon.mounts.list().iter().any(|mount| {
        mount.workspace == workspace.name
            && mount.branch.as_deref() == Some(branch)
            && lease
                .as_ref()
                .is_some_and(|lease| lease.holder != mount.principal)
    });
    filesystem.set_read_only(is_fenced);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_valid_and_bad_values_say_why() {
        for known in KNOWN {
            (known.check)(known.default).unwrap();
        }
        let quiet = known("commit.quiet_ms").unwrap();
        assert_eq!(quiet.key, COMMIT_QUIET_MS);
        for bad in ["", "-1", "5", "1e3", "soon"] {
            assert!((quiet.check)(bad).unwrap_err().contains("whole number"));
        }
        let Err(error) = known("commit.loud") else {
            panic!("an unknown key was found")
        };
        assert!(error.hint().unwrap().contains("commit.auto"));
    }
}
