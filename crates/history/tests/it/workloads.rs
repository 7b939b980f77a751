//! The workloads against the reference subject, and against subjects that err.

use kumiki_history::check::{serializable, strictly_serializable};
use kumiki_history::{HistoryOp, Recorder};
use testkit::workload::{
    Counts, Ended, Extent, Plan, Seen, Serial, Step, Subject, Transfers, Workload, mixed, run,
    transfers,
};

#[test]
fn the_mixed_workload_on_a_serial_store_is_accepted() {
    let store = Serial::new();
    let recorder = Recorder::new();
    let options = mixed::Options {
        transactions: 5000,
        ..mixed::Options::default()
    };
    let counts = mixed::run(&options, &recorder, |_| store.clone());
    assert_eq!(counts.committed, 20_000);
    let history = recorder.finish();
    assert_eq!(strictly_serializable(&history).to_string(), "accepted");
    assert_eq!(serializable(&history).to_string(), "accepted");
    let count = |is: fn(&HistoryOp) -> bool| {
        history
            .transactions
            .iter()
            .flat_map(|t| &t.ops)
            .filter(|op| is(op))
            .count()
    };
    assert!(count(|op| matches!(op, HistoryOp::Delete { .. })) > 500);
    assert!(count(|op| matches!(op, HistoryOp::Scan { .. })) > 1000);
    assert!(count(|op| matches!(op, HistoryOp::Read { value: None, .. })) > 500);
}

/// Runs a plan in two halves, so that other clients come in between.
struct Halved(Serial);

impl Subject for Halved {
    fn run(&mut self, plan: &Plan) -> Ended {
        let middle = plan.steps.len() / 2;
        let mut all = Vec::new();
        for steps in [&plan.steps[..middle], &plan.steps[middle..]] {
            let Ended::Committed(seen) = self.0.run(&Plan {
                steps: steps.to_vec(),
            }) else {
                panic!("the serial store always commits")
            };
            all.extend(seen);
            std::thread::yield_now();
        }
        Ended::Committed(all)
    }
}

#[test]
fn a_store_that_is_not_atomic_is_caught() {
    let store = Serial::new();
    let recorder = Recorder::new();
    let options = mixed::Options {
        transactions: 3000,
        ..mixed::Options::default()
    };
    mixed::run(&options, &recorder, |_| Halved(store.clone()));
    let verdict = serializable(&recorder.finish());
    assert!(verdict.anomaly().is_some(), "{verdict}");

    let extent = Extent {
        transactions: 5000,
        ..Extent::default()
    };
    let mut transfers = Transfers::new(transfers::Options::default());
    let mut store = Serial::new();
    store.run(&transfers.setup());
    let lost = run(&mut transfers, &extent, |_| Halved(store.clone())).unwrap_err();
    assert!(lost.to_string().contains("instead of 1000 in 10"), "{lost}");
}

#[test]
fn transfers_on_a_serial_store_keep_the_sum() {
    let mut transfers = Transfers::new(transfers::Options::default());
    let mut store = Serial::new();
    assert_eq!(
        store.run(&transfers.setup()),
        Ended::Committed(vec![Seen::Done; 10])
    );
    let counts = run(&mut transfers, &Extent::default(), |_| store.clone()).unwrap();
    let all = Counts {
        committed: 4000,
        ..Counts::default()
    };
    assert_eq!(counts, all);
}

#[test]
fn an_account_that_is_gone_is_noticed() {
    let options = transfers::Options {
        balance: 0,
        ..transfers::Options::default()
    };
    let transfers = Transfers::new(options.clone());
    let mut store = Serial::new();
    store.run(&transfers.setup());
    store.run(&Plan {
        steps: vec![Step::Delete {
            key: "account:000003".to_owned(),
        }],
    });
    for scan in [false, true] {
        let Ended::Committed(seen) = store.run(&options.audit(scan)) else {
            panic!("the serial store always commits")
        };
        let lost = options.judge(&seen).unwrap_err();
        assert_eq!((lost.accounts, lost.expected_accounts), (9, 10));
        assert!(
            lost.to_string()
                .contains("0 in 9 accounts instead of 0 in 10"),
            "{lost}"
        );
    }
}

#[test]
fn a_seed_draws_the_same_plans() {
    let options = mixed::Options::default();
    let draw = |process| {
        let mut plans = mixed::Plans::new(&options, process);
        (0..100).map(|_| plans.draw()).collect::<Vec<Plan>>()
    };
    assert_eq!(draw(1), draw(1));
    assert_ne!(draw(1), draw(2));
}
