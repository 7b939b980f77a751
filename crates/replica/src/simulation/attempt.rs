//! Coordinators of transactions over several partitions, as this partition sees them. They prepare
//! an attempt, decide it, and let it be forgotten; each step goes to the current leader.

use std::sync::Arc;
use std::time::Duration;

use base::participant::State;
use base::{Abort, Timestamp, TransactionId};
use history::Outcome as Ending;

use super::actors::{AttemptStage, SimulatedAttempt};
use super::call::{Call, CallOutcome, CallValue, Caller};
use super::job::{PlannedStep, PlannedTransaction, key};
use super::reached::Point;
use super::world::{SimulatedEvent, World};

impl World {
    /// Begins or continues an attempt of a coordinator.
    pub(super) fn coordinate(&mut self, at: usize) {
        if self.coordinators[at].attempt.is_none() {
            if self.run_end.quiet {
                return;
            }
            if !self.run_end.opened {
                return self.after(
                    Duration::from_millis(5),
                    SimulatedEvent::Think(Caller::Coordinator(at)),
                );
            }
            let attempt = self.draw_attempt(at);
            self.coordinators[at].attempt = Some(attempt);
        }
        let one = &mut self.coordinators[at];
        let Some(attempt) = &one.attempt else { return };
        let id = attempt.id;
        let call = match attempt.stage {
            AttemptStage::Prepare => Call::Prepare(id, Arc::clone(&attempt.job)),
            AttemptStage::Ask => Call::State(id),
            AttemptStage::Refuse => Call::Refuse(id),
            AttemptStage::Commit => Call::Commit(id),
            AttemptStage::Abort => Call::Abort(id),
            AttemptStage::Forget => Call::Forget(id),
        };
        one.number += 1;
        let (number, node) = (one.number, one.node);
        self.note(format_args!(
            "coordinator {at} asks node {}: {call:?}",
            node + 1
        ));
        self.send_call(Caller::Coordinator(at), number, node, call);
    }

    fn draw_attempt(&mut self, at: usize) -> SimulatedAttempt {
        let count = self.random.usize(1..=2);
        let picked = self.random.choose_multiple(0..self.plan.keys, count);
        let mut steps = Vec::new();
        for index in picked {
            self.value += 1;
            steps.extend([
                PlannedStep::Get(key(index)),
                PlannedStep::Put(key(index), self.value),
            ]);
        }
        self.value += 1;
        let ms = 1_700_000_000_000 + self.now.as_millis() as u64;
        SimulatedAttempt {
            id: TransactionId {
                timestamp: Timestamp(Timestamp::at_ms(ms).0 + self.value as u64 % 60_000),
                unique: at as u64 + 1,
            },
            job: Arc::new(PlannedTransaction::new(steps)),
            begun: self.now,
            stage: AttemptStage::Prepare,
            doubt: false,
            ops: String::new(),
        }
    }

    /// Takes the outcome of a coordinator's step.
    pub(super) fn coordinator_answered(&mut self, at: usize, number: u64, outcome: CallOutcome) {
        let one = &mut self.coordinators[at];
        if one.number != number {
            return;
        }
        one.number += 1;
        let Some(mut attempt) = one.attempt.take() else {
            return;
        };
        self.note(format_args!("coordinator {at} hears: {outcome:?}"));
        let again = match outcome {
            CallOutcome::Done(value) => self.stage_done(at, &mut attempt, value),
            CallOutcome::Abort(abort) => self.stage_refused(at, &mut attempt, &abort),
            CallOutcome::Lost | CallOutcome::Broken => {
                self.coordinators[at].node = self.another(None);
                attempt.doubt = true;
                if attempt.stage == AttemptStage::Prepare {
                    attempt.stage = AttemptStage::Ask;
                }
                true
            }
        };
        if again {
            self.coordinators[at].attempt = Some(attempt);
        }
        let limit = if again { 20 } else { 200 };
        let pause = self.while_up_to(Duration::from_millis(limit));
        self.after(pause, SimulatedEvent::Think(Caller::Coordinator(at)));
    }

    /// Returns `true` if the attempt goes on.
    fn stage_done(&mut self, at: usize, attempt: &mut SimulatedAttempt, value: CallValue) -> bool {
        let doubt = std::mem::take(&mut attempt.doubt);
        let state = match value {
            CallValue::Replies(replies) => {
                let seen = attempt.job.see(&replies);
                if let Some(odd) = seen.odd {
                    self.book.wrong(odd);
                }
                attempt.ops = seen.ops;
                return self.decide(attempt);
            }
            CallValue::State(state) => state,
            CallValue::Stale(..) | CallValue::Session(_) => {
                unreachable!("no coordinator asks for it")
            }
        };
        match (attempt.stage, state) {
            (AttemptStage::Ask | AttemptStage::Refuse, State::Prepared(_)) => {
                attempt.ops = attempt.job.blind();
                self.reached.hit(Point::FoundPrepared);
                self.decide(attempt)
            }
            (AttemptStage::Ask, State::Unknown) => {
                attempt.stage = AttemptStage::Refuse;
                true
            }
            (AttemptStage::Refuse, State::Unknown | State::Refused) => {
                self.reached.hit(Point::Refused);
                self.book.aborted();
                false
            }
            (AttemptStage::Commit, State::Prepared(_)) => self.committed(at, attempt),
            (AttemptStage::Commit, State::Committed(_)) if doubt => self.committed(at, attempt),
            (AttemptStage::Abort, State::Prepared(_)) => {
                self.book.aborted();
                false
            }
            (AttemptStage::Abort, State::Unknown) if doubt => {
                self.book.aborted();
                false
            }
            (AttemptStage::Forget, _) => false,
            (stage, state) => {
                self.fail(format!("attempt {} is {state:?} at {stage:?}", attempt.id));
                false
            }
        }
    }

    fn decide(&mut self, attempt: &mut SimulatedAttempt) -> bool {
        attempt.stage = if self.random.u8(..4) > 0 {
            AttemptStage::Commit
        } else {
            AttemptStage::Abort
        };
        true
    }

    fn committed(&mut self, at: usize, attempt: &mut SimulatedAttempt) -> bool {
        let process = self.coordinators[at].process;
        self.book.record(
            process,
            (attempt.begun, self.now),
            Ending::Committed,
            &attempt.ops,
        );
        self.book.counts.committed += 1;
        self.reached.hit(Point::CommittedAttempt);
        attempt.stage = AttemptStage::Forget;
        true
    }

    fn stage_refused(&mut self, at: usize, attempt: &mut SimulatedAttempt, abort: &Abort) -> bool {
        match abort {
            Abort::Elsewhere { leader } => {
                self.coordinators[at].node = self.another(*leader);
                true
            }
            Abort::Held { .. } if attempt.stage != AttemptStage::Prepare => true,
            Abort::Held { .. } | Abort::Overtaken { .. } | Abort::Conflict { .. } => {
                self.book.aborted();
                attempt.stage == AttemptStage::Prepare && attempt.doubt
            }
            other => {
                self.fail(format!(
                    "attempt {} was told at {:?}: {other}",
                    attempt.id, attempt.stage
                ));
                false
            }
        }
    }
}
