//! Tiny queries of many clients to a few nodes: by clients that know the nodes, or through a proxy.
//!
//! Nodes are processes of `redis-server`, which know of each other as a Redis Cluster or do not, or of
//! Kumiki where that is not installed; the proxy is a
//! process of its own; clients live in this one. Queries write a key of 5 bytes with a value of 5 bytes;
//! in a mixed load one of ten reads the key that was written last. Each client has keys of its own, and
//! begins a query on a key when the one before on that key is answered, so that it knows every reply to
//! the byte.

mod client_script;
mod clients;
mod full_speed;
mod job;
mod nodes;
mod open_loop;
mod paced_latency;
mod packet_counts;
mod query_run;
mod redis_cluster;

use crate::error::RunError;
use crate::run_context::{RunContext, StorageMedium};
use crate::sample::{Check, RunSample};
use nodes::{ProxyProcess, QueryNodes};
use query_run::QueryRun;

pub use job::{QueriesJob, QueryLoad, QueryMix, QueryNodesKind, QueryRoute};

pub(super) fn run(job: &QueriesJob, context: &RunContext<'_>) -> Result<RunSample, RunError> {
    context.forbid_recording("servers in processes of their own")?;
    let dir = context.directory(StorageMedium::Memory)?;
    let nodes = QueryNodes::start(job, context, dir.path())?;
    let proxy = match job.route {
        QueryRoute::Direct => None,
        _ => Some(ProxyProcess::start(job, context, &nodes, dir.path())?),
    };
    let run = QueryRun {
        job,
        context,
        nodes: &nodes,
        proxy: proxy.as_ref(),
    };
    let mut sample = RunSample {
        note: nodes.note(),
        ..RunSample::default()
    };
    let ended = match job.load {
        QueryLoad::Closed => full_speed::measure(&run, &mut sample),
        QueryLoad::Paced { rate } => paced_latency::measure(&run, rate, &mut sample),
        QueryLoad::Open { rate } => open_loop::measure(&run, rate, &mut sample),
    };
    let (outcome, scripts) = match ended {
        Ok(scripts) => (Ok(()), scripts),
        Err(RunError::Failed(wrong)) => (Err(run.explain(wrong)), Vec::new()),
        Err(other) => return Err(other),
    };
    let check = Check::new("every reply is right", outcome);
    sample.checks.push(check);
    let held = clients::read_back(nodes.addresses(), &scripts);
    let check = Check::new("every key holds its last write", held);
    sample.checks.push(check);
    Ok(sample)
}
