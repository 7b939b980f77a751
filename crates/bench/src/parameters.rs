//! Parameters of points, and the scale of a run.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A parameter's value.
#[derive(Clone, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Param {
    /// A number.
    Number(f64),
    /// A word.
    Text(String),
}

/// Parameters by name.
pub type Params = BTreeMap<String, Param>;

impl From<f64> for Param {
    fn from(number: f64) -> Param {
        Param::Number(number)
    }
}

impl From<usize> for Param {
    fn from(number: usize) -> Param {
        Param::Number(number as f64)
    }
}

impl From<&str> for Param {
    fn from(text: &str) -> Param {
        Param::Text(text.to_owned())
    }
}

impl fmt::Display for Param {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Param::Number(number) => write!(f, "{number}"),
            Param::Text(text) => f.write_str(text),
        }
    }
}

/// Returns parameters from pairs.
pub(crate) fn params<const N: usize>(pairs: [(&str, Param); N]) -> Params {
    pairs.map(|(name, value)| (name.to_owned(), value)).into()
}

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Effort {
    /// Hardly anything: that it runs.
    Tiny,
    /// A minute or less: that the figures make sense.
    Quick,
    /// Figures to keep.
    Full,
}

/// How an experiment was run, besides its [`Scale`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunSettings {
    /// Only points whose id contains this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<String>,
    /// The seed of the random choices.
    pub seed: u64,
    /// The processors that loggers and workers run on, if they were given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<String>,
    /// The number of NUMA nodes that memory was interleaved over, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numa_nodes: Option<usize>,
    /// The directory on the disk.
    pub disk: String,
    /// The directory in memory.
    pub memory: String,
}

/// The scale of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scale {
    /// The size of the sweep.
    pub effort: Effort,
    /// Keys in a store.
    pub records: u64,
    /// How long a run counts.
    pub time: Duration,
    /// How long it runs before that.
    pub warm_up: Duration,
    /// How often each point is measured.
    pub repetitions: usize,
    /// Bytes of each file that a device is measured with.
    pub file_size: u64,
    /// Processors that this process may use.
    pub cores: usize,
    /// Worker threads, where an experiment does not sweep them; `None`: as many as leave a
    /// processor to each logger, and at least one.
    pub workers: Option<usize>,
}

impl Scale {
    /// Returns the scale of an effort, on this machine.
    #[must_use]
    pub fn of(effort: Effort) -> Scale {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let ms = Duration::from_millis;
        let (records, time, warm_up, repetitions, file_size) = match effort {
            Effort::Tiny => (2_000, ms(40), ms(10), 1, 2 << 20),
            Effort::Quick => (100_000, ms(200), ms(80), 3, 32 << 20),
            Effort::Full => (1_000_000, ms(2000), ms(500), 5, 128 << 20),
        };
        Scale {
            effort,
            records,
            time,
            warm_up,
            repetitions,
            file_size,
            cores,
            workers: None,
        }
    }

    /// Returns the number of worker threads beside `loggers` loggers.
    #[must_use]
    pub fn workers(&self, loggers: usize) -> usize {
        self.workers
            .unwrap_or_else(|| self.cores.saturating_sub(loggers).max(loggers).max(1))
    }

    /// Returns the first list for a tiny effort, the second for a quick one, the third for a full
    /// one.
    pub(crate) fn pick<'l, T>(&self, tiny: &'l [T], quick: &'l [T], full: &'l [T]) -> &'l [T] {
        match self.effort {
            Effort::Tiny => tiny,
            Effort::Quick => quick,
            Effort::Full => full,
        }
    }
}
