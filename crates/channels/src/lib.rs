//! Publish/subscribe, as clients of RESP know it: subscriptions, and the messages about them; and client-side
//! caching, the news that keys have changed.
//!
//! | module | concept |
//! |---|---|
//! | [`registry`] | which threads have subscribers of a channel, and the subscriptions of one client |
//! | [`frames`] | messages and confirmations as RESP; the commands that a subscriber may give |
//! | [`client_tracking`] | `CLIENT TRACKING`: what a client chooses, and the news as RESP |
//! | [`tracked_keys`] | which clients may keep which keys |
//!
//! This crate does not know how messages come to the threads, nor who publishes them, nor when keys change.

#![forbid(unsafe_code)]

pub mod client_tracking;
pub mod frames;
pub mod registry;
pub mod tracked_keys;

pub use frames::EncodedMessage;
pub use registry::{
    ChannelMessage, ChannelName, ChannelRegistry, ClientSubscriptions, SubscriberTable,
    SubscriptionKind,
};
