//! Tiny queries of many clients to a few nodes: by clients that know the nodes, or through a proxy.
//!
//! Nodes are processes of `redis-server`, or of Kumiki where that is not installed; the proxy is a
//! process of its own; clients live in this one. Of ten queries nine write a key of 5 bytes with a
//! value of 5 bytes, and one reads the key that was written last. Each client has keys of its own
//! and one query under way, so that it knows every reply to the byte.

mod client_script;
mod clients;
mod full_speed;
mod job;
mod nodes;
mod paced_latency;
mod packet_counts;
mod query_run;

use crate::error::RunError;
use crate::run_context::{RunContext, StorageMedium};
use crate::sample::{Check, RunSample};
use nodes::{ProxyProcess, QueryNodes};
use query_run::QueryRun;

pub use job::{QueriesJob, QueryRoute};

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
    let ended = match job.rate {
        None => full_speed::measure(&run, &mut sample),
        Some(rate) => paced_latency::measure(&run, rate, &mut sample),
    };
    let (outcome, scripts) = match ended {
        Ok(scripts) => (Ok(()), scripts),
        Err(wrong @ RunError::Failed(_)) => (Err(wrong), Vec::new()),
        Err(other) => return Err(other),
    };
    let check = Check::new("every reply is right", outcome);
    sample.checks.push(check);
    let held = clients::read_back(nodes.addresses(), &scripts);
    let check = Check::new("every key holds its last write", held);
    sample.checks.push(check);
    Ok(sample)
}
