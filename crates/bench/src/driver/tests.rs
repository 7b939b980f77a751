use std::sync::Arc;

use super::*;

/// A client whose transactions take no time, but for one that stalls.
struct Stalling {
    runs: u64,
    stall_at: u64,
    stall: Duration,
}

impl BlockingClient for Stalling {
    fn run(&mut self) -> Result<u64, RunError> {
        self.runs += 1;
        let pause = if self.runs == self.stall_at {
            self.stall
        } else {
            Duration::from_micros(200)
        };
        std::thread::sleep(pause);
        Ok(DONE)
    }

    fn settle(&mut self, _: u64) -> Result<(), RunError> {
        Ok(())
    }
}

fn plan(pace: LoadSchedule, ms: u64) -> DrivePlan {
    DrivePlan {
        pace,
        warm_up: Duration::ZERO,
        time: Duration::from_millis(ms),
    }
}

fn run<C: BlockingClient>(
    clients: Vec<C>,
    plan: DrivePlan,
) -> Result<(DriveResult, Vec<C>), RunError> {
    let stop = AtomicBool::new(false);
    drive(clients, &Completions::default(), plan, &stop, |_| {})
}

/// Returns the number of latencies that are longer than this.
fn longer(latencies: &Latencies, ms: f64) -> u64 {
    let n = latencies.count();
    (1..=n)
        .rev()
        .take_while(|&i| latencies.quantile_ms(i as f64 / n as f64) > ms)
        .count() as u64
}

#[test]
fn a_stall_is_felt_by_all_who_would_have_come_meanwhile() {
    let client = || Stalling {
        runs: 0,
        stall_at: 50,
        stall: Duration::from_millis(100),
    };
    let (open, _) = run(
        vec![client()],
        plan(LoadSchedule::Open { rate: 500.0 }, 400),
    )
    .unwrap();
    let (closed, _) = run(vec![client()], plan(LoadSchedule::Closed, 400)).unwrap();
    // Fifty were due during the stall; the last of them waited little.
    assert!(
        longer(&open.latency, 20.0) >= 35,
        "{}",
        longer(&open.latency, 20.0)
    );
    assert!(longer(&closed.latency, 90.0) >= 1);
    assert!(longer(&closed.latency, 20.0) <= 10);
    assert_eq!(
        open.transactions, 200,
        "all that were due within the window"
    );
    assert_eq!(open.latency.count(), 200);
}

#[test]
fn what_an_open_loop_could_not_begin_is_unserved() {
    let client = Stalling {
        runs: 0,
        stall_at: 1,
        stall: Duration::from_millis(250),
    };
    let (open, _) = run(vec![client], plan(LoadSchedule::Open { rate: 1000.0 }, 100)).unwrap();
    assert_eq!(open.transactions + open.unserved, 100);
    assert!(open.unserved >= 90, "{}", open.unserved);
}

/// A client whose tickets become complete by another thread.
struct Ticketed {
    next: u64,
    completions: Arc<Completions>,
}

impl BlockingClient for Ticketed {
    fn run(&mut self) -> Result<u64, RunError> {
        std::thread::sleep(Duration::from_millis(1));
        self.next += 1;
        Ok(self.next)
    }

    fn settle(&mut self, ticket: u64) -> Result<(), RunError> {
        self.completions.advance(ticket);
        Ok(())
    }
}

#[test]
fn a_latency_ends_when_the_ticket_is_complete_and_not_when_the_client_looks() {
    let completions = Arc::new(Completions::default());
    let client = Ticketed {
        next: 0,
        completions: Arc::clone(&completions),
    };
    let stop = AtomicBool::new(false);
    let plan = plan(LoadSchedule::Saturated, 200);
    let (driven, clients) = drive(vec![client], &completions, plan, &stop, |moment| {
        if moment == WindowEdge::End {
            // Half of the waiting tickets become complete now, the rest when the client settles.
            completions.advance(40);
        }
    })
    .unwrap();
    assert_eq!(driven.latency.count(), driven.transactions);
    assert_eq!(clients[0].next, driven.transactions);
    assert!(
        driven.latency.quantile_ms(1.0) > 150.0,
        "the first waited longest"
    );
    assert!(driven.service.quantile_ms(0.5) < 50.0);
}

#[test]
fn completions_are_found_by_ticket_also_out_of_order() {
    let completions = Completions::default();
    let mut reader = completions.reader();
    let mut latencies = Latencies::default();
    reader.pending(9, 0, 1, &mut latencies);
    reader.pending(4, 0, 1, &mut latencies);
    completions.advance(5);
    std::thread::sleep(Duration::from_millis(20));
    reader.pending(DONE, 0, 1, &mut latencies);
    assert_eq!(latencies.count(), 1, "the first in line is not complete");
    completions.advance(9);
    reader.finish(&mut latencies);
    assert_eq!(latencies.count(), 3);
    let (least, most) = (latencies.quantile_ms(0.5), latencies.quantile_ms(1.0));
    assert!(
        most - least >= 15.0,
        "each has its own end: {least}, {most}"
    );
}

struct Failing(u32);

impl BlockingClient for Failing {
    fn run(&mut self) -> Result<u64, RunError> {
        self.0 -= 1;
        if self.0 == 0 {
            return Err(RunError::Failed("key 7 holds garbage".to_owned()));
        }
        Ok(DONE)
    }

    fn settle(&mut self, _: u64) -> Result<(), RunError> {
        Ok(())
    }
}

#[test]
fn an_error_ends_all_clients_at_once() {
    let begun = std::time::Instant::now();
    let error = run(
        vec![Failing(3), Failing(u32::MAX)],
        plan(LoadSchedule::Saturated, 60_000),
    );
    assert_eq!(
        error.err(),
        Some(RunError::Failed("key 7 holds garbage".to_owned()))
    );
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[test]
fn the_user_can_stop() {
    let stop = AtomicBool::new(true);
    let clients = vec![Failing(u32::MAX)];
    let plan = plan(LoadSchedule::Saturated, 60_000);
    let ended = drive(clients, &Completions::default(), plan, &stop, |_| {});
    assert_eq!(ended.err(), Some(RunError::Interrupted));
}

#[test]
fn a_stall_longer_than_the_window_extends_it() {
    let client = Stalling {
        runs: 0,
        stall_at: 1,
        stall: Duration::from_millis(150),
    };
    let plan = DrivePlan {
        warm_up: Duration::from_millis(30),
        ..plan(LoadSchedule::Closed, 50)
    };
    let (driven, clients) = run(vec![client], plan).unwrap();
    assert!(driven.transactions > 0 && clients[0].runs > driven.transactions);
    assert!(driven.window >= Duration::from_millis(50 + 70));
}
