//! Answers to wrong passwords, which leave after a delay.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;

use super::client::{Pending, RedisClient};
use super::local_commands::WRONG_PASSWORD;
use super::outcome::DeferredOutcome;
use crate::runtime::protocol::{DeferredReply, RequestContext};
use crate::runtime::query::ClientId;

/// The refusals of one thread's clients, the earliest first. A client has at most one.
#[derive(Default)]
pub(crate) struct DelayedRefusals(BTreeMap<(Duration, u32), (ClientId, u64)>);

impl DelayedRefusals {
    /// Refuses the client's last command after a delay, in which the client's next commands wait.
    pub(crate) fn add(&mut self, client: &mut RedisClient, context: &mut RequestContext<'_>) {
        let due = context.now + client.login_delay.count();
        let sequence = client.expect(Pending::Waiting);
        client.alone = true;
        self.0
            .insert((due, client.id.number), (client.id, sequence));
        context.await_deferred_reply();
    }

    /// Takes the refusals whose time has come.
    pub(crate) fn collect(
        &mut self,
        now: Duration,
        into: &mut Vec<DeferredReply<DeferredOutcome>>,
    ) {
        while let Some(first) = self.0.first_entry()
            && first.key().0 <= now
        {
            let (client, sequence) = first.remove();
            let outcome = DeferredOutcome::WrongPassword;
            into.push(DeferredReply::awaited(client, sequence, outcome));
        }
    }

    /// Returns the time of the next refusal.
    pub(crate) fn next(&self) -> Option<Duration> {
        self.0.first_key_value().map(|(&(due, _), _)| due)
    }
}

/// Answers a command with a wrong password.
pub(crate) fn refuse(client: &mut RedisClient, sequence: u64, context: &mut RequestContext<'_>) {
    let reply = Bytes::from(format!("-{WRONG_PASSWORD}\r\n"));
    client.settle(context.out, sequence, reply);
}
