//! Reads of a node's callers: each round of a [`Reading`] is sent to the partitions of its keys. For
//! this node's own partition that is a call.

use base::participant::Participant;
use base::{Abort, Epoch};

use super::{Reading, Step};
use crate::coordination::{Coordination, Manner, Part, Stage};
use crate::message::{Answer, Request};
use crate::node::{Node, Purpose};
use crate::wires::Lost;

impl<C> Node<C> {
    /// Sends the questions of the round that has just begun. The parts are those of the round, and their
    /// operations are the places of keys.
    pub(crate) fn ask_round(
        &mut self,
        partition: &mut impl Participant,
        number: u64,
        c: &mut Coordination<C>,
    ) {
        let Manner::Reading(reading) = &c.manner else {
            unreachable!("it reads");
        };
        self.counters.ramp_reads += u64::from(reading.round() == 1);
        let mut parts: Vec<(Part, Vec<_>)> = Vec::new();
        for (place, ask) in reading.asks() {
            let of = c.places[place].expect("each key is of a partition");
            let at = parts.iter().position(|(part, _)| part.of == of);
            let at = at.unwrap_or_else(|| {
                let (ops, replies, finished) = (Vec::new(), None, Epoch::ZERO);
                let part = Part {
                    of,
                    ops,
                    replies,
                    finished,
                };
                parts.push((part, Vec::new()));
                parts.len() - 1
            });
            parts[at].0.ops.push(place);
            parts[at].1.push(ask);
        }
        c.stage = Stage::Reading;
        c.missing = parts.len();
        let mut asked = Vec::with_capacity(parts.len());
        for (at, (part, asks)) in parts.into_iter().enumerate() {
            let purpose = Purpose::Versions {
                coordination: number,
                attempt: c.attempt,
                round: reading.round(),
                part: at,
            };
            self.ask(partition, part.of, Request::Versions { asks }, purpose);
            asked.push(part);
        }
        c.parts = asked;
    }

    /// Handles a partition's answer to a round.
    pub(crate) fn on_versions(
        &mut self,
        partition: &mut impl Participant,
        which: (u64, u32),
        (round, part): (u32, usize),
        answer: Result<Answer, Lost>,
    ) {
        let (number, now) = (which.0, self.now);
        let Some(c) = self.current(which) else {
            return;
        };
        let (Stage::Reading, Manner::Reading(reading)) = (&c.stage, &mut c.manner) else {
            return;
        };
        if reading.round() != round {
            return;
        }
        let founds = match answer {
            Ok(Answer::Versions(founds)) if founds.len() == c.parts[part].ops.len() => founds,
            other => return self.read_again(partition, number, part, other),
        };
        c.parts[part].replies = Some(Vec::new());
        let answers = c.parts[part].ops.iter().copied().zip(founds);
        match reading.answered(round, answers, now) {
            Step::Wait => {}
            Step::Ask => {
                let mut c = self.coordinations.remove(&number).expect("it is current");
                self.ask_round(partition, number, &mut c);
                self.coordinations.insert(number, c);
            }
            Step::Done | Step::GaveUp => self.end_reading(partition, number),
        }
    }

    fn end_reading(&mut self, partition: &mut impl Participant, number: u64) {
        let c = self.coordinations.remove(&number).expect("it is current");
        let Manner::Reading(reading) = c.manner else {
            unreachable!("it reads");
        };
        self.count(&reading);
        let outcome = if reading.is_done() {
            Ok(reading.replies())
        } else {
            let attempts = reading.tally().restarts + 1;
            Err(Abort::Conflict { attempts })
        };
        self.finish(partition, c.caller, outcome);
    }

    fn count(&mut self, reading: &Reading) {
        let tally = reading.tally();
        self.counters.ramp_second_rounds += u64::from(tally.second_asks > 0);
        self.counters.ramp_restarts += u64::from(tally.restarts);
        self.counters.ramp_lost += u64::from(tally.lost);
        if tally.lost > 0 && !std::mem::replace(&mut self.has_warned, true) {
            tracing::warn!(
                "a partition does not have what was written together with what another one has: it \
                 has lost what it had acknowledged, as can happen without durability; what is left \
                 is read. It is said once"
            );
        }
    }
}
