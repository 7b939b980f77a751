//! Points of the papers' figures, as their authors have published them.
//!
//! | file | what | licence |
//! |---|---|---|
//! | `published/silo_logging.csv` | paper 2, figures 9 to 11: medians of up to five runs with epochs of 40 ms and buffers of 512 KiB. The authors' data has other buffer sizes, too, which are in no figure and are left out here | CC0 |

const SILO_LOGGING: &str = include_str!("published/silo_logging.csv");

/// A point of paper 2's figures 9 to 11.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SiloLoggingPoint {
    /// The figure; `10-11` is in both.
    pub(crate) figure: &'static str,
    /// The log's device: `no log`, `ssd` or `pmem`.
    pub(crate) device: &'static str,
    /// Worker threads.
    pub(crate) workers: usize,
    /// Log threads, all together.
    pub(crate) loggers: usize,
    /// Log buffers of a worker.
    pub(crate) buffers: usize,
    /// Transactions a second.
    pub(crate) throughput: f64,
    /// The mean durability latency in milliseconds; `None` without a log.
    pub(crate) latency: Option<f64>,
    /// MB/s written to all logs; `None` without a log.
    pub(crate) log_rate: Option<f64>,
}

/// Returns the points of paper 2's figures 9 to 11.
pub(crate) fn silo_logging() -> Vec<SiloLoggingPoint> {
    let rows = SILO_LOGGING.lines().skip(1);
    let points = rows.map(|row| silo_logging_point(row).expect("the file is well formed"));
    points.collect()
}

fn silo_logging_point(row: &'static str) -> Option<SiloLoggingPoint> {
    let fields: Vec<&str> = row.split(',').collect();
    let [
        figure,
        device,
        workers,
        loggers,
        buffers,
        median,
        latency,
        log_rate,
    ] = fields[..]
    else {
        return None;
    };
    let optional = |field: &str| match field {
        "" => Some(None),
        number => number.parse::<f64>().ok().map(Some),
    };
    Some(SiloLoggingPoint {
        figure,
        device,
        workers: workers.parse().ok()?,
        loggers: loggers.parse().ok()?,
        buffers: buffers.parse().ok()?,
        throughput: median.parse::<f64>().ok()? * 1e6,
        latency: optional(latency)?,
        log_rate: optional(log_rate)?.map(|gigabytes| gigabytes * 1e3),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_points_are_those_of_the_papers_text() {
        let points = silo_logging();
        let find = |device, workers, loggers, buffers| {
            let fits = |point: &&SiloLoggingPoint| {
                (point.device, point.workers, point.loggers, point.buffers)
                    == (device, workers, loggers, buffers)
            };
            points.iter().find(fits).expect("it is there")
        };
        // Section 6.1: 9.2 M and 81 ms with 54 workers and 2 loggers.
        let best = find("pmem", 54, 2, 4);
        assert_eq!((best.throughput, best.latency), (9.207e6, Some(81.27)));
        // Section 6.2.1: 37.5 M with 208 workers and 16 loggers.
        let most = find("pmem", 208, 16, 4);
        assert_eq!(most.figure, "10-11");
        assert!((most.throughput / 37.5e6 - 1.0).abs() < 0.01, "{most:?}");
        assert!(
            most.log_rate
                .is_some_and(|rate| (5600.0..5800.0).contains(&rate))
        );
        let none = find("no log", 56, 0, 0);
        assert_eq!(
            (none.figure, none.latency, none.log_rate),
            ("9", None, None)
        );
        assert_eq!(points.len(), 161);
    }
}
