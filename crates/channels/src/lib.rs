//! Publish/subscribe, as clients of RESP know it: subscriptions, and the messages about them.
//!
//! | module | concept |
//! |---|---|
//! | [`registry`] | which threads have subscribers of a channel, and the subscriptions of one client |
//! | [`frames`] | messages and confirmations as RESP; the commands that a subscriber may give |
//!
//! This crate does not know how messages come to the threads, nor who publishes them.

#![forbid(unsafe_code)]

pub mod frames;
pub mod registry;

pub use frames::EncodedMessage;
pub use registry::{
    ChannelMessage, ChannelName, ChannelRegistry, ClientSubscriptions, SubscriberTable,
    SubscriptionKind,
};
