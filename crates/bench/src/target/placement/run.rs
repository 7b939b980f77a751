//! One query, executed by several threads, each of which has a part of the rows.

use std::sync::Arc;
use std::time::Instant;

use operators::{Cancellation, Fragment, Here, Rows, Site, Task, There, scan};

use super::answer::Answer;
use super::query::{self, Query, Variant};
use super::stage::Stage;
use super::{QueryJob, Way};
use crate::machine;

/// The costs of a query, and its answer.
#[derive(Clone, Debug)]
pub(super) struct Ran {
    pub(super) answer: Answer,
    /// From the first moment to the last.
    pub(super) seconds: f64,
    /// Processor time of this process.
    pub(super) cpu_here: f64,
    /// Processor time of the node, if that is known.
    pub(super) cpu_there: Option<f64>,
}

/// Runs a query, and measures it.
pub(super) fn measured(job: &QueryJob, stage: &mut Stage) -> Result<Ran, String> {
    let (site, workers) = site(job, stage);
    let fragment = Arc::new(query::fragment(job.query, job.data.variant));
    let cpu = pinned_to(job);
    let used = |stage: &Stage| (machine::own_cpu(), stage.node_cpu());
    let (here, there) = used(stage);
    let begun = Instant::now();
    let table = stage.table();
    let parts = scan::split(table, &fragment, workers).map_err(|error| error.to_string())?;
    let tasks = parts.into_iter().map(|rows| Task {
        table: Arc::clone(table),
        fragment: Arc::clone(&fragment),
        rows,
        wanted: Cancellation::default(),
    });
    let answer = execute(&*site, tasks.collect(), cpu, (job.query, job.data.variant))?;
    let seconds = begun.elapsed().as_secs_f64();
    let (here_then, there_then) = used(stage);
    Ok(Ran {
        answer,
        seconds,
        cpu_here: here_then - here,
        cpu_there: there_then.zip(there).map(|(then, there)| then - there),
    })
}

/// Runs a query.
pub(super) fn once(job: &QueryJob, stage: &mut Stage) -> Result<(), String> {
    measured(job, stage).map(drop)
}

/// The costs of a probe: seconds, processor time here, and there if that is known.
pub(super) type Took = (f64, f64, Option<f64>);

/// Runs any fragment over some rows as a job would. Returns its costs; its results are taken and
/// not looked at.
pub(super) fn probe(
    job: &QueryJob,
    stage: &mut Stage,
    fragment: &Fragment,
    rows: &[Vec<Rows>],
) -> Result<Took, String> {
    let (site, _) = site(job, stage);
    let fragment = Arc::new(fragment.clone());
    let tasks = rows.iter().map(|rows| Task {
        table: Arc::clone(stage.table()),
        fragment: Arc::clone(&fragment),
        rows: rows.clone(),
        wanted: Cancellation::default(),
    });
    let tasks: Vec<Task> = tasks.collect();
    let (here, there) = (machine::own_cpu(), stage.node_cpu());
    let begun = Instant::now();
    on_threads(tasks, pinned_to(job), |task| {
        for batch in site.run(&task) {
            batch.map_err(|error| error.to_string())?;
        }
        Ok(())
    })?;
    let seconds = begun.elapsed().as_secs_f64();
    let then = stage.node_cpu().zip(there);
    let there = then.map(|(then, there)| then - there);
    Ok((seconds, machine::own_cpu() - here, there))
}

/// Returns the site of a job's operators, and the number of threads that take the results.
fn site(job: &QueryJob, stage: &mut Stage) -> (Box<dyn Site>, usize) {
    match job.way {
        Way::RemoteLocal => {
            let connections = (job.connections / job.threads.max(1)).max(1);
            let pages = stage.far(job.road, connections);
            (Box::new(Here::new(pages)), job.threads)
        }
        Way::RemoteRemote => {
            let there = There::new(stage.node(job.road));
            (Box::new(there), job.connections)
        }
        Way::Local | Way::Auto | Way::AutoAway => {
            let pages = stage.local(job.io_threads);
            (Box::new(Here::new(pages)), job.threads)
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
    tasks: Vec<Task>,
    cpu: Option<usize>,
    (query, variant): (Query, Variant),
) -> Result<Answer, String> {
    let parts = on_threads(tasks, cpu, |task| {
        let mut answer = Answer::default();
        for batch in site.run(&task) {
            let batch = batch.map_err(|error| error.to_string())?;
            answer.add_batch(query, variant, &batch);
        }
        Ok(answer)
    })?;
    let mut answer = Answer::default();
    parts.iter().for_each(|part| answer.merge(part));
    Ok(answer)
}

/// Runs `work` for each task on a thread of its own.
fn on_threads<T: Send>(
    tasks: Vec<Task>,
    cpu: Option<usize>,
    work: impl Fn(Task) -> Result<T, String> + Sync,
) -> Result<Vec<T>, String> {
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
        let panicked = |_| Err("a thread that works has panicked".to_owned());
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(panicked))
            .collect()
    })
}
