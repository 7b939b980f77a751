//! Slots of keys that are written: renewed when the commit is durable, or when they are asked for.
//!
//! With the planted bug `early-renewal` versions are published before they are durable, and these tests
//! read them.

use std::sync::Arc;

use base::planted::{self, Bug};
use fabric::Peer;
use kumiki_cluster::message::Request;
use kumiki_cluster::ramp::slots::{Address, Slots};
use kumiki_cluster::ramp::{PublishedSlots, RegionAccess, Renewal};

use crate::protocol::bottle::Bottle;
use crate::protocol::put;
use crate::slots::support::{Remote, Shared, get, options, pages};

/// Readers of these tests have the memory.
struct NoAccess;

impl RegionAccess for NoAccess {
    fn open(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }
}

/// Two nodes, the first of which publishes.
struct Publishing {
    bottle: Bottle,
    memory: Shared,
    published: Arc<PublishedSlots>,
    /// A key of each node.
    keys: [String; 2],
    callers: u32,
}

impl Publishing {
    fn new(renewal: Renewal) -> Publishing {
        let mut bottle = Bottle::new(2);
        let memory = Shared::new(pages(8));
        let slots = Slots::new(Box::new(memory.clone()), &options(), Box::new(|| 1_000));
        let slots = slots.expect("the region is large enough");
        let published = PublishedSlots::new(slots, Box::new(NoAccess), renewal);
        bottle.published = Some(Arc::clone(&published));
        bottle.models[0].watcher = Some(Arc::clone(&published));
        bottle.start(0);
        let keys = [0, 1].map(|at| bottle.key(at, "ra:"));
        Publishing {
            bottle,
            memory,
            published,
            keys,
            callers: 0,
        }
    }

    /// Writes both keys by a transaction of the second node.
    fn write(&mut self, value: &str) {
        self.callers += 1;
        let ops = [put(&self.keys[0], value), put(&self.keys[1], value)];
        self.bottle.begin(1, self.callers, &ops);
        self.bottle.pass_all();
    }

    /// Asks the first node for its key, and returns the address of the slot.
    fn locate(&mut self) -> Address {
        let keys = vec![self.keys[0].as_bytes()];
        let request = Request::Locate { keys };
        let answer = self.bottle.answer(0, Peer::Client, request);
        assert!(answer.contains("Located"), "{answer}");
        let address = self.published.slots().address(self.keys[0].as_bytes());
        address.expect("it has a slot")
    }

    /// Returns the value that a reader of the slot believes.
    fn read(&self, address: Address) -> Option<String> {
        let key = self.keys[0].as_bytes();
        let (_, value) = get(&mut Remote::new(&self.memory), key, address).ok()?;
        Some(String::from_utf8(value?).expect("text"))
    }

    fn has_outcome(&self) -> bool {
        self.bottle.outcome(self.callers).is_some()
    }
}

/// Returns the value that is read before it is durable: none, but for the planted bug.
fn early(value: &str) -> Option<String> {
    planted::is(Bug::EarlyRenewal).then(|| value.to_owned())
}

#[test]
fn a_slot_is_renewed_when_the_commit_is_durable_and_not_before() {
    let mut it = Publishing::new(Renewal::OnCommit);
    it.write("1");
    let address = it.locate();
    assert_eq!(it.read(address).as_deref(), Some("1"));
    // The preparation is durable, the commit is not.
    it.callers += 1;
    let ops = [put(&it.keys[0], "2"), put(&it.keys[1], "2")];
    it.bottle.begin(1, it.callers, &ops);
    it.bottle.pass(super::is_decision);
    it.bottle.models[0].synced = false;
    it.bottle.pass_all();
    it.bottle.settle(0);
    assert_eq!(it.read(address), early("2"), "the version may be lost");
    assert!(!it.has_outcome());
    it.bottle.models[0].durable = u64::MAX;
    it.bottle.settle(0);
    assert_eq!(
        it.read(address).as_deref(),
        Some("2"),
        "at the same address"
    );
    it.bottle.pass_all();
    assert!(it.has_outcome());
}

#[test]
fn a_lost_commit_renews_nothing() {
    let mut it = Publishing::new(Renewal::OnCommit);
    it.write("1");
    let address = it.locate();
    it.bottle.models[0].synced = false;
    it.bottle.begin(0, 100, &[put(&it.keys[0], "2")]);
    it.bottle.models[0].broken = true;
    it.bottle.settle(0);
    assert_eq!(it.read(address), early("2"));
}

#[test]
fn a_key_for_which_readers_do_not_ask_is_renewed_for_a_while() {
    let mut it = Publishing::new(Renewal::OnCommit);
    it.write("0");
    let address = it.locate();
    let renewed = (1..=100).take_while(|number| {
        let value = number.to_string();
        it.write(&value);
        it.read(address) == Some(value)
    });
    assert_eq!(renewed.count(), 16);
    assert_eq!(it.locate(), address);
    it.write("again");
    assert_eq!(it.read(address).as_deref(), Some("again"));
}

#[test]
fn on_request_a_slot_is_renewed_when_it_is_asked_for() {
    let mut it = Publishing::new(Renewal::OnRequest);
    it.write("1");
    let address = it.locate();
    it.write("2");
    assert_eq!(it.read(address), None);
    assert_eq!(it.locate(), address);
    assert_eq!(it.read(address).as_deref(), Some("2"));
}
