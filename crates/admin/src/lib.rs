//! Figures and health over HTTP, for monitoring. It does not know whose they are.
//!
//! | module | concept |
//! |---|---|
//! | `endpoint` | the HTTP endpoint, which asks a [`Subject`] |
//! | [`exposition`] | Prometheus's text format |
//! | [`about`] | what this program is |
//! | [`process`] | what the operating system tells of the process |

#![forbid(unsafe_code)]

pub mod about;
mod endpoint;
pub mod exposition;
pub mod process;

pub use endpoint::{Admin, LogLevel, StartError, Starting, Subject, check};
