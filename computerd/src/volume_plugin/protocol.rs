//! Docker's volume plugin protocol: POST requests with JSON bodies, errors as `{"Err": "…"}`.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde::Deserialize;
use serde_json::{Value, json};

use super::volumes::mountpoint;
use crate::daemon::Daemon;
use crate::error::{Error, ErrorKind, Result};

/// What Docker expects of every answer.
const CONTENT_TYPE: &str = "application/vnd.docker.plugins.v1.2+json";

/// Body of every request; each uses some of the fields.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Body {
    name: String,
    #[serde(rename = "ID")]
    id: String,
    opts: Option<BTreeMap<String, String>>,
}

type Verb = fn(&Daemon, &Body) -> Result<Value>;

/// The routes of the protocol.
pub(super) fn router(daemon: Arc<Daemon>) -> Router {
    let verbs: [(&str, Verb); 10] = [
        ("/Plugin.Activate", |_, _| {
            Ok(json!({"Implements": ["VolumeDriver"]}))
        }),
        ("/VolumeDriver.Capabilities", |_, _| {
            Ok(json!({"Capabilities": {"Scope": "local"}}))
        }),
        ("/VolumeDriver.Create", create),
        ("/VolumeDriver.Remove", remove),
        ("/VolumeDriver.Mount", mount),
        ("/VolumeDriver.Unmount", unmount),
        ("/VolumeDriver.Path", path),
        ("/VolumeDriver.Get", get),
        ("/VolumeDriver.List", list),
        ("/Plugin.Deactivate", |_, _| Ok(json!({}))),
    ];
    let mut router = Router::new();
    for (path, verb) in verbs {
        let daemon = daemon.clone();
        let handler = move |bytes: Bytes| async move {
            let work = tokio::task::spawn_blocking(move || answer(&daemon, path, verb, &bytes));
            match work.await {
                Ok(response) => response,
                Err(_) => failure("computerd panicked; see its log".to_owned()),
            }
        };
        router = router.route(path, post(handler));
    }
    router
}

fn answer(daemon: &Daemon, path: &str, verb: Verb, bytes: &[u8]) -> Response {
    let text: &[u8] = if bytes.is_empty() { b"{}" } else { bytes };
    let outcome = serde_json::from_slice::<Body>(text)
        .map_err(|error| {
            Error::new(
                ErrorKind::InvalidInput,
                format!("Docker's request is not understood: {error}"),
            )
        })
        .and_then(|body| {
            tracing::debug!(path, ?body, "docker");
            verb(daemon, &body)
        });
    match outcome {
        Ok(value) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], value.to_string()).into_response(),
        Err(error) => {
            tracing::warn!(path, ?error, "docker");
            failure(match error.hint() {
                Some(hint) => format!("{error} ({hint})"),
                None => error.to_string(),
            })
        }
    }
}

fn failure(message: String) -> Response {
    (
        StatusCode::INTERNAL_SERVER_ERROR,
        [(header::CONTENT_TYPE, CONTENT_TYPE)],
        json!({"Err": message}).to_string(),
    )
        .into_response()
}

fn create(daemon: &Daemon, body: &Body) -> Result<Value> {
    let options = body.opts.clone().unwrap_or_default();
    let mut volumes = daemon.volume_plugin.volumes.lock();
    volumes.create(daemon, &body.name, &options)?;
    Ok(json!({"Err": ""}))
}

fn remove(daemon: &Daemon, body: &Body) -> Result<Value> {
    daemon
        .volume_plugin
        .volumes
        .lock()
        .remove(daemon, &body.name)?;
    Ok(json!({"Err": ""}))
}

fn mount(daemon: &Daemon, body: &Body) -> Result<Value> {
    let mut volumes = daemon.volume_plugin.volumes.lock();
    let mountpoint = volumes.mount(daemon, &body.name, &body.id)?;
    Ok(json!({"Mountpoint": mountpoint, "Err": ""}))
}

fn unmount(daemon: &Daemon, body: &Body) -> Result<Value> {
    let mut volumes = daemon.volume_plugin.volumes.lock();
    volumes.unmount(daemon, &body.name, &body.id)?;
    Ok(json!({"Err": ""}))
}

/// Where a volume is mounted; empty while it is not.
fn current_mountpoint(daemon: &Daemon, name: &str) -> String {
    match daemon.mounts.of_volume(name) {
        Some(_) => mountpoint(daemon, name).to_string_lossy().into_owned(),
        None => String::new(),
    }
}

fn path(daemon: &Daemon, body: &Body) -> Result<Value> {
    daemon.volume_plugin.volumes.lock().definition(&body.name)?;
    Ok(json!({"Mountpoint": current_mountpoint(daemon, &body.name), "Err": ""}))
}

fn get(daemon: &Daemon, body: &Body) -> Result<Value> {
    let definition = daemon
        .volume_plugin
        .volumes
        .lock()
        .definition(&body.name)?
        .clone();
    let mount = daemon.mounts.of_volume(&body.name);
    let commit = match &mount {
        Some(mount) => Some(mount.commit.clone()),
        None => daemon
            .store
            .workspace(&definition.workspace)
            .and_then(|workspace| {
                let view = crate::verbs::mounts::view(
                    daemon,
                    &workspace,
                    definition.branch.as_ref().or(definition.revision.as_ref()),
                )?;
                match view {
                    crate::mounts::View::Branch(branch) => {
                        daemon.store.branch(workspace.id, &branch)
                    }
                    crate::mounts::View::Commit(commit) => Ok(commit),
                }
            })
            .map(|commit| commit.to_hex())
            .ok(),
    };
    Ok(json!({
        "Volume": {
            "Name": body.name,
            "Mountpoint": current_mountpoint(daemon, &body.name),
            "Status": {
                "workspace": definition.workspace,
                "rev": definition.revision,
                "branch": mount.as_ref().and_then(|mount| mount.branch.clone()),
                "commit": commit,
                "mountpoint": mount.as_ref().map(|mount| mount.mountpoint.to_display().into_owned()),
                "read_only": mount.as_ref().map_or(definition.read_only, |mount| mount.read_only),
                "uncommitted": mount.as_ref().map_or(0, |mount| mount.uncommitted_count),
            },
        },
        "Err": "",
    }))
}

fn list(daemon: &Daemon, _: &Body) -> Result<Value> {
    let names = daemon.volume_plugin.volumes.lock().names();
    let volumes: Vec<Value> = names
        .iter()
        .map(|name| json!({"Name": name, "Mountpoint": current_mountpoint(daemon, name)}))
        .collect();
    Ok(json!({"Volumes": volumes, "Err": ""}))
}
