//! Messages, and confirmations of subscriptions, as RESP.
//!
//! | frame | fields |
//! |---|---|
//! | message | `message`, channel, payload |
//! | message of a shard channel | `smessage`, channel, payload |
//! | message because of a pattern | `pmessage`, pattern, channel, payload |
//! | a subscription begins | `subscribe`, `psubscribe` or `ssubscribe`, the name, the number of subscriptions |
//! | a subscription ends | `unsubscribe`, `punsubscribe` or `sunsubscribe`, the name or null, the number of subscriptions |
//!
//! In RESP2 they are lists, in RESP3 pushes.

use resp::{Protocol, Writer};

use crate::registry::{ChannelMessage, ClientSubscriptions, SubscriptionKind};

/// A message in both versions of the protocol, as far as they were needed.
#[derive(Default)]
pub struct EncodedMessage([Option<Vec<u8>>; 2]);

impl EncodedMessage {
    /// Returns the message as it is sent to subscribers of a channel, or of a pattern that it matches.
    pub fn of(
        &mut self,
        protocol: Protocol,
        pattern: Option<&[u8]>,
        message: &ChannelMessage,
    ) -> &[u8] {
        let place = usize::from(protocol == Protocol::Resp3);
        self.0[place].get_or_insert_with(|| {
            let mut bytes = Vec::with_capacity(message.bytes() + 64);
            let mut writer = Writer::new(&mut bytes, protocol);
            match pattern {
                Some(pattern) => {
                    writer.push(4);
                    writer.bulk(b"pmessage");
                    writer.bulk(pattern);
                }
                None => {
                    writer.push(3);
                    writer.bulk(if message.sharded {
                        b"smessage"
                    } else {
                        b"message"
                    });
                }
            }
            writer.bulk(&message.channel);
            writer.bulk(&message.payload);
            bytes
        })
    }
}

/// A subscription begins or ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SubscriptionChange {
    /// It begins.
    Begins,
    /// It ends.
    Ends,
}

impl SubscriptionChange {
    /// Returns the command of the change, which is the first word of its confirmation, too.
    #[must_use]
    pub fn word(self, kind: SubscriptionKind) -> &'static str {
        match (self, kind) {
            (SubscriptionChange::Begins, SubscriptionKind::Channel) => "subscribe",
            (SubscriptionChange::Begins, SubscriptionKind::Pattern) => "psubscribe",
            (SubscriptionChange::Begins, SubscriptionKind::ShardChannel) => "ssubscribe",
            (SubscriptionChange::Ends, SubscriptionKind::Channel) => "unsubscribe",
            (SubscriptionChange::Ends, SubscriptionKind::Pattern) => "punsubscribe",
            (SubscriptionChange::Ends, SubscriptionKind::ShardChannel) => "sunsubscribe",
        }
    }

    /// Returns the change that a command makes, or that a confirmation is about.
    #[must_use]
    pub fn of_word(word: &[u8]) -> Option<(SubscriptionChange, SubscriptionKind)> {
        let changes = [SubscriptionChange::Begins, SubscriptionChange::Ends];
        let mut all = changes
            .into_iter()
            .flat_map(|change| SubscriptionKind::ALL.map(|kind| (change, kind)));
        all.find(|&(change, kind)| change.word(kind).as_bytes().eq_ignore_ascii_case(word))
    }

    /// Writes the confirmation of the change to `name`, which the client's subscriptions show already.
    /// `None`: the client had no subscription of this kind to end.
    pub fn write(
        self,
        kind: SubscriptionKind,
        name: Option<&[u8]>,
        subscriptions: &ClientSubscriptions,
        writer: &mut Writer<'_>,
    ) {
        writer.push(3);
        writer.bulk(self.word(kind).as_bytes());
        match name {
            Some(name) => writer.bulk(name),
            None => writer.null(),
        }
        writer.int(subscriptions.reported_count(kind) as i64);
    }
}

/// Returns `true` if a client that gets messages in RESP2 may give this command: its replies must
/// differ from messages.
#[must_use]
pub fn may_subscriber_give(command: &str) -> bool {
    matches!(command, "ping" | "quit" | "reset")
        || SubscriptionChange::of_word(command.as_bytes()).is_some()
}

/// Refuses a command of a client that may not give it.
#[cold]
pub fn refuse_subscriber(command: &str, writer: &mut Writer<'_>) {
    writer.error(&format!(
        "ERR Can't execute '{command}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are \
         allowed in this context"
    ));
}

/// Writes the reply to `PING` of a client that gets messages in RESP2.
pub fn write_subscriber_pong(text: Option<&[u8]>, writer: &mut Writer<'_>) {
    writer.array(2);
    writer.bulk(b"pong");
    writer.bulk(text.unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stand_for_changes() {
        for change in [SubscriptionChange::Begins, SubscriptionChange::Ends] {
            for kind in SubscriptionKind::ALL {
                let word = change.word(kind);
                let found = SubscriptionChange::of_word(word.to_ascii_uppercase().as_bytes());
                assert_eq!(found, Some((change, kind)));
                assert!(may_subscriber_give(word));
            }
        }
        assert_eq!(SubscriptionChange::of_word(b"publish"), None);
        assert!(!may_subscriber_give("publish") && may_subscriber_give("reset"));
    }

    #[test]
    fn a_message_is_a_list_or_a_push() {
        let message = ChannelMessage {
            sharded: false,
            channel: (*b"news").into(),
            payload: (*b"x").into(),
        };
        let mut encoded = EncodedMessage::default();
        let list = b"*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$1\r\nx\r\n";
        assert_eq!(encoded.of(Protocol::Resp2, None, &message), list);
        let push = b">4\r\n$8\r\npmessage\r\n$2\r\nn*\r\n$4\r\nnews\r\n$1\r\nx\r\n";
        let mut encoded = EncodedMessage::default();
        assert_eq!(encoded.of(Protocol::Resp3, Some(b"n*"), &message), push);
    }
}
