//! Which processors loggers and workers run on (paper 2, section 3.1).
//!
//! `0:1,2,3+4:5,6,10` puts logger 0 on processor 0, where it serves workers on processors 1, 2 and
//! 3, and logger 1 on processor 4, where it serves those on 5, 6 and 10.

/// A placement of loggers and workers. Processors are numbered as the operating system does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Affinity {
    /// For each logger where it runs and whom it serves; at least one.
    pub loggers: Vec<LoggerPlace>,
}

/// Where a logger and its workers run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggerPlace {
    /// The logger's processor.
    pub cpu: usize,
    /// Its workers' processors, one worker on each; at least one.
    pub workers: Vec<usize>,
}

impl Affinity {
    /// For each worker, in the order in which they are written: its logger and its processor.
    pub fn workers(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let places = self.loggers.iter().enumerate();
        places.flat_map(|(logger, place)| place.workers.iter().map(move |&cpu| (logger, cpu)))
    }
}
