//! The result of one command of a client, at once or later.

use std::sync::Arc;

use bytes::Bytes;
use channels::client_tracking::{ChangedKeys, ClientTracking};

use super::subscription_service::{IncomingMessage, OpenSubscription};
use crate::locks::LockOutcome;
use crate::runtime::protocol::InputProgress;

/// The result of one command.
pub(crate) enum CommandOutcome {
    /// It is answered, or on its way.
    Handled,
    /// It stays in the input, and is read again later.
    PutBack(InputProgress),
    /// It is answered, and later commands are not.
    Close,
    /// It has a wrong password, and is refused after a delay.
    WrongPassword,
}

/// Something for a client that is no reply of a node to one of its queries.
pub(crate) enum DeferredOutcome {
    Lock(LockOutcome),
    WrongPassword,
    /// The nodes have confirmed these subscriptions.
    Subscribed(OpenSubscription),
    /// The subscriptions that the client wants cannot be made; the error is a whole reply.
    NotSubscribed(Bytes),
    /// A message, which the client has not asked for.
    Message(Arc<IncomingMessage>),
    /// The nodes tell of changes of keys, as the client has asked; or not: the error is a whole reply.
    Tracking(Result<Box<ClientTracking>, Bytes>),
    /// Keys have changed that the client may keep, or another client whose news it gets.
    Invalidated {
        keys: ChangedKeys,
        redirected: bool,
    },
}
