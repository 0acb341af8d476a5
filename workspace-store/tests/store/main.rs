//! The store through its public functions, on a real database.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod access;
mod attribution;
mod content;
mod fixture;
mod history;
mod migration;
