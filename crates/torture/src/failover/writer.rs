//! Clients that count up without an end, with the writes that were acknowledged to them, and clients of other
//! workloads beside them.

use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use testkit::workload::counters::Options;
use testkit::workload::{Client, Counters, Counts, Ended};

use crate::chaos::load::transact;
use crate::chaos::session::{ChaosSession, World};

/// The pause between a write and the next one.
const GAP: Duration = Duration::from_millis(2);

/// An acknowledged write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// The time, in nanoseconds on the clients' clock.
    pub at: u64,
    /// The node, from 0 on.
    pub node: usize,
}

/// Returns the counters of this many clients.
#[must_use]
pub fn counters(count: usize) -> Counters {
    Counters::new(Options {
        counters: count,
        prefix: "counted:".to_owned(),
        reads: 0.0,
    })
}

/// Executes a client's transactions until the load is over, and follows redirects. `acks` gets what was
/// acknowledged. Wrong answers go to the world.
pub fn write<C: Client>(
    world: &World,
    mut client: C,
    mut session: ChaosSession<'_>,
    acks: Option<&Mutex<Vec<Ack>>>,
) -> (C, Counts) {
    let mut counts = Counts::default();
    while !world.is_over() {
        match transact(world, &mut session, &mut client) {
            Ok(ended) => {
                counts.count(&ended);
                if let (Ended::Committed(_), Some(acks)) = (ended, acks) {
                    let (at, node) = (world.now(), session.node());
                    acks.lock().push(Ack { at, node });
                }
            }
            Err(wrong) => world.wrong.lock().push(wrong.to_string()),
        }
        thread::sleep(GAP);
    }
    (client, counts)
}
