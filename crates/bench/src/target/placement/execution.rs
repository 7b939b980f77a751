//! One query, executed by several threads, each of which has a part of the rows.

use std::sync::Arc;
use std::time::Instant;

use operators::{
    Cancellation, Fragment, FragmentTask, LocalSite, RemoteSite, RowRange, Site, scan,
};

use super::query_answer::QueryAnswer;
use super::query_job::{OperatorPlacement, QueryJob};
use super::testbed::Testbed;
use super::tpch_query::{self, QueryVariant, TpchQuery};
use crate::error::RunError;
use crate::machine;

/// The costs of a query, and its answer.
#[derive(Clone, Debug)]
pub(super) struct Execution {
    pub(super) answer: QueryAnswer,
    /// From the first moment to the last.
    pub(super) seconds: f64,
    /// Processor time of this process.
    pub(super) cpu_here: f64,
    /// Processor time of the node, if that is known.
    pub(super) cpu_there: Option<f64>,
}

/// Runs a query, and measures it.
pub(super) fn measured(job: &QueryJob, testbed: &mut Testbed) -> Result<Execution, RunError> {
    let (site, workers) = site(job, testbed);
    let fragment = Arc::new(tpch_query::fragment(job.query, job.data.variant));
    let cpu = pinned_to(job);
    let used = |testbed: &Testbed| (machine::own_cpu(), testbed.node_cpu());
    let (here, there) = used(testbed);
    let begun = Instant::now();
    let table = testbed.table();
    let parts = scan::split(table, &fragment, workers).map_err(RunError::of)?;
    let tasks = parts.into_iter().map(|rows| FragmentTask {
        table: Arc::clone(table),
        fragment: Arc::clone(&fragment),
        rows,
        wanted: Cancellation::default(),
    });
    let answer = execute(&*site, tasks.collect(), cpu, (job.query, job.data.variant))?;
    let seconds = begun.elapsed().as_secs_f64();
    let (here_then, there_then) = used(testbed);
    Ok(Execution {
        answer,
        seconds,
        cpu_here: here_then - here,
        cpu_there: there_then.zip(there).map(|(then, there)| then - there),
    })
}

/// Runs a query once to fill caches and open connections, if no similar one was run before.
pub(super) fn warm(job: &QueryJob, testbed: &mut Testbed) -> Result<(), RunError> {
    if testbed.is_cold(job) {
        measured(job, testbed)?;
    }
    Ok(())
}

/// The costs of a probe: seconds, processor time here, and there if that is known.
pub(super) type ProbeCosts = (f64, f64, Option<f64>);

/// Runs any fragment over some rows as a job would. Returns its costs; its results are taken and
/// not looked at.
pub(super) fn probe(
    job: &QueryJob,
    testbed: &mut Testbed,
    fragment: &Fragment,
    rows: &[Vec<RowRange>],
) -> Result<ProbeCosts, RunError> {
    let (site, _) = site(job, testbed);
    let fragment = Arc::new(fragment.clone());
    let tasks = rows.iter().map(|rows| FragmentTask {
        table: Arc::clone(testbed.table()),
        fragment: Arc::clone(&fragment),
        rows: rows.clone(),
        wanted: Cancellation::default(),
    });
    let tasks: Vec<FragmentTask> = tasks.collect();
    let (here, there) = (machine::own_cpu(), testbed.node_cpu());
    let begun = Instant::now();
    on_threads(tasks, pinned_to(job), |task| {
        for batch in site.run(&task) {
            batch.map_err(RunError::of)?;
        }
        Ok(())
    })?;
    let seconds = begun.elapsed().as_secs_f64();
    let then = testbed.node_cpu().zip(there);
    let there = then.map(|(then, there)| then - there);
    Ok((seconds, machine::own_cpu() - here, there))
}

/// Returns the site of a job's operators, and the number of threads that take the results.
fn site(job: &QueryJob, testbed: &mut Testbed) -> (Box<dyn Site>, usize) {
    match job.placement {
        OperatorPlacement::RemoteLocal => {
            let connections = (job.connections / job.threads.max(1)).max(1);
            let pages = testbed.remote_pages(job.transport, connections);
            (Box::new(LocalSite::new(pages)), job.threads)
        }
        OperatorPlacement::RemoteRemote => {
            let there = RemoteSite::new(testbed.node(job.transport));
            (Box::new(there), job.connections)
        }
        OperatorPlacement::Local | OperatorPlacement::Auto | OperatorPlacement::AutoAway => {
            let pages = testbed.local(job.io_threads);
            (Box::new(LocalSite::new(pages)), job.threads)
        }
    }
}

/// Returns the processor of this process's threads, if they are pinned.
fn pinned_to(job: &QueryJob) -> Option<usize> {
    let cpus = base::cpus::usable().unwrap_or_default();
    cpus.last().copied().filter(|_| job.pinned)
}

fn execute(
    site: &dyn Site,
    tasks: Vec<FragmentTask>,
    cpu: Option<usize>,
    (query, variant): (TpchQuery, QueryVariant),
) -> Result<QueryAnswer, RunError> {
    let parts = on_threads(tasks, cpu, |task| {
        let mut answer = QueryAnswer::default();
        for batch in site.run(&task) {
            let batch = batch.map_err(RunError::of)?;
            answer.add_batch(query, variant, &batch);
        }
        Ok(answer)
    })?;
    let mut answer = QueryAnswer::default();
    parts.iter().for_each(|part| answer.merge(part));
    Ok(answer)
}

/// Runs `work` for each task on a thread of its own.
fn on_threads<T: Send>(
    tasks: Vec<FragmentTask>,
    cpu: Option<usize>,
    work: impl Fn(FragmentTask) -> Result<T, RunError> + Sync,
) -> Result<Vec<T>, RunError> {
    let work = |task| {
        if let Some(cpu) = cpu {
            let pinned = base::cpus::pin_current_thread(cpu);
            pinned.map_err(|error| format!("cannot be pinned: {error}"))?;
        }
        work(task)
    };
    let work = &work;
    std::thread::scope(|scope| {
        let threads: Vec<_> = tasks
            .into_iter()
            .map(|task| scope.spawn(move || work(task)))
            .collect();
        let panicked = |_| {
            Err(RunError::Failed(
                "a thread that works has panicked".to_owned(),
            ))
        };
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(panicked))
            .collect()
    })
}
