//! Requests of clients to publish, and the numbers of the receivers.

use bytes::Bytes;

use super::subscription_service::SubscriptionService;
use crate::runtime::query::NodeIndex;

/// A request to publish, whose receivers are to be counted.
#[derive(Clone, Debug)]
pub(crate) struct PublishRequest {
    pub(crate) sharded: bool,
    pub(crate) channel: Bytes,
}

impl PublishRequest {
    /// Returns the client's reply, given the reply of the node where it was published.
    pub(crate) fn reply(
        &self,
        service: &SubscriptionService,
        node: NodeIndex,
        reply: Bytes,
    ) -> Bytes {
        let number = reply.strip_prefix(b":").map(<[u8]>::trim_ascii_end);
        let number = number.and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
        match number {
            Some(at_node) => {
                let channel = (self.sharded, &*self.channel);
                format!(":{}\r\n", service.receivers(node, channel, at_node)).into()
            }
            None => reply,
        }
    }
}
