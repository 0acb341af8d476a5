//! How results look: text, tables, differences, JSON, progress.

pub mod color;
pub mod diff;
pub mod json;
pub mod plan;
pub mod printer;
pub mod progress;
pub mod sanitize;
pub mod table;
pub mod time;
