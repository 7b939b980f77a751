use std::time::Duration;

use super::super::{CollectionStep, Extent, Serial, Step, Subject, run};
use super::*;

/// A subject that does something else than it should, at times.
struct Faulty<F> {
    store: Serial,
    change: F,
    plans: usize,
}

impl<F: FnMut(usize, &Plan) -> Option<Plan>> Subject for Faulty<F> {
    fn run(&mut self, plan: &Plan) -> Ended {
        self.plans += 1;
        match (self.change)(self.plans, plan) {
            // The results stay those of the plan that was asked for.
            Some(other) => {
                let copy = self.store.copied();
                let ended = copy.clone().run(plan);
                self.store.run(&other);
                ended
            }
            None => self.store.run(plan),
        }
    }
}

fn judged<F: FnMut(usize, &Plan) -> Option<Plan>>(
    change: impl Fn() -> F + Sync,
) -> Result<(), TestkitError> {
    let store = Serial::new();
    let mut workload = Collections::default();
    store.clone().run(&workload.setup());
    let extent = Extent {
        processes: 2,
        transactions: 2000,
        at_most: Duration::MAX,
        ..Extent::default()
    };
    run(&mut workload, &extent, |number| Faulty {
        store: store.clone(),
        change: change(),
        plans: usize::from(number == 0) * 1000,
    })
    .map(drop)
}

/// Returns a subject that leaves out the last step of plans for which `applies`.
fn without_last(
    applies: impl Fn(&CollectionStep) -> bool + Copy,
) -> impl FnMut(usize, &Plan) -> Option<Plan> {
    move |number, plan| match plan.steps.last() {
        Some(Step::Collection(step)) if number % 40 == 0 && applies(step) => Some(Plan {
            steps: plan.steps[..plan.steps.len() - 1].to_vec(),
        }),
        _ => None,
    }
}

fn found(applies: impl Fn(&CollectionStep) -> bool + Copy + Sync) -> String {
    let error = judged(|| without_last(applies)).expect_err("something is left out");
    error.to_string()
}

#[test]
fn a_right_store_is_accepted() {
    judged(|| |_, _: &Plan| None).expect("nothing is wrong");
}

#[test]
fn steps_that_are_left_out_are_found() {
    type Applies = fn(&CollectionStep) -> bool;
    let cases: [(Applies, &str); 5] = [
        (|step| step.key().contains("appended"), "append"),
        (|step| step.key().contains("summed"), "sum"),
        (
            |step| matches!(step, CollectionStep::AwaitHead { .. }),
            "queue",
        ),
        (
            |step| matches!(step, CollectionStep::PushTail { key, .. } if key.contains("queue")),
            "queue",
        ),
        (|step| step.key().contains("own"), "own"),
    ];
    for (applies, name) in cases {
        let text = found(applies);
        assert!(text.contains(name), "{name}: {text}");
    }
}
