//! Many closed-loop clients on one thread: each is a task that has one transaction under way at a
//! time. Clients that wait cost nothing, so that their number is the number of concurrent requests,
//! and not of threads that compete for processors.

use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio::task::{JoinHandle, LocalSet, spawn_local};
use tokio::time::{sleep, timeout};

use super::window::ExtensibleWindow;
use super::{DrivePlan, DriveResult, MeasurementWindow, WindowEdge};
use crate::error::RunError;

/// How long the last transactions may take after the window's end.
const PATIENCE: Duration = Duration::from_secs(30);
/// The interval at which a task checks if the user wants to stop.
const LOOK: Duration = Duration::from_millis(20);

/// One client.
pub trait AsyncClient: 'static {
    /// Runs one transaction until its outcome is known, verifying what it sees.
    ///
    /// # Errors
    /// The text says what went wrong, or which result is impossible.
    fn call(&mut self) -> impl Future<Output = Result<(), RunError>>;
}

/// Runs the clients, each of which begins a transaction as soon as the one before is complete, and
/// returns them. The plan's pace is ignored.
///
/// # Errors
/// Returns the first error of a client, an error for clients that get no answer, or the user's
/// request to stop.
pub fn drive_tasks<C: AsyncClient>(
    runtime: &Runtime,
    callers: Vec<C>,
    plan: DrivePlan,
    stop: &AtomicBool,
    mut at: impl FnMut(WindowEdge),
) -> Result<(DriveResult, Vec<C>), RunError> {
    let over = Rc::new(Cell::new(false));
    let all = async {
        let first = MeasurementWindow::after(plan.warm_up, plan.time, Instant::now());
        let window = Rc::new(ExtensibleWindow::new(first));
        let tasks: Vec<_> = callers
            .into_iter()
            .map(|caller| spawn_local(one(caller, Rc::clone(&window), Rc::clone(&over))))
            .collect();
        let over_or_stopped = || {
            over.set(over.get() || stop.load(Ordering::Relaxed));
            over.get()
        };
        while first.now() < first.begin && !over_or_stopped() {
            let left = Duration::from_nanos(first.begin.saturating_sub(first.now()));
            sleep(left.min(LOOK)).await;
        }
        at(WindowEdge::Begin);
        while let Some(left) = window.until_end().filter(|_| !over_or_stopped()) {
            sleep(left).await;
        }
        at(WindowEdge::End);
        let ended = timeout(PATIENCE, together(tasks, &window)).await;
        ended.unwrap_or_else(|_| {
            let what = format!("clients have had no answer for {PATIENCE:?}");
            Err(RunError::Failed(what))
        })
    };
    let ended = runtime.block_on(LocalSet::new().run_until(all))?;
    if stop.load(Ordering::Relaxed) {
        return Err(RunError::Interrupted);
    }
    Ok(ended)
}

async fn one<C: AsyncClient>(
    mut caller: C,
    window: Rc<ExtensibleWindow>,
    over: Rc<Cell<bool>>,
) -> Result<(DriveResult, C), RunError> {
    let mut driven = DriveResult::default();
    let clock = window.current();
    let mut now = clock.now();
    while window.admits(now) && !over.get() {
        let called = caller.call().await;
        let done = clock.now();
        if let Err(error) = called {
            over.set(true);
            return Err(error);
        }
        if window.current().contains(now) {
            let took = Duration::from_nanos(done - now);
            driven.transactions += 1;
            driven.latency.record(took);
            driven.service.record(took);
        }
        now = done;
    }
    Ok((driven, caller))
}

/// Returns a runtime that runs the tasks of many clients, on the calling thread.
pub(crate) fn client_runtime() -> Result<Runtime, RunError> {
    let built = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    built.map_err(|error| RunError::failed("making a runtime")(&error))
}

type Task<C> = JoinHandle<Result<(DriveResult, C), RunError>>;

async fn together<C>(
    tasks: Vec<Task<C>>,
    window: &ExtensibleWindow,
) -> Result<(DriveResult, Vec<C>), RunError> {
    let mut all = DriveResult::default();
    let mut callers = Vec::new();
    let mut failed = None;
    for task in tasks {
        match task.await {
            Ok(Ok((driven, caller))) => {
                all.merge(&driven);
                callers.push(caller);
            }
            Ok(Err(error)) => failed = failed.or(Some(error)),
            Err(_) => failed = failed.or_else(|| Some("a client panicked".into())),
        }
    }
    all.window = Duration::from_nanos(window.current().length());
    match failed {
        Some(error) => Err(error),
        None => Ok((all, callers)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::LoadSchedule;

    /// A client whose transactions take so long; the `fails`-th one fails.
    struct Slow {
        time: Duration,
        calls: u64,
        fails: u64,
    }

    impl AsyncClient for Slow {
        async fn call(&mut self) -> Result<(), RunError> {
            sleep(self.time).await;
            self.calls += 1;
            match self.calls == self.fails {
                true => Err(RunError::Failed("as asked".to_owned())),
                false => Ok(()),
            }
        }
    }

    fn drive(
        window: Duration,
        count: usize,
        time: Duration,
        fails: u64,
    ) -> Result<(DriveResult, Vec<Slow>), RunError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let plan = DrivePlan {
            pace: LoadSchedule::Closed,
            warm_up: Duration::from_millis(200),
            time: window,
        };
        let slow = || Slow {
            time,
            calls: 0,
            fails,
        };
        let callers = std::iter::repeat_with(slow).take(count).collect();
        let mut moments = Vec::new();
        let at = |moment| moments.push(moment);
        let driven = drive_tasks(&runtime, callers, plan, &AtomicBool::new(false), at);
        assert_eq!(moments, [WindowEdge::Begin, WindowEdge::End]);
        driven
    }

    #[test]
    fn clients_wait_at_once_and_each_for_its_own() {
        let window = Duration::from_millis(200);
        let (driven, callers) = drive(window, 50, Duration::from_millis(10), 0).unwrap();
        // One after the other they would come to as many as one of them, and on a slow machine to fewer. There
        // the window may be longer, too.
        let of_one = driven.window.as_millis() as u64 / 10 + 1;
        assert!(
            (of_one + 1..=50 * of_one).contains(&driven.transactions),
            "{} in {:?}",
            driven.transactions,
            driven.window
        );
        assert_eq!(driven.latency.count(), driven.transactions);
        assert!(driven.latency.quantile_ms(0.0) >= 9.9);
        // The warm-up runs, and does not count.
        let calls: u64 = callers.iter().map(|caller| caller.calls).sum();
        assert!(calls > driven.transactions);
    }

    #[test]
    fn the_first_failure_ends_all() {
        // Without the failure it would take an hour.
        let window = Duration::from_secs(3600);
        let failed = drive(window, 3, Duration::from_millis(1), 2).map(drop);
        assert_eq!(failed, Err(RunError::Failed("as asked".to_owned())));
    }
}
