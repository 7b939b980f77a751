//! Clients: their requests, and how they judge the answers.

use std::time::Duration;

use super::client_request::{ClientRequest, What};
use super::judge::{Grant, Judge, Violation};
use super::plan::{LONGEST_LEASE_MS, LONGEST_WAIT_MS, REQUEST_TIMEOUT};
use super::reached::CoveragePoint;
use crate::error::LockError;
use crate::lock::{Answer, ChangeEffect, FencingToken, Lock, LockLease, Ticket};
use crate::moment::MonotonicTime;
use ::simulation::Coverage;

/// A request without an answer.
#[derive(Clone, Debug)]
pub(super) struct Open {
    pub(super) ticket: Ticket,
    pub(super) proxy: usize,
    pub(super) key: String,
    pub(super) ask: ClientRequest,
    pub(super) sent: MonotonicTime,
    pub(super) gives_up: MonotonicTime,
    /// The greatest token that was known when the request was sent.
    floor: FencingToken,
}

/// What a client does in the last round: it takes the keys one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    Free,
    Acquires(usize),
    Releases(usize),
    Done,
}

pub(super) struct Client {
    number: usize,
    names: u64,
    owner: String,
    /// Speed of the client's clock.
    rate: f64,
    pub(super) open: Option<Open>,
    pub(super) stage: Stage,
}

impl Client {
    pub(super) fn new(number: usize, rng: &mut fastrand::Rng) -> Client {
        Client {
            number,
            names: 0,
            owner: format!("c{number}"),
            rate: super::proxy::rate(rng),
            open: None,
            stage: Stage::Free,
        }
    }

    /// Takes a new name. The outcome of requests under the old one does not matter any more.
    pub(super) fn rename(&mut self) {
        self.names += 1;
        self.owner = format!("c{}-{}", self.number, self.names);
    }

    /// Returns the end of a lease in the world's time; the client counts it from `sent` on.
    fn until(&self, sent: MonotonicTime, lease: Duration) -> MonotonicTime {
        sent + lease.div_f64(self.rate)
    }

    /// Chooses the next request.
    pub(super) fn choose(
        &self,
        key: &str,
        judge: &Judge,
        rng: &mut fastrand::Rng,
        now: MonotonicTime,
    ) -> ClientRequest {
        let lease = Duration::from_millis(rng.u64(20..=LONGEST_LEASE_MS));
        let wait = match rng.u8(0..2) {
            0 => Duration::ZERO,
            _ => Duration::from_millis(rng.u64(1..=LONGEST_WAIT_MS)),
        };
        let holds = judge.belief(key, &self.owner, now).is_some();
        let what = match (holds, rng.u8(0..10)) {
            (true, 0..3) => What::Renew { lease },
            (true, 3..5) => What::Info,
            (true, 5..8) => What::Release,
            (true, 8) => What::Delete,
            (true, _) => What::Acquire { lease, wait },
            (false, 0) => What::Info,
            (false, 1) => What::Renew { lease },
            (false, 2..4) => What::Insert { lease },
            (false, _) => What::Acquire { lease, wait },
        };
        let owner = self.owner.clone();
        ClientRequest { owner, what }
    }

    /// Returns the next request of the last round, and its key's number.
    pub(super) fn choose_last(&self) -> Option<(usize, ClientRequest)> {
        let (key, what) = match self.stage {
            Stage::Free | Stage::Done => return None,
            Stage::Acquires(key) => {
                let wait = Duration::from_secs(25);
                // Longer than a client thinks, and shorter than several clients' thinking: it begins
                // with the grant, however long the request waited.
                let lease = Duration::from_millis(900);
                (key, What::Acquire { lease, wait })
            }
            Stage::Releases(key) => (key, What::Release),
        };
        let owner = self.owner.clone();
        Some((key, ClientRequest { owner, what }))
    }

    /// Notes that a request is sent.
    pub(super) fn sends(
        &mut self,
        ticket: Ticket,
        proxy: usize,
        key: &str,
        ask: ClientRequest,
        judge: &mut Judge,
        now: MonotonicTime,
    ) {
        let floor = judge.newest(key);
        if matches!(ask.what, What::Release | What::Delete) {
            judge.ended(key, &ask.owner);
        }
        self.open = Some(Open {
            ticket,
            proxy,
            key: key.to_owned(),
            gives_up: now + ask.wait() + REQUEST_TIMEOUT + Duration::from_secs(2),
            ask,
            sent: now,
            floor,
        });
    }

    /// Receives an answer, and judges it.
    pub(super) fn receives(
        &mut self,
        outcome: &Result<Answer, LockError>,
        judge: &mut Judge,
        reached: &mut Coverage<CoveragePoint>,
        now: MonotonicTime,
    ) -> Result<(), Violation> {
        let open = self.open.take().expect("an answer to a request");
        let is_release = matches!(open.ask.what, What::Release | What::Delete);
        if is_release && outcome.is_err() {
            // The request may still be carried out, and must not meet a lock that counts then.
            self.rename();
        }
        match outcome {
            Err(LockError::Uncertain { .. }) => reached.add(CoveragePoint::Uncertain, 1),
            Err(LockError::Unavailable { .. } | LockError::Stopping) => {
                reached.add(CoveragePoint::Unavailable, 1)
            }
            Err(LockError::Settling { .. }) => reached.add(CoveragePoint::Settling, 1),
            Err(error) => return Err(Violation(format!("{open:?} was answered: {error}"))),
            Ok(answer) => self.believes(&open, answer, judge, reached, now)?,
        }
        self.goes_on(&open, outcome)
    }

    fn believes(
        &self,
        open: &Open,
        answer: &Answer,
        judge: &mut Judge,
        reached: &mut Coverage<CoveragePoint>,
        now: MonotonicTime,
    ) -> Result<(), Violation> {
        let owner = &*open.ask.owner;
        let granted = match (open.ask.what, answer) {
            (
                What::Acquire { lease: asked, .. } | What::Renew { lease: asked },
                Answer::Granted { token, lease },
            ) => {
                let LockLease::For(told) = *lease else {
                    return Err(Violation(format!("{open:?} was granted without end")));
                };
                if told < asked {
                    return Err(Violation(format!("{open:?} was granted for {told:?} only")));
                }
                Some((told, *token))
            }
            (
                What::Insert { lease },
                Answer::Changed {
                    effect: ChangeEffect::Set(token),
                    found: None,
                },
            ) => Some((lease, *token)),
            _ => None,
        };
        if let Some((lease, token)) = granted {
            reached.add(CoveragePoint::Granted, 1);
            let until = self.until(open.sent, lease);
            if self.stage != Stage::Free && until <= now {
                // Nothing is slow any more, so a lease must not be over when its answer arrives.
                return Err(Violation(format!(
                    "{open:?} was granted when it was over: {answer:?}"
                )));
            }
            let (key, floor) = (&*open.key, open.floor);
            let grant = Grant {
                key,
                owner,
                token,
                floor,
                until,
            };
            return judge.granted(&grant, now);
        }
        // A client that holds the key during the whole request must get an answer that says so.
        let Some(belief) = judge.belief(&open.key, owner, now) else {
            return Ok(());
        };
        let is_own = |lock: &Lock| *lock.value == *owner.as_bytes() && lock.token == belief.token;
        let is_told = match answer {
            Answer::Info(Some(lock)) => is_own(lock),
            Answer::Changed {
                found: Some(lock), ..
            } => is_own(lock),
            _ => false,
        };
        if is_told || belief.from > open.sent {
            return Ok(());
        }
        Err(Violation(format!(
            "{belief:?} was lost: {open:?} was answered {answer:?}"
        )))
    }

    /// Goes to the next stage of the last round, in which every client must be served.
    fn goes_on(
        &mut self,
        open: &Open,
        outcome: &Result<Answer, LockError>,
    ) -> Result<(), Violation> {
        self.stage = match (self.stage, outcome) {
            (Stage::Free, _) => Stage::Free,
            (Stage::Acquires(key), Ok(Answer::Granted { .. })) => Stage::Releases(key),
            (Stage::Releases(0), Ok(Answer::Released)) => Stage::Done,
            (Stage::Releases(key), Ok(Answer::Released)) => Stage::Acquires(key - 1),
            (_, outcome) => {
                return Err(Violation(format!(
                    "in the last round {open:?} was answered {outcome:?}"
                )));
            }
        };
        Ok(())
    }
}
