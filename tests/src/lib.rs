//! Harness of the end-to-end tests: a store of its own for each test, driven through the command
//! line (a long history is written by the store itself), with real mounts, a real daemon and a real container engine.
//!
//! A test that needs something that is not there (mount rights, the engine) fails with the command
//! that brings it; nothing is skipped in silence. Everything a test started ends with it.

mod agent;
mod docker;
mod manifest;
mod odd_tree;
mod power;
mod process;
mod repository;
mod store;

pub use agent::{Agent, demo, request};
pub use docker::{Container, docker, require_docker};
pub use manifest::{Entry, Manifest, assert_same_tree, manifest, without_root_times};
pub use odd_tree::{make_odd_tree, make_small_project};
pub use power::{CuttableDisk, DiskAfterCut, MountedImage};
pub use process::{Run, SetOnDrop, exchange, run, run_ok, shell, shell_ok, wait_until};
pub use repository::{binary, repository_root};
pub use store::{DaemonProcesses, TestMount, TestStore};
