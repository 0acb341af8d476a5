//! The filesystem's semantics, in its own types; knows no kernel.

pub mod request;
