//! The names of figures, and their units.

/// A kind of figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its name in results.
    pub name: &'static str,
    /// Its title, for a column or an axis.
    pub title: &'static str,
    /// Its unit.
    pub unit: &'static str,
}

const fn metric(name: &'static str, title: &'static str, unit: &'static str) -> Metric {
    Metric { name, title, unit }
}

/// All of them.
pub const METRICS: &[Metric] = &[
    metric("throughput", "throughput", "txn/s"),
    metric("latency", "mean latency", "ms"),
    metric("latency-min", "min", "ms"),
    metric("latency-p10", "p10", "ms"),
    metric("latency-p25", "p25", "ms"),
    metric("latency-p50", "p50", "ms"),
    metric("latency-p75", "p75", "ms"),
    metric("latency-p90", "p90", "ms"),
    metric("latency-p99", "p99", "ms"),
    metric("latency-p999", "p99.9", "ms"),
    metric("latency-max", "max", "ms"),
    metric("service", "to commit", "ms"),
    metric("late", "begun late", "ms"),
    metric("unserved", "unserved", "txn"),
    metric("offered", "offered", "txn/s"),
    metric("cpu", "processor time", "µs/txn"),
    metric("server-cpu", "of the servers", "µs/txn"),
    metric("logger-cpu", "of the loggers", "µs/txn"),
    metric("proxy-cpu", "of the proxy", "µs/txn"),
    metric("per-core", "by core of the proxy", "txn/s"),
    metric("per-packet", "in a packet", "queries"),
    metric("packets", "packets at the nodes", "by txn"),
    metric("round-trip", "bare round trip", "ms"),
    metric("beside-direct", "p50", "of direct"),
    metric("above", "p50 above direct and a round trip", "µs"),
    metric("mean-by-median", "mean", "of p50"),
    metric("release", "mean of releasing", "ms"),
    metric("release-p50", "p50 of releasing", "ms"),
    metric("release-p99", "p99 of releasing", "ms"),
    metric("of-memory", "p50", "of memory"),
    metric("release-of-memory", "p50 of releasing", "of memory"),
    metric("direct-throughput", "direct", "txn/s"),
    metric("direct-latency", "mean, direct", "ms"),
    metric("direct-p50", "p50, direct", "ms"),
    metric("direct-p99", "p99, direct", "ms"),
    metric("direct-server-cpu", "of the servers, direct", "µs/txn"),
    metric("one-round", "in one round", "of reads"),
    metric("ratio", "throughput", "of first"),
    metric("ratio-low", "at least", "of first"),
    metric("ratio-high", "at most", "of first"),
    metric("cpu-ratio", "processor time", "of first"),
    metric("cpu-ratio-low", "at least", "of first"),
    metric("cpu-ratio-high", "at most", "of first"),
    metric("idle", "processor time", "of a core"),
    metric("idle-servers", "of the servers", "of a core"),
    metric("per-partition", "by partition", "txn/s"),
    metric("simulated", "simulated", "txn/s"),
    metric("simulated-cpu", "simulated", "µs/txn"),
    metric("of-real", "simulated", "of real"),
    metric("off", "difference", "of real"),
    metric("simulated-latency", "simulated latency", "ms"),
    metric("latency-of-real", "simulated latency", "of real"),
    metric("messages", "messages", "by txn"),
    metric("bytes", "sent", "bytes/txn"),
    metric("log-rate", "log", "MB/s"),
    metric("sync-rate", "syncs", "1/s"),
    metric("sync-time", "mean sync", "ms"),
    metric("device-syncs", "device", "syncs/s"),
    metric("per-sync", "by device", "txn/sync"),
    metric("entries-per-group", "group", "entries"),
    metric("ceiling", "ceiling", "txn/s"),
    metric("of-ceiling", "throughput", "of ceiling"),
    metric("worker-cpu", "processor time of workers", "µs/txn"),
    metric("leader-cpu", "of the leader's log", "µs/txn"),
    metric("follower-cpu", "of a follower", "µs/txn"),
    metric("link-cpu", "processor time of links", "µs/txn"),
    metric("link-late-p50", "links late, p50", "µs"),
    metric("link-late-p99", "links late, p99", "µs"),
    metric("iops", "reads", "1/s"),
    metric("read-rate", "read", "MB/s"),
    metric("read-cpu", "processor time", "µs/read"),
    metric("reader-cores", "of the reader", "cores"),
    metric("node-cores", "of the storage node", "cores"),
    metric("hit-rate", "spared by the cache", "of reads"),
    metric("replay-time", "replayed in", "s"),
    metric("query-time", "time", "s"),
    metric("scan-rate", "scanned", "MB/s"),
    metric("page-rate", "pages", "1/s"),
    metric("query-cpu-here", "processor time here", "s"),
    metric("query-cpu-there", "of the node", "s"),
    metric("busy-here", "busy here", "cores"),
    metric("busy-there", "of the node", "cores"),
    metric("of-best", "time", "of the best placement"),
    metric("selectivity", "selectivity", "of rows"),
    metric("near-best", "within 10 % of the best", "of the grid"),
    metric("well-chosen", "chosen within 10 %", "of the grid"),
    metric("spread", "slowest placement", "of quickest"),
    metric("spread-most", "at most", "of quickest"),
    metric("rate", "written", "MB/s"),
    metric("in-buffer", "in the worker's buffer", "ms"),
    metric("in-queue", "in the logger's queue", "ms"),
    metric("in-write", "written and synced", "ms"),
    metric("in-notification", "waiting for other logs", "ms"),
];

/// Returns the metric with this name. A name from another program's results is its own title.
#[must_use]
pub fn named(name: &str) -> Option<&'static Metric> {
    METRICS.iter().find(|metric| metric.name == name)
}

/// Returns a figure for people: three significant digits, and thousands as k, M, G.
#[must_use]
pub fn show(value: f64) -> String {
    let magnitude = value.abs();
    let (scaled, suffix) = match magnitude {
        m if m >= 1e9 => (value / 1e9, "G"),
        m if m >= 1e6 => (value / 1e6, "M"),
        m if m >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let digits = match scaled.abs() {
        m if m >= 99.95 || m == 0.0 => 0,
        m if m >= 9.995 => 1,
        m if m >= 0.0995 => 2,
        _ => 3,
    };
    format!("{scaled:.digits$}{suffix}")
}

/// Returns a number as a tick of a scale, as short as possible.
#[must_use]
pub fn tick(value: f64) -> String {
    let text = show(value);
    let (number, suffix) = match text.char_indices().last() {
        Some((at, letter)) if letter.is_alphabetic() => text.split_at(at),
        _ => (text.as_str(), ""),
    };
    let number = match number.split_once('.') {
        Some(_) => number.trim_end_matches('0').trim_end_matches('.'),
        None => number,
    };
    format!("{number}{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits() {
        for (value, text) in [
            (0.0, "0"),
            (0.0123, "0.012"),
            (0.5, "0.50"),
            (3.3, "3.30"),
            (33.0, "33.0"),
            (99.99, "100"),
            (2345.0, "2345"),
            (234_567.0, "235k"),
            (5_600_000_000.0, "5.60G"),
            (-0.17, "-0.17"),
        ] {
            assert_eq!(show(value), text, "{value}");
        }
    }

    #[test]
    fn ticks_are_short() {
        for (value, text) in [
            (0.0, "0"),
            (2.0, "2"),
            (0.5, "0.5"),
            (100.0, "100"),
            (50_000.0, "50k"),
            (2_500_000.0, "2.5M"),
        ] {
            assert_eq!(tick(value), text);
        }
    }

    #[test]
    fn names_are_unique() {
        for (i, metric) in METRICS.iter().enumerate() {
            assert!(METRICS[..i].iter().all(|other| other.name != metric.name));
            assert_eq!(named(metric.name), Some(metric));
        }
    }
}
