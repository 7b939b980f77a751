//! All experiments. To add one, write it as data beside the others and name it here.

mod io_replay;
mod lock_latency;
mod log_device;
mod proxy;
mod proxy_cassandra;
mod proxy_designs;
mod proxy_latency;
mod proxy_scale;
mod proxy_throughput;
mod query_placement;
mod raft;
mod raft_bulk;
mod raft_etcd;
mod raft_grouping;
mod raft_links;
mod raft_servers;
mod raft_workers;
mod ramp;
mod ramp_idle;
mod ramp_mget;
mod ramp_reads;
mod ramp_scale;
mod ramp_size;
mod ramp_transport;
mod ramp_writes;
mod ramp_ycsb;
mod remote_io;
mod silo;
mod silo_buffers;
mod silo_latency;
mod silo_threads;
mod transfers;
mod ycsb;

use crate::experiment::Experiment;

/// All of them, in the order of the papers.
pub const ALL: &[Experiment] = &[
    ramp_transport::EXPERIMENT,
    ramp_size::EXPERIMENT,
    ramp_reads::EXPERIMENT,
    ramp_ycsb::EXPERIMENT,
    ramp_writes::EXPERIMENT,
    ramp_idle::EXPERIMENT,
    ramp_mget::EXPERIMENT,
    ramp_scale::EXPERIMENT,
    log_device::EXPERIMENT,
    silo_threads::EXPERIMENT,
    silo_buffers::EXPERIMENT,
    silo_latency::EXPERIMENT,
    proxy_throughput::EXPERIMENT,
    proxy_latency::EXPERIMENT,
    proxy_scale::EXPERIMENT,
    proxy_designs::EXPERIMENT,
    proxy_cassandra::EXPERIMENT,
    lock_latency::EXPERIMENT,
    remote_io::EXPERIMENT,
    io_replay::EXPERIMENT,
    query_placement::EXPERIMENT,
    raft_grouping::EXPERIMENT,
    raft_servers::EXPERIMENT,
    raft_bulk::EXPERIMENT,
    raft_links::EXPERIMENT,
    raft_workers::EXPERIMENT,
    raft_etcd::EXPERIMENT,
    ycsb::EXPERIMENT,
    transfers::EXPERIMENT,
];

/// Returns the experiment with this name.
#[must_use]
pub fn named(name: &str) -> Option<&'static Experiment> {
    ALL.iter().find(|experiment| experiment.name == name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::metric;
    use crate::parameters::{Effort, Scale};
    use crate::plot::{Measure, PlotKind};

    const EFFORTS: [Effort; 3] = [Effort::Tiny, Effort::Quick, Effort::Full];

    #[test]
    fn names_and_ids_are_unique_and_baselines_are_there() {
        let names: BTreeSet<&str> = ALL.iter().map(|one| one.name).collect();
        assert_eq!(names.len(), ALL.len());
        for (experiment, effort) in ALL.iter().flat_map(|one| EFFORTS.map(|e| (one, e))) {
            let points = (experiment.points)(&Scale::of(effort));
            let ids: BTreeSet<&str> = points.iter().map(|point| point.id.as_str()).collect();
            assert_eq!(ids.len(), points.len(), "{} {effort:?}", experiment.name);
            for point in &points {
                let Some(baseline) = &point.baseline else {
                    continue;
                };
                let baseline = points.iter().find(|other| other.id == *baseline);
                let baseline = baseline.expect("the baseline is a point");
                assert_eq!(baseline.baseline, None, "{}", point.id);
            }
        }
    }

    #[test]
    fn plots_columns_and_comparisons_name_what_there_is() {
        for experiment in ALL {
            let points = (experiment.points)(&Scale::of(Effort::Full));
            let param = |name: &str| points.iter().any(|point| point.params.contains_key(name));
            let known = |name: &str| {
                assert!(
                    param(name) || metric::named(name).is_some(),
                    "{} has no {name}",
                    experiment.name
                );
            };
            experiment.columns.iter().for_each(|name| known(name));
            for plot in (experiment.plots)() {
                plot.only.iter().for_each(|(name, _)| known(name));
                match plot.shape {
                    PlotKind::Lines { x, y, series, .. } => {
                        [x, y].into_iter().for_each(known);
                        series.iter().for_each(|name| known(name));
                    }
                    PlotKind::Bars { x, y, series, .. } => {
                        [x, y, series].into_iter().for_each(known)
                    }
                    PlotKind::Timeline => {}
                    PlotKind::Course { series, .. } => series.iter().for_each(|n| known(n)),
                    PlotKind::Quantiles { quantiles, series } => {
                        let metrics = quantiles.iter().map(|(_, metric)| metric);
                        series.iter().chain(metrics).for_each(|name| known(name));
                    }
                    PlotKind::Stack { x, parts } => x.iter().chain(parts).for_each(|n| known(n)),
                    PlotKind::Scatter {
                        x,
                        y,
                        series,
                        label,
                    } => {
                        [x, y, series].into_iter().for_each(known);
                        label.iter().for_each(|name| known(name));
                    }
                }
            }
            for row in (experiment.compare)() {
                let matches = |at: &[(&str, crate::parameters::Param)]| {
                    let fits = |point: &crate::experiment::SweepPoint| {
                        at.iter().all(|(k, v)| point.params.get(*k) == Some(v))
                    };
                    assert!(points.iter().any(fits), "{}: {at:?}", row.what);
                };
                match &row.ours {
                    Measure::Value { at, .. } | Measure::Share { at, .. } => matches(at),
                    Measure::Ratio { of, to, .. } => [of, to].into_iter().for_each(|p| matches(p)),
                    Measure::Beaten { ours, others } => {
                        [ours, others].into_iter().for_each(|p| matches(p));
                    }
                }
            }
        }
    }
}
