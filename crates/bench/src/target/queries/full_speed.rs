//! Throughput and latency of clients that query as fast as they get replies.

use tokio::runtime::Runtime;

use super::client_script::ClientScript;
use super::clients::QueryTask;
use super::packet_counts::PacketCounts;
use super::query_run::QueryRun;
use crate::driver::{DrivePlan, LoadSchedule, WindowEdge, client_runtime, drive_tasks};
use crate::error::RunError;
use crate::sample::RunSample;

/// Runs all clients at full speed.
pub(super) fn measure(
    run: &QueryRun<'_>,
    sample: &mut RunSample,
) -> Result<Vec<ClientScript>, RunError> {
    let runtime = client_runtime()?;
    let clients = connect(run, &runtime);
    let clients = clients.map_err(|error| RunError::failed("connecting")(&error))?;
    let scale = run.context.scale;
    let plan = DrivePlan {
        pace: LoadSchedule::Closed,
        warm_up: scale.warm_up,
        time: scale.time,
    };
    let mut used = [[0.0; 3]; 2];
    let at = |moment| used[usize::from(moment == WindowEdge::End)] = run.used();
    let before = PacketCounts::at(run.nodes.addresses());
    let (driven, clients) = drive_tasks(&runtime, clients, plan, run.context.stop, at)?;
    let after = PacketCounts::at(run.nodes.addresses());
    run.add_figures(&driven, used, sample);
    let scripts: Vec<ClientScript> = clients.into_iter().map(QueryTask::into_script).collect();
    let asked: u64 = scripts.iter().map(ClientScript::asked).sum();
    if let (Some(before), Some(after)) = (before, after) {
        let [all, requests] = after.since(before).map(|count| count as f64);
        sample.values.set("packets", all / asked as f64);
        sample.values.set("per-packet", asked as f64 / requests);
    }
    Ok(scripts)
}

fn connect(run: &QueryRun<'_>, runtime: &Runtime) -> Result<Vec<QueryTask>, RunError> {
    let targets = run.targets();
    let client = |number| runtime.block_on(QueryTask::connect(run.script(number), &targets));
    (0..run.job.clients).map(client).collect()
}
