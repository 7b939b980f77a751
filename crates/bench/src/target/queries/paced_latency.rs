//! Latencies at a rate: the way that is measured, the direct way, and a bare round trip over
//! loopback, by turns in short slices, so that the drift of a machine's speed affects all three.

use std::net::SocketAddr;

use super::client_script::ClientScript;
use super::clients::ScheduledClients;
use super::query_run::QueryRun;
use crate::driver::{DrivePlan, DriveResult, LoadSchedule, drive_slice};
use crate::error::RunError;
use crate::sample::RunSample;
use crate::systems::EchoConnection;

/// Slices of each kind in one run.
const SLICES: u32 = 8;
/// Bytes of a request and of a reply on the bare connection: as long as a small `SET` and its reply.
const REQUEST: usize = 33;
const REPLY: usize = 5;

pub(super) fn measure(
    run: &QueryRun<'_>,
    rate: f64,
    sample: &mut RunSample,
) -> Result<Vec<ClientScript>, RunError> {
    let failed = |what: &'static str| move |error: RunError| RunError::failed(what)(&error);
    let scale = run.context.scale;
    let plan = DrivePlan {
        pace: LoadSchedule::Open { rate },
        warm_up: scale.warm_up / SLICES,
        time: scale.time / SLICES,
    };
    let clients = run.job.clients;
    let connect = |first: usize, targets: &[SocketAddr]| {
        let scripts = (first..first + clients).map(|number| run.script(number));
        ScheduledClients::connect(scripts, targets).map_err(failed("connecting"))
    };
    let mut bare =
        EchoConnection::new(REQUEST, REPLY).map_err(|error| RunError::failed("echoing")(&error))?;
    let mut own = connect(0, &run.targets())?;
    let mut direct = connect(clients, run.nodes.addresses())?;
    let [mut bare_driven, mut own_driven, mut direct_driven] =
        [(); 3].map(|()| DriveResult::default());
    let mut used = [0.0; 3];
    for _ in 0..SLICES {
        let stop = run.context.stop;
        bare = drive_slice(bare, plan, stop, &mut bare_driven)?;
        direct = drive_slice(direct, plan, stop, &mut direct_driven)?;
        let before = run.used();
        own = drive_slice(own, plan, stop, &mut own_driven)?;
        let after = run.used();
        for ((sum, before), after) in used.iter_mut().zip(before).zip(after) {
            *sum += after - before;
        }
    }
    run.add_figures(&own_driven, [[0.0; 3], used], sample);
    let values = &mut sample.values;
    let p50 = |driven: &DriveResult| driven.latency.quantile_ms(0.5);
    let (ours, theirs, trip) = (p50(&own_driven), p50(&direct_driven), p50(&bare_driven));
    values.set("round-trip", trip);
    values.set("beside-direct", ours / theirs);
    values.set("above", (ours - theirs - trip) * 1e3);
    values.set("mean-by-median", own_driven.latency.mean_ms() / ours);
    let scripts = own.into_scripts().into_iter().chain(direct.into_scripts());
    Ok(scripts.collect())
}
