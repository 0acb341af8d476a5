//! Volumes: their definitions, kept in `volumes.json`, and who uses them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use computerd_api::v1::MountInfo;
use fuse_mount::fuse::uid_map::IdMap;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::USERS_NOTE;
use crate::access::Caller;
use crate::daemon::{Daemon, commit_request};
use crate::error::{Error, ErrorKind, Result};
use crate::mounts::MountParameters;
use crate::server::user_name;
use crate::store_directory::{StoreDirectory, write_atomically};
use crate::verbs::{config, mounts};

/// Version of the file.
const FILE_VERSION: u32 = 1;

/// Options that a volume can be made with.
const OPTIONS: &str = "workspace, rev, branch, as, read-only, uid-map, gid-map";

/// How a volume mounts a workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Definition {
    /// Name of the workspace.
    pub workspace: String,
    /// State: a branch is live, anything else read-only.
    pub revision: Option<String>,
    /// Branch to make at `revision` when it is first mounted.
    pub branch: Option<String>,
    /// Principal of the mount.
    pub principal: Option<String>,
    /// Refuse every change.
    pub read_only: bool,
    /// Users on the host and in the store.
    pub uid_map: IdMap,
    /// Groups on the host and in the store.
    pub gid_map: IdMap,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct File {
    version: u32,
    volumes: BTreeMap<String, Definition>,
}

/// All volumes.
#[derive(Debug, Default)]
pub(super) struct Volumes {
    definitions: BTreeMap<String, Definition>,
    users: BTreeMap<String, BTreeSet<String>>,
}

impl Definition {
    /// The definition that `docker volume create NAME -o …` asks for.
    pub fn from_options(name: &str, options: &BTreeMap<String, String>) -> Result<Self> {
        let mut definition = Self {
            workspace: name.to_owned(),
            revision: None,
            branch: None,
            principal: None,
            read_only: false,
            uid_map: IdMap::default(),
            gid_map: IdMap::default(),
        };
        for (key, value) in options {
            let invalid = |why: String| {
                Error::new(
                    ErrorKind::InvalidInput,
                    format!("option {key}={value} of volume {name}: {why}"),
                )
            };
            let map = || {
                value
                    .parse::<IdMap>()
                    .map_err(|error| invalid(error.to_string()))
            };
            match key.as_str() {
                "workspace" => definition.workspace = value.clone(),
                "rev" => definition.revision = Some(value.clone()),
                "branch" => definition.branch = Some(value.clone()),
                "as" => definition.principal = Some(value.clone()),
                "read-only" => {
                    definition.read_only = match value.as_str() {
                        "" | "true" | "1" => true,
                        "false" | "0" => false,
                        _ => return Err(invalid("it must be true or false".to_owned())),
                    };
                }
                "uid-map" => definition.uid_map = map()?,
                "gid-map" => definition.gid_map = map()?,
                _ => {
                    return Err(invalid("there is no such option".to_owned())
                        .with_hint(format!("options are: {OPTIONS}")));
                }
            }
        }
        Ok(definition)
    }

    /// The principal whose view the volume shows.
    fn principal(&self, daemon: &Daemon) -> Result<String> {
        let owner = Caller::Administrator(user_name(nix::unistd::geteuid().as_raw()));
        owner.acts_as(daemon, self.principal.as_ref())
    }
}

fn check_name(name: &str) -> Result<()> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    if !name.is_empty() && name.bytes().all(is_plain) && !name.starts_with('.') {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::InvalidInput,
        format!("'{name}' can't be the name of a volume"),
    )
    .with_hint("use letters, digits, '_', '.' and '-'"))
}

impl Volumes {
    /// Reads the definitions.
    pub fn load(&mut self, directory: &StoreDirectory) -> Result<()> {
        let path = directory.volumes_file();
        let text = match std::fs::read(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            other => other.map_err(|error| Error::io(format!("read {}", path.display()), error))?,
        };
        let file: File = serde_json::from_slice(&text).map_err(|error| {
            Error::new(
                ErrorKind::Corrupt,
                format!("read {}: {error}", path.display()),
            )
            .with_hint("move the file away and create the volumes again; no data is in it")
        })?;
        if file.version != FILE_VERSION {
            return Err(Error::new(
                ErrorKind::Incompatible,
                format!("{} has version {}", path.display(), file.version),
            )
            .with_hint("use the version of computerd that wrote it"));
        }
        self.definitions = file.volumes;
        Ok(())
    }

    fn save(&self, directory: &StoreDirectory) -> Result<()> {
        let path = directory.volumes_file();
        let failed = |error| Error::io(format!("write {}", path.display()), error);
        let file = File {
            version: FILE_VERSION,
            volumes: self.definitions.clone(),
        };
        let text = serde_json::to_vec_pretty(&file).map_err(|error| failed(error.into()))?;
        write_atomically(&path, &text).map_err(failed)
    }

    /// Takes over who uses which volume.
    pub fn resume_users(&mut self, users: &Value) {
        match serde_json::from_value(users.clone()) {
            Ok(users) => self.users = users,
            Err(error) => tracing::error!(%error, "read who uses volumes"),
        }
    }

    /// Volumes in use by containers.
    pub fn used_count(&self) -> u64 {
        self.users
            .values()
            .filter(|users| !users.is_empty())
            .count() as u64
    }

    /// All volumes.
    pub fn names(&self) -> Vec<String> {
        self.definitions.keys().cloned().collect()
    }

    /// A volume's definition.
    pub fn definition(&self, name: &str) -> Result<&Definition> {
        self.definitions.get(name).ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("there is no volume {name}"))
                .with_hint("`docker volume ls` lists them")
        })
    }

    /// Makes a volume, and its workspace if it is missing. The same again is no error.
    pub fn create(
        &mut self,
        daemon: &Daemon,
        name: &str,
        options: &BTreeMap<String, String>,
    ) -> Result<()> {
        check_name(name)?;
        let definition = Definition::from_options(name, options)?;
        if let Some(existing) = self.definitions.get(name) {
            if *existing == definition || options.is_empty() {
                return Ok(());
            }
            return Err(Error::new(
                ErrorKind::AlreadyExists,
                format!("volume {name} exists with other options"),
            )
            .with_hint(format!("remove it first: docker volume rm {name}")));
        }
        let principal = definition.principal(daemon)?;
        let workspace = match daemon.store.workspace(&definition.workspace) {
            Err(error) if error.kind() == ErrorKind::NotFound && definition.revision.is_none() => {
                daemon
                    .store
                    .create_workspace(&definition.workspace, &principal)?
            }
            other => other?,
        };
        if let Some(revision) = &definition.revision {
            daemon.store.resolve(workspace.id, revision)?;
        }
        self.definitions.insert(name.to_owned(), definition);
        if let Err(error) = self.save(&daemon.directory) {
            self.definitions.remove(name);
            return Err(error);
        }
        Ok(())
    }

    /// Forgets a volume; its workspace stays.
    pub fn remove(&mut self, daemon: &Daemon, name: &str) -> Result<()> {
        self.definition(name)?;
        if let Some(users) = self.users.get(name).filter(|users| !users.is_empty()) {
            return Err(Error::new(
                ErrorKind::Busy,
                format!("volume {name} is used by {} containers", users.len()),
            ));
        }
        let removed = self.definitions.remove(name);
        if let Err(error) = self.save(&daemon.directory) {
            self.definitions
                .extend(removed.map(|removed| (name.to_owned(), removed)));
            return Err(error);
        }
        Ok(())
    }

    /// Mounts a volume for a container; the mountpoint.
    pub fn mount(&mut self, daemon: &Daemon, name: &str, user: &str) -> Result<PathBuf> {
        let definition = self.definition(name)?.clone();
        let mountpoint = mountpoint(daemon, name);
        if daemon.mounts.of_volume(name).is_none() {
            let workspace = daemon.store.workspace(&definition.workspace)?;
            let view = self.view(daemon, &workspace, &definition)?;
            let principal = definition.principal(daemon)?;
            let is_fenced = mounts::is_fenced(daemon, &workspace, &view, &principal)?;
            create_mountpoint(&mountpoint)?;
            let profile = config::profile(daemon, workspace.id, None)?;
            let workspace_id = workspace.id;
            let parameters = MountParameters {
                workspace,
                view,
                mountpoint: mountpoint.clone(),
                principal: principal.clone(),
                read_only: definition.read_only || is_fenced,
                allow_other: true,
                uid_map: definition.uid_map,
                gid_map: definition.gid_map,
                profile,
                repair: true,
                volume: Some(name.to_owned()),
            };
            let (mount, _) = daemon.mounts.mount(daemon, parameters)?;
            daemon.audit(
                &principal,
                "docker",
                "mount",
                Some(workspace_id),
                name,
                serde_json::json!({"commit": mount.commit, "container": user}),
            );
        }
        self.users
            .entry(name.to_owned())
            .or_default()
            .insert(user.to_owned());
        self.note_users(daemon);
        Ok(mountpoint)
    }

    fn view(
        &self,
        daemon: &Daemon,
        workspace: &workspace_store::workspace::WorkspaceInfo,
        definition: &Definition,
    ) -> Result<crate::mounts::View> {
        if let Some(branch) = &definition.branch {
            let branches = daemon.store.branches(workspace.id)?;
            if !branches.iter().any(|existing| existing.name == *branch) {
                let at = crate::verbs::references::target(
                    daemon,
                    workspace,
                    definition.revision.as_ref(),
                    &definition.principal(daemon)?,
                )?;
                daemon.store.create_branch(
                    workspace.id,
                    branch,
                    at,
                    &definition.principal(daemon)?,
                )?;
            }
            return Ok(crate::mounts::View::Branch(branch.clone()));
        }
        mounts::view(daemon, workspace, definition.revision.as_ref())
    }

    /// Ends a container's use; commits and unmounts after the last one.
    pub fn unmount(&mut self, daemon: &Daemon, name: &str, user: &str) -> Result<()> {
        let users = self.users.entry(name.to_owned()).or_default();
        users.remove(user);
        if users.is_empty() {
            self.users.remove(name);
        }
        self.note_users(daemon);
        if self.users.contains_key(name) {
            // Others go on; what this container did is one commit all the same.
            if let Some(mount) = daemon.mounts.of_volume(name) {
                commit(daemon, &mount)?;
            }
            return Ok(());
        }
        let mountpoint = mountpoint(daemon, name);
        if daemon.mounts.of_volume(name).is_none() {
            return Ok(());
        }
        match daemon.mounts.unmount(daemon, &mountpoint, false) {
            Err(error) if error.kind() == ErrorKind::Busy => {
                tracing::warn!(volume = name, "in use beside containers; it is detached");
                daemon.mounts.unmount(daemon, &mountpoint, true)?;
            }
            other => {
                other?;
            }
        }
        if let Err(error) = std::fs::remove_dir(&mountpoint) {
            tracing::debug!(%error, volume = name, "remove the mountpoint");
        }
        Ok(())
    }

    fn note_users(&self, daemon: &Daemon) {
        daemon
            .link
            .note(USERS_NOTE, Some(serde_json::json!(self.users)));
    }
}

fn commit(daemon: &Daemon, mount: &MountInfo) -> Result<()> {
    let Some(branch) = &mount.branch else {
        return Ok(());
    };
    let workspace = daemon.store.workspace(&mount.workspace)?;
    let kind = workspace_store::object::CommitKind::Snapshot;
    daemon.clean_head(
        workspace.id,
        branch,
        commit_request(&mount.principal, kind, ""),
    )?;
    Ok(())
}

/// Where a volume is mounted.
pub(super) fn mountpoint(daemon: &Daemon, name: &str) -> PathBuf {
    daemon.directory.mounts().join(name)
}

/// Makes the directory to mount on. A dead mount on it is no reason to fail: it is repaired.
fn create_mountpoint(path: &std::path::Path) -> Result<()> {
    match std::fs::create_dir_all(path) {
        Err(error)
            if error.raw_os_error() != Some(libc::EEXIST)
                && error.raw_os_error() != Some(libc::ENOTCONN) =>
        {
            Err(Error::io(format!("create {}", path.display()), error))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        pairs.iter().map(own).collect()
    }

    #[test]
    fn a_volume_is_a_workspace_of_its_name_unless_told_otherwise() {
        let plain = Definition::from_options("demo", &options(&[])).unwrap();
        assert_eq!((plain.workspace.as_str(), plain.read_only), ("demo", false));
        let given = options(&[
            ("workspace", "other"),
            ("rev", "HEAD~1"),
            ("as", "bob"),
            ("read-only", "true"),
            ("uid-map", "1000:0:1"),
        ]);
        let definition = Definition::from_options("demo", &given).unwrap();
        assert_eq!(definition.workspace, "other");
        assert_eq!(definition.revision.as_deref(), Some("HEAD~1"));
        assert!(definition.read_only);
        assert_eq!(definition.uid_map.to_store(1000), 0);
    }

    #[test]
    fn unknown_options_and_names_that_are_paths_are_refused() {
        let error = Definition::from_options("v", &options(&[("size", "1g")])).unwrap_err();
        assert!(error.hint().unwrap().contains("read-only"), "{error:?}");
        assert!(Definition::from_options("v", &options(&[("read-only", "maybe")])).is_err());
        for bad in ["", "..", ".x", "a/b", "a b", "a\0b"] {
            assert!(check_name(bad).is_err(), "{bad:?}");
        }
        check_name("my-volume_1.x").unwrap();
    }

    #[test]
    fn definitions_survive_in_the_file_and_a_newer_file_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let store = StoreDirectory::choose(Some(directory.path().to_owned())).unwrap();
        let mut volumes = Volumes::default();
        volumes.load(&store).unwrap();
        let definition = Definition::from_options("v", &options(&[("rev", "x")])).unwrap();
        volumes
            .definitions
            .insert("v".to_owned(), definition.clone());
        volumes.save(&store).unwrap();
        let mut again = Volumes::default();
        again.load(&store).unwrap();
        assert_eq!(*again.definition("v").unwrap(), definition);
        std::fs::write(store.volumes_file(), r#"{"version":9,"volumes":{}}"#).unwrap();
        assert_eq!(
            again.load(&store).unwrap_err().kind(),
            ErrorKind::Incompatible
        );
        std::fs::write(store.volumes_file(), "{").unwrap();
        assert_eq!(again.load(&store).unwrap_err().kind(), ErrorKind::Corrupt);
    }
}
