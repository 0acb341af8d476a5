//! The worker: opens the store, goes on with the mounts of its predecessor, serves requests, and
//! ends cleanly: everything is committed and unmounted.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fuse_mount::fs::COMMIT_STACK_BYTES;
use tokio::signal::unix::{SignalKind, signal};
use workspace_store::object::Timestamp;
use workspace_store::{Store, StoreOptions};

use crate::daemon::Daemon;
use crate::error::{Error, ErrorKind, Result};
use crate::keeper::link::{Inheritance, KeeperLink};
use crate::mounts::Mounts;
use crate::server::{self, Door};
use crate::store_directory::StoreDirectory;
use crate::volume_plugin::{self, VolumePlugin};

/// How often mounts are looked after that others have ended.
const REAP_INTERVAL: Duration = Duration::from_secs(1);

/// How long a predecessor that was just killed may still hold the store.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);

/// How long answers may take after the end was decided.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs the worker to its end; returns the exit code.
///
/// # Errors
/// What keeps it from serving: a store that can't be opened, a socket that can't be made.
pub fn run(directory: &StoreDirectory, keeper_socket: Option<OwnedFd>) -> Result<i32> {
    // SAFETY: ignoring a signal installs no handler code.
    unsafe {
        nix::sys::signal::signal(
            nix::sys::signal::Signal::SIGHUP,
            nix::sys::signal::SigHandler::SigIgn,
        )
    }
    .map_err(|errno| Error::io("ignore SIGHUP", errno.into()))?;
    let (link, inheritance) = match keeper_socket {
        Some(socket) => KeeperLink::connect(socket)
            .map_err(|error| Error::io("take over from the keeper", error))?,
        None => (KeeperLink::none(), Inheritance::default()),
    };
    let link = Arc::new(link);
    let store = open_store(directory.path())?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("computerd")
        // A commit walks the tree recursively, as deep as its directories.
        .thread_stack_size(COMMIT_STACK_BYTES)
        .enable_all()
        .build()
        .map_err(|error| Error::io("start the runtime", error))?;
    let program =
        std::env::current_exe().map_err(|error| Error::io("find the program's own file", error))?;
    let (stop, _) = tokio::sync::watch::channel(None);
    let daemon = Arc::new(Daemon {
        directory: directory.clone(),
        store,
        mounts: Mounts::new(&program),
        leases: parking_lot::RwLock::default(),
        link: link.clone(),
        keeper_pid: Some(inheritance.keeper_pid).filter(|pid| *pid != 0),
        restart_count: inheritance.restart_count,
        since: Timestamp::now(),
        volume_plugin: VolumePlugin::default(),
        stop,
        runtime: runtime.handle().clone(),
    });
    // Containers wait for this: before anything else.
    daemon.mounts.resume(&daemon, inheritance.descriptors);
    let outcome = runtime.block_on(serve(&daemon, &inheritance.notes));
    if outcome.is_err() {
        // Nobody could ask this worker for anything; the keeper decides whether to try again.
        return outcome.map(|()| 0);
    }
    runtime.shutdown_timeout(DRAIN_TIMEOUT);
    daemon.store.close()?;
    link.stopping();
    tracing::info!("worker ends");
    Ok(0)
}

/// Opens the store. The kernel may still be ending a killed predecessor, which has the lock.
fn open_store(path: &Path) -> Result<Store> {
    let deadline = std::time::Instant::now() + OPEN_TIMEOUT;
    loop {
        match Store::open(path, StoreOptions::default()) {
            Err(error)
                if error.kind() == ErrorKind::Busy && std::time::Instant::now() < deadline =>
            {
                std::thread::sleep(Duration::from_millis(10));
            }
            outcome => return outcome,
        }
    }
}

async fn serve(
    daemon: &Arc<Daemon>,
    notes: &serde_json::Map<String, serde_json::Value>,
) -> Result<()> {
    let socket = daemon.directory.socket();
    let agents_socket = daemon.directory.agents_socket();
    let doors = [
        (server::listen(&socket, Door::Control)?, Door::Control),
        (server::listen(&agents_socket, Door::Agents)?, Door::Agents),
    ];
    volume_plugin::resume(daemon, notes);
    let mut servers = tokio::task::JoinSet::new();
    for (listener, door) in doors {
        let mut stopped = daemon.stop.subscribe();
        servers.spawn(server::serve(listener, daemon.clone(), door, async move {
            let _ = stopped.wait_for(Option::is_some).await;
        }));
    }
    daemon.link.ready();
    tracing::info!(
        pid = std::process::id(),
        restarts = daemon.restart_count,
        mounts = daemon.mounts.list().len(),
        "serving"
    );
    let background = tokio::spawn(look_after(daemon.clone()));
    wait_for_end(daemon).await?;
    background.abort();
    tracing::info!("ending");
    volume_plugin::end(daemon);
    let _ = std::fs::remove_file(&socket);
    let _ = std::fs::remove_file(&agents_socket);
    daemon.stop.send_if_modified(|stop| {
        let is_first = stop.is_none();
        stop.get_or_insert(true);
        is_first
    });
    let all = async { while servers.join_next().await.is_some() {} };
    if tokio::time::timeout(DRAIN_TIMEOUT, all).await.is_err() {
        tracing::warn!("a request was still being answered");
    }
    end_mounts(daemon).await
}

/// Waits for a signal or a request to end.
async fn wait_for_end(daemon: &Arc<Daemon>) -> Result<()> {
    let failed = |error| Error::io("wait for signals", error);
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut stopped = daemon.stop.subscribe();
    tokio::select! {
        _ = terminate.recv() => tracing::info!("SIGTERM"),
        _ = interrupt.recv() => tracing::info!("SIGINT"),
        _ = stopped.wait_for(Option::is_some) => {}
    }
    Ok(())
}

/// Commits and ends all mounts; a second signal detaches those that are in use at once.
async fn end_mounts(daemon: &Arc<Daemon>) -> Result<()> {
    let failed = |error| Error::io("wait for signals", error);
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let ended = daemon.clone();
    let mut work = tokio::task::spawn_blocking(move || {
        if let Err(error) = ended.mounts.unmount_all(&ended, false) {
            tracing::warn!(?error, "a mount is in use; it is detached");
            if let Err(error) = ended.mounts.unmount_all(&ended, true) {
                tracing::error!(?error, "a mount can't be ended");
            }
        }
    });
    tokio::select! {
        _ = &mut work => {}
        _ = terminate.recv() => tracing::warn!("second SIGTERM: ending at once; journals keep what is uncommitted"),
        _ = interrupt.recv() => tracing::warn!("second SIGINT: ending at once; journals keep what is uncommitted"),
    }
    Ok(())
}

/// Looks after mounts that others end, and after the keeper.
async fn look_after(daemon: Arc<Daemon>) {
    let link = daemon.link.clone();
    std::thread::spawn(move || {
        if link.is_kept() {
            link.wait_for_loss();
            tracing::error!(
                "the keeper is gone: mounts will end with this process; restart the daemon when \
                 they are not in use"
            );
        }
    });
    let mut interval = tokio::time::interval(REAP_INTERVAL);
    loop {
        interval.tick().await;
        let reaped = daemon.clone();
        let _ = tokio::task::spawn_blocking(move || {
            reaped.mounts.reap(&reaped);
            if let Err(error) = reaped.store.flush_denials(false) {
                tracing::warn!(?error, "record repeated denials");
            }
        })
        .await;
    }
}
