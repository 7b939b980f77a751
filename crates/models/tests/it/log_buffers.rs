//! The hand-over of log buffers from workers to a logger.

use base::Epoch;
use journal::JournalFailure;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use crate::log::buffer::LogBuffer;
use crate::log::handover::{BufferSizes, Handover};

/// Bytes before a block's payload.
const HEADER: usize = 64;

fn handover(lanes: usize, buffers: usize, payload: usize) -> Arc<Handover> {
    Arc::new(Handover::new(
        lanes,
        BufferSizes {
            buffers,
            buffer_size: HEADER + payload,
            exact_times: false,
        },
    ))
}

fn append(handover: &Handover, lane: usize, epoch: u64, byte: u8) {
    handover
        .append(lane, Epoch(epoch), 0, 1, |bytes| bytes.push(byte))
        .expect("not refused");
}

/// Takes everything, checks that each block is of one epoch, and returns the payload bytes.
fn steal(handover: &Handover, lanes: usize) -> Vec<u8> {
    let mut buffers: Vec<LogBuffer> = Vec::new();
    handover.steal(lanes, &mut buffers);
    let mut taken = Vec::new();
    let blocks = |buffer: &LogBuffer| buffer.blocks.clone();
    for (buffer, block) in buffers
        .iter()
        .flat_map(|b| blocks(b).into_iter().map(move |it| (b, it)))
    {
        let payload = &buffer.bytes[block.start + HEADER..block.end];
        assert!(!payload.is_empty());
        assert!(
            payload
                .iter()
                .all(|&byte| u64::from(byte) / 10 == block.epoch.0)
        );
        taken.extend_from_slice(payload);
    }
    handover.put_back(&mut buffers);
    taken
}

fn model(bound: Option<usize>, run: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = bound;
    builder.check(run);
}

/// Everything that was appended before a steal began is in it or in an earlier one; nothing is
/// taken twice and nothing is left.
#[test]
fn a_steal_takes_all_that_was_there_and_nothing_twice() {
    model(None, || {
        let handover = handover(2, 2, 2);
        let appended = Arc::new(AtomicUsize::new(0));
        let worker = {
            let (handover, appended) = (Arc::clone(&handover), Arc::clone(&appended));
            thread::spawn(move || {
                // The second fills the buffer; the third opens one, of another epoch the fourth.
                for (epoch, byte) in [(1, 11), (1, 12), (1, 13), (2, 21)] {
                    append(&handover, 0, epoch, byte);
                    appended.fetch_add(1, Ordering::Release);
                }
            })
        };
        let mut taken = Vec::new();
        for _ in 0..2 {
            let before = appended.load(Ordering::Acquire);
            taken.extend(steal(&handover, 2));
            assert!(taken.len() >= before, "a steal missed what was there");
        }
        worker.join().unwrap();
        taken.extend(steal(&handover, 2));
        taken.sort_unstable();
        assert_eq!(taken, [11, 12, 13, 21]);
        assert!(!handover.is_dirty(2));
    });
}

/// Two workers and a logger use one queue.
#[test]
fn two_workers_share_the_queue() {
    model(Some(4), || {
        let handover = handover(2, 1, 1);
        let workers: Vec<_> = (0..2)
            .map(|lane| {
                let handover = Arc::clone(&handover);
                thread::spawn(move || append(&handover, lane, 1, 10 + lane as u8))
            })
            .collect();
        let mut taken = steal(&handover, 2);
        for worker in workers {
            worker.join().unwrap();
        }
        taken.extend(steal(&handover, 2));
        taken.sort_unstable();
        assert_eq!(taken, [10, 11]);
    });
}

/// A worker without a free buffer waits, and the logger's return always wakes it. (A lost wake-up
/// would be a deadlock, which loom reports.)
#[test]
fn a_waiting_worker_is_woken() {
    model(None, || {
        let handover = handover(1, 1, 1);
        let worker = {
            let handover = Arc::clone(&handover);
            thread::spawn(move || {
                append(&handover, 0, 1, 11);
                handover.wait_ready(0, || {}).expect("not refused");
                append(&handover, 0, 1, 12);
            })
        };
        let mut taken = Vec::new();
        while taken.len() < 2 {
            taken.extend(steal(&handover, 1));
            thread::yield_now();
        }
        worker.join().unwrap();
        assert_eq!(taken, [11, 12]);
    });
}

/// A failure reaches a worker that waits, and one that appends.
#[test]
fn a_failure_ends_the_wait() {
    model(None, || {
        let handover = handover(1, 1, 1);
        append(&handover, 0, 1, 11);
        let worker = {
            let handover = Arc::clone(&handover);
            thread::spawn(move || {
                let refused = handover.wait_ready(0, || {});
                assert!(refused.is_err());
                let refused = handover.append(0, Epoch(1), 0, 1, |_| panic!("it is refused"));
                assert!(refused.is_err());
            })
        };
        let failed = JournalFailure {
            reason: "broken".into(),
            is_lasting: true,
        };
        handover.refuse(&failed);
        worker.join().unwrap();
        assert_eq!(
            steal(&handover, 1),
            [11],
            "what was appended can still be taken"
        );
    });
}
