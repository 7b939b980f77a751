//! The log level, and how it is changed while the process runs.
//!
//! A level (`off`, `error`, `warn`, `info`, `debug`, `trace`), and after commas levels of single
//! modules: `info,kumiki_proxy=debug`. A module's name is the one that its lines in the log begin
//! with; modules within it have its level, too. Without a level for the rest, that is `info`.

use std::fmt;
use std::io::IsTerminal;
use std::str::FromStr;
use std::sync::Arc;

use admin::{LogLevel, LogLevelError};
use parking_lot::Mutex;
use tracing_subscriber::Registry;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt;

/// The level without the option.
pub(crate) const DEFAULT_LOG_LEVEL: &str = "info";

/// Levels of everything and of single modules.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Levels {
    rest: LevelFilter,
    modules: Vec<(String, LevelFilter)>,
}

impl FromStr for Levels {
    type Err = String;

    fn from_str(text: &str) -> Result<Levels, String> {
        let mut rest = None;
        let mut modules = Vec::new();
        for part in text.split(',').map(str::trim) {
            match part.split_once('=') {
                None if rest.is_some() => {
                    return Err(format!("'{part}' is a second level for everything"));
                }
                None => rest = Some(level(part)?),
                Some((module, of_module)) => {
                    if !is_module(module) {
                        return Err(format!("'{module}' is not the name of a module"));
                    }
                    modules.push((module.to_owned(), level(of_module)?));
                }
            }
        }
        Ok(Levels {
            rest: rest.unwrap_or(LevelFilter::INFO),
            modules,
        })
    }
}

fn level(text: &str) -> Result<LevelFilter, String> {
    match text {
        "off" => Ok(LevelFilter::OFF),
        "error" => Ok(LevelFilter::ERROR),
        "warn" => Ok(LevelFilter::WARN),
        "info" => Ok(LevelFilter::INFO),
        "debug" => Ok(LevelFilter::DEBUG),
        "trace" => Ok(LevelFilter::TRACE),
        _ => Err(format!(
            "'{text}' is none of off, error, warn, info, debug and trace; a module's level is \
             written as MODULE=LEVEL"
        )),
    }
}

fn is_module(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b':';
    !text.is_empty() && text.bytes().all(allowed)
}

impl fmt::Display for Levels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.rest)?;
        for (module, level) in &self.modules {
            write!(f, ",{module}={level}")?;
        }
        Ok(())
    }
}

impl Levels {
    fn filter(&self) -> Targets {
        let modules = self.modules.iter().map(|(module, level)| (module, *level));
        Targets::new().with_default(self.rest).with_targets(modules)
    }
}

/// The process's log.
pub(crate) struct LogControl {
    handle: reload::Handle<Targets, Registry>,
    levels: Mutex<Levels>,
}

/// Starts the log on standard error. Must be called once in a process.
pub(crate) fn init(levels: Levels) -> Arc<LogControl> {
    let (filter, handle) = reload::Layer::new(levels.filter());
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    tracing_subscriber::registry()
        .with(filter)
        .with(lines)
        .init();
    Arc::new(LogControl {
        handle,
        levels: Mutex::new(levels),
    })
}

impl LogLevel for LogControl {
    fn get(&self) -> String {
        self.levels.lock().to_string()
    }

    fn set(&self, text: &str) -> Result<(), LogLevelError> {
        let levels: Levels = text.parse().map_err(LogLevelError::Invalid)?;
        let mut now = self.levels.lock();
        self.handle
            .reload(levels.filter())
            .map_err(|error| LogLevelError::Unchanged(error.to_string()))?;
        // Written at any level, so that the log itself shows why it falls silent.
        eprintln!("kumiki: the log's level is {levels}");
        *now = levels;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_come_back() {
        for text in [
            "off",
            "info",
            "trace",
            "warn,kumiki_proxy::runtime=debug,a=off",
        ] {
            let levels: Levels = text.parse().expect(text);
            assert_eq!(levels.to_string(), text);
        }
        let levels: Levels = "kumiki_proxy=debug".parse().expect("levels");
        assert_eq!(levels.to_string(), "info,kumiki_proxy=debug");
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "",
            "inof",
            "INFO",
            "info,",
            "info,debug",
            "=debug",
            "a b=debug",
            "a=",
            "a=b=c",
            "5",
        ] {
            assert!(text.parse::<Levels>().is_err(), "{text}");
        }
    }
}
