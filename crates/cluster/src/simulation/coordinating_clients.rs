//! Clients in the network that coordinate writes of read-atomic keys themselves, and go away between any two
//! of their messages.
//!
//! Such a client has a link to each participant. It notes nothing beyond its life: the client that replaces
//! it has another key.

use std::time::Duration;

use ::simulation::draw;
use base::{Abort, NodeId, PartitionId, Timestamp};
use fabric::{Event as LinkEvent, Link, Messages};
use history::Outcome;

use super::clients::SimulatedClients;
use super::coordinated_write::{ClientWrite, StageRequest};
use super::coverage::Point;
use super::environment::{Environment, Event, Incarnation};
use super::outgoing_messages::MessageText;
use crate::clock::HybridClock;
use crate::codec;
use crate::message::{Answer, Message, Notice};
use crate::ramp::{ReadAtomicWrite, WriteStage, WriteStep};
use crate::requester::LostRequest;

/// Interval at which a client looks at the time while it coordinates.
const LOOK: Duration = Duration::from_millis(5);
/// Requests are sent again after this time.
const REPEAT_AFTER: Duration = Duration::from_millis(20);
const MOST_ATTEMPTS: u32 = 20;

impl SimulatedClients {
    /// Begins the write of a client, which is its current transaction.
    pub(super) fn begin_write(&mut self, env: &mut Environment, at: usize) {
        env.reached.add(Point::ClientWrite, 1);
        self.begin_attempt(env, at, 1, env.now);
        let life = self.clients[at].life();
        env.after(LOOK, Event::Look(at, life));
    }

    fn begin_attempt(&mut self, env: &mut Environment, at: usize, attempts: u32, begun: Duration) {
        let Some((current, remote)) = self.clients[at].current_and_remote() else {
            return;
        };
        let coordinator = &mut remote.coordinator;
        coordinator.sent.clear();
        let ops = current.transaction.ops(&env.keys);
        let algorithm = current.transaction.algorithm;
        let id = coordinator.next_id(env.now);
        current.write = Some(ClientWrite {
            attempt: ReadAtomicWrite::new(&env.topology, id, algorithm, &ops),
            begun,
            attempts,
            attempt_begun: env.now,
            again_at: env.now + REPEAT_AFTER,
        });
        self.send_stage(env, at);
    }

    /// Sends the requests of the present stage that have no answer.
    fn send_stage(&mut self, env: &mut Environment, at: usize) {
        let Some((current, remote)) = self.clients[at].current_and_remote() else {
            return;
        };
        let Some(write) = &mut current.write else {
            return;
        };
        write.again_at = env.now + REPEAT_AFTER;
        let ops = current.transaction.ops(&env.keys);
        let coordinator = &mut remote.coordinator;
        let mut messages = Vec::new();
        for (of, request) in write.attempt.requests(&ops) {
            let to = coordinator.leaders.find(of, NodeId(0));
            let on = coordinator.link_to(&mut remote.endpoint, to);
            coordinator.number += 1;
            let number = coordinator.number;
            let stage = write.attempt.stage();
            let sent = StageRequest { stage, of, to, on };
            coordinator.sent.insert(number, sent);
            let mut bytes = Vec::new();
            codec::encode(&Message::Request { number, request }, &mut bytes);
            messages.push((on, bytes));
        }
        self.send_messages(env, at, &messages);
    }

    /// Sends messages. Returns `false` if the client has gone away in between.
    fn send_messages(
        &mut self,
        env: &mut Environment,
        at: usize,
        messages: &[(Link, Vec<u8>)],
    ) -> bool {
        let faults = env.plan.faults.crash_at_protocol + env.plan.faults.client;
        for (link, bytes) in messages {
            let message = codec::decode(bytes).expect("clients send what nodes can read");
            let dies = !env.have_faults_stopped() && draw::chance(&mut env.random, faults);
            let is_sent = !dies || env.random.bool();
            let text = MessageText(&message);
            let lost = if is_sent { "" } else { "not " };
            env.trace.note(
                env.now,
                format_args!("client {at} {lost}sends on {}: {text}", link.0),
            );
            let Some((_, remote)) = self.clients[at].current_and_remote() else {
                return false;
            };
            if is_sent {
                // If it is not taken, the link goes down.
                let _ = remote.endpoint.send(*link, bytes);
            }
            remote.endpoint.flush();
            if dies {
                env.reached.add(Point::ClientGone, 1);
                self.replace_client(env, at);
                return false;
            }
        }
        true
    }

    fn notify(
        &mut self,
        env: &mut Environment,
        at: usize,
        of: Vec<PartitionId>,
        notice: Notice,
    ) -> bool {
        let Some((_, remote)) = self.clients[at].current_and_remote() else {
            return false;
        };
        let mut bytes = Vec::new();
        codec::encode(&Message::Notice(notice), &mut bytes);
        let mut messages = Vec::new();
        for of in of {
            let to = remote.coordinator.leaders.find(of, NodeId(0));
            let on = remote.coordinator.link_to(&mut remote.endpoint, to);
            messages.push((on, bytes.clone()));
        }
        self.send_messages(env, at, &messages)
    }

    /// Handles an event of a link over which a client coordinates. Returns `false` if it is another link.
    pub(super) fn coordinator_event(
        &mut self,
        env: &mut Environment,
        at: usize,
        link: Link,
        event: &LinkEvent<'_>,
    ) -> bool {
        let Some(remote) = self.clients[at].remote_mut() else {
            return false;
        };
        let coordinator = &mut remote.coordinator;
        let Some(node) = coordinator.node_at(link) else {
            return false;
        };
        match event {
            LinkEvent::Up(_) => drop(coordinator.links.insert(node, (link, true))),
            LinkEvent::Drained => {}
            LinkEvent::Down(why) => {
                let was_up = coordinator.links.remove(&node).is_some_and(|(_, up)| up);
                let on = |_: &u64, request: &mut StageRequest| request.on == link;
                let lost: Vec<_> = coordinator.sent.extract_if(.., on).collect();
                let why = (*why).to_owned();
                for (_, request) in lost {
                    if let Some(remote) = self.clients[at].remote_mut() {
                        remote.coordinator.leaders.doubt(request.of, node);
                    }
                    let lost = LostRequest {
                        sent: was_up,
                        why: why.clone(),
                    };
                    self.write_answered(env, at, &request, Err(lost));
                }
            }
            LinkEvent::Message(bytes) => {
                let Ok(Message::Reply { number, reply }) = codec::decode(bytes) else {
                    env.fail("a client received a malformed message".to_owned());
                    return true;
                };
                if let Some(request) = coordinator.sent.remove(&number) {
                    coordinator.learn(&request, &reply);
                    self.write_answered(env, at, &request, Ok(reply));
                }
            }
        }
        true
    }

    fn write_answered(
        &mut self,
        env: &mut Environment,
        at: usize,
        request: &StageRequest,
        answer: Result<Answer, LostRequest>,
    ) {
        let Some((current, _)) = self.clients[at].current_and_remote() else {
            return;
        };
        let Some(write) = &mut current.write else {
            return;
        };
        let step = write.attempt.answered(request.stage, request.of, answer);
        let (id, attempts, begun) = (write.attempt.id(), write.attempts, write.begun);
        match step {
            WriteStep::Wait => {}
            WriteStep::NextStage => self.send_stage(env, at),
            WriteStep::Unknown(_) => self.end(env, at, Outcome::Unknown, None),
            WriteStep::Done => {
                let of = write.attempt.participants().collect();
                // Otherwise the home has it forgotten.
                let forgets = env.random.u8(..4) > 0;
                if !forgets || self.notify(env, at, of, Notice::Forget { id }) {
                    self.end(env, at, Outcome::Committed, None);
                }
            }
            WriteStep::Failed(abort) => {
                let of = write.attempt.prepared().collect();
                if !self.notify(env, at, of, Notice::Abort { id }) {
                    return;
                }
                self.try_again(env, at, &abort, (attempts, begun));
            }
        }
    }

    /// Begins another attempt after one that has no effect, or ends the transaction.
    fn try_again(
        &mut self,
        env: &mut Environment,
        at: usize,
        abort: &Abort,
        (attempts, begun): (u32, Duration),
    ) {
        env.trace.note(
            env.now,
            format_args!("client {at}, attempt {attempts}: {abort}"),
        );
        let is_over = begun + env.plan.timeouts.transaction <= env.now;
        if is_over || attempts >= MOST_ATTEMPTS {
            env.recorded_history.counts.aborted += 1;
            return self.end(env, at, Outcome::Aborted, None);
        }
        if let Abort::Overtaken { newest } = abort
            && let Some(remote) = self.clients[at].remote_mut()
        {
            let coordinator = &mut remote.coordinator;
            let beyond = Timestamp(newest.0 + 64 * u64::from(attempts));
            coordinator.clock = HybridClock::after(coordinator.clock.last().max(beyond));
            return self.begin_attempt(env, at, attempts + 1, begun);
        }
        if let Some((current, _)) = self.clients[at].current_and_remote()
            && let Some(write) = &mut current.write
        {
            // The attempt is over, so that the next look begins another one.
            write.again_at = env.now + LOOK;
        }
    }

    /// Lets a client that coordinates look at the time.
    pub(super) fn look(&mut self, env: &mut Environment, at: usize, life: Incarnation) {
        if self.clients[at].life() != life {
            return;
        }
        let Some((current, remote)) = self.clients[at].current_and_remote() else {
            return;
        };
        let Some(write) = &current.write else {
            return;
        };
        env.after(LOOK, Event::Look(at, life));
        let timeouts = env.plan.timeouts;
        let (attempts, begun) = (write.attempts, write.begun);
        let is_over = write.attempt_begun + timeouts.transaction <= env.now;
        match write.attempt.stage() {
            WriteStage::Over if write.again_at <= env.now => {
                self.begin_attempt(env, at, attempts + 1, begun);
            }
            WriteStage::Over => {}
            _ if is_over => self.end(env, at, Outcome::Unknown, None),
            WriteStage::Preparing if write.attempt_begun + timeouts.answer <= env.now => {
                let late = std::mem::take(&mut remote.coordinator.sent);
                for request in late.into_values() {
                    let why = "no answer".to_owned();
                    let lost = LostRequest { sent: true, why };
                    self.write_answered(env, at, &request, Err(lost));
                }
            }
            WriteStage::Abandoning | WriteStage::Committing if write.again_at <= env.now => {
                self.send_stage(env, at);
            }
            _ => {}
        }
    }
}
