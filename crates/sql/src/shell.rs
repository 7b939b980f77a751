//! `kumiki sql`: statements from the command line, from files and from a terminal.
//!
//! | module | concept |
//! |---|---|
//! | `script` | a text cut into statements |
//! | `format` | results as tables, CSV and JSON |
//! | `run` | one statement: its result, its time, its end by Ctrl-C |
//! | `progress` | how far a query is |
//! | `command` | commands that begin with a backslash |
//! | `terminal` | interactive input |

pub mod command;
pub mod format;
pub mod progress;
pub mod run;
pub mod script;
pub mod terminal;

pub use format::OutputFormat;
pub use run::{Failed, Shell};
