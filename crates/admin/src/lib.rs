//! Metrics and health over HTTP, for monitoring. This crate does not know whose they are.
//!
//! | module | concept |
//! |---|---|
//! | `endpoint` | the HTTP endpoint, which asks a [`Subject`] |
//! | [`exposition`] | Prometheus's text format |
//! | [`about`] | the program's version and build |
//! | [`process`] | the operating system's information about the process |
//!
//! Decision that binds this crate: `docs/decisions/0064-the-admin-endpoint-is-http-by-a-library.md`.

#![forbid(unsafe_code)]

pub mod about;
mod endpoint;
pub mod exposition;
pub mod process;

pub use about::Build;
pub use endpoint::{Admin, LogLevel, LogLevelError, StartError, Starting, Subject, check};
