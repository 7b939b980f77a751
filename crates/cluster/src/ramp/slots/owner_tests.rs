//! Tests of what cannot be seen from outside.

use std::sync::Arc;

use base::transaction::Kind;
use base::versions::Content;
use base::{Timestamp, TransactionId};

use super::*;

#[test]
fn gates_count_the_slots_that_there_are() {
    let options = Options {
        parts: 3,
        page_bytes: 1024,
        gates: 16,
        ..Options::new(1)
    };
    let words = (0..header::WORDS + 12 * 128).map(|_| AtomicU64::new(0));
    let now = Arc::new(AtomicU64::new(0));
    let clock = Arc::clone(&now);
    let clock = Box::new(move || clock.load(Ordering::Relaxed));
    let memory: Box<[AtomicU64]> = words.collect();
    let slots = Slots::new(Box::new(memory), &options, clock).expect("it is large enough");
    let mut random = fastrand::Rng::with_seed(5);
    for number in 0..20_000 {
        let key = [b'k', random.u8(..200)];
        let value = vec![1; random.usize(..1100)];
        let version = Versioned {
            id: TransactionId {
                timestamp: Timestamp(number),
                unique: 1,
            },
            siblings: &[],
            content: Some(Content {
                value: &value,
                kind: Kind::String,
                deadline: None,
            }),
        };
        slots.writing(&key);
        slots.written(&key);
        let ticket = slots.ticket(&key).expect("no writer is active");
        let published = slots.publish(ticket, &key, &version);
        assert_eq!(slots.has(&key), published.is_ok(), "{published:?}");
        now.fetch_add(random.u64(..100_000_000), Ordering::Relaxed);
    }
    let figures = slots.figures();
    let counted: u64 = slots.gates.iter().map(Gate::slots).sum();
    assert_eq!(counted, figures.slots);
    let all = [figures.full, figures.too_large, figures.evicted, counted];
    assert!(all.iter().all(|count| *count > 5), "{figures:?}");
}
