//! Transactions in steps.

use std::time::Duration;

use base::Abort;
use cluster::message::Answer;
use kumiki_client::{ClientTxn, Error};

use crate::nodes::{Cluster, Fault, ON_1, ON_2};

fn number(value: Option<Vec<u8>>) -> i64 {
    value.map_or(0, |value| {
        String::from_utf8(value).unwrap().parse().unwrap()
    })
}

fn move_one(txn: &mut ClientTxn<'_>, from: &[u8], to: &[u8]) -> Result<(), Error> {
    let (a, b) = (number(txn.get(from)?), number(txn.get(to)?));
    txn.put(from, (a - 1).to_string().as_bytes())?;
    txn.put(to, (b + 1).to_string().as_bytes())
}

#[test]
fn threads_that_get_in_each_other_s_way_lose_nothing() {
    let cluster = Cluster::new();
    let client = cluster.client();
    std::thread::scope(|scope| {
        for thread in 0..8_usize {
            let client = &client;
            scope.spawn(move || {
                for _ in 0..25 {
                    let moved = client.transact(|txn| move_one(txn, ON_1[0], ON_2[thread % 2]));
                    moved.unwrap();
                }
            });
        }
    });
    let data = cluster.data.lock();
    assert_eq!(data.get(ON_1[0]), Some(&b"-200"[..]));
    assert_eq!(data.get(ON_2[0]), Some(&b"100"[..]));
    assert_eq!(data.get(ON_2[1]), Some(&b"100"[..]));
}

#[test]
fn a_transaction_sees_what_it_wrote_and_what_it_read() {
    let cluster = Cluster::new();
    let client = cluster.client();
    client.put(ON_1[0], b"old").unwrap();
    let seen = client.transact(|txn| {
        let first = txn.get(ON_1[0])?;
        txn.put(ON_1[0], b"new")?;
        let second = txn.get(ON_1[0])?;
        txn.delete(ON_1[0]);
        let all = txn.get_many(&[ON_1[0], ON_2[0], ON_2[0]])?;
        txn.put(ON_2[0], b"there")?;
        Ok((first, second, all))
    });
    let (first, second, all) = seen.unwrap();
    assert_eq!(first.as_deref(), Some(&b"old"[..]));
    assert_eq!(second.as_deref(), Some(&b"new"[..]));
    assert_eq!(all, [None, None, None]);
    let data = cluster.data.lock();
    assert_eq!(
        (data.get(ON_1[0]), data.get(ON_2[0])),
        (None, Some(&b"there"[..]))
    );
}

#[test]
fn a_transaction_whose_reads_do_not_hold_begins_anew() {
    let cluster = Cluster::new();
    let client = cluster.client();
    for writes in [false, true] {
        let mut runs = 0;
        let outcome = client.transact(|txn| {
            runs += 1;
            let first = txn.get(ON_1[0])?;
            if runs < 3 {
                // Another client writes a key that was read.
                cluster
                    .data
                    .lock()
                    .put(ON_1[0], format!("{writes} {runs}").as_bytes());
            }
            let second = txn.get(ON_2[0])?;
            if writes {
                txn.put(ON_2[1], b"written")?;
            }
            Ok((first, second))
        });
        assert_eq!(runs, 3);
        let expected = format!("{writes} 2").into_bytes();
        assert_eq!(outcome.unwrap().0, Some(expected));
    }
    // Values of one moment need no validation.
    let before = cluster.executed(1) + cluster.executed(2);
    client
        .transact(|txn| txn.get_many(&[ON_1[0], ON_2[0]]))
        .unwrap();
    assert_eq!(cluster.executed(1) + cluster.executed(2), before + 1);
}

#[test]
fn a_transaction_that_gives_up_has_no_effect() {
    let cluster = Cluster::new();
    let client = cluster.client();
    client.put(ON_1[0], b"0").unwrap();
    let mut runs = 0;
    let outcome: Result<(), Error> = client.transact(|txn| {
        runs += 1;
        let balance = number(txn.get(ON_1[0])?);
        txn.put(ON_1[0], b"-1")?;
        if runs == 1 {
            cluster.data.lock().put(ON_1[0], b"1");
        }
        txn.get(ON_2[0])?;
        Err(Error::cancelled(format!("{balance} is not enough")))
    });
    let error = outcome.unwrap_err();
    // The closure had given up because of a value that had changed since.
    assert_eq!(
        (runs, error.to_string()),
        (2, "cancelled: 1 is not enough".to_owned())
    );
    assert!(!error.is_retryable() && !error.is_unknown());
    assert_eq!(cluster.data.lock().get(ON_1[0]), Some(&b"1"[..]));
    let long = vec![0; 64 * 1024 + 1];
    let outcome = client.transact(|txn| txn.put(&long, b""));
    assert!(matches!(outcome, Err(Error::Operation { .. })));
}

#[test]
fn an_unknown_outcome_is_not_tried_again() {
    let cluster = Cluster::new();
    let client = cluster.client();
    let unknown = Abort::Unknown {
        what: "a partition is gone".into(),
    };
    for fault in [
        Fault::CloseAfter,
        Fault::CloseBefore,
        Fault::SayAfter(Answer::Aborted(unknown)),
    ] {
        let mut runs = 0;
        let outcome = client.transact(|txn| {
            runs += 1;
            let count = number(txn.get(ON_1[0])?);
            cluster.fault(1, fault.clone());
            txn.put(ON_1[0], (count + 1).to_string().as_bytes())
        });
        let error = outcome.unwrap_err();
        assert!(error.is_unknown() && runs == 1, "{error} after {runs}");
    }
    assert_eq!(cluster.data.lock().get(ON_1[0]), Some(&b"2"[..]));
}

#[test]
fn aborts_that_pass_do_not_run_the_closure_again() {
    let cluster = Cluster::new();
    let client = cluster.client();
    let mut runs = 0;
    let outcome = client.transact(|txn| {
        runs += 1;
        txn.get(ON_1[0])?;
        for abort in [Abort::Refused, Abort::Conflict { attempts: 1 }] {
            cluster.fault(1, Fault::Say(Answer::Aborted(abort)));
        }
        txn.put(ON_1[0], b"v")
    });
    outcome.unwrap();
    assert_eq!(runs, 1);
}

#[test]
fn a_transaction_gives_up_in_time() {
    let cluster = Cluster::new();
    let mut options = Cluster::options();
    options.timeout = Duration::from_millis(300);
    let client = cluster.client_with(options);
    let mut most = 0;
    // A busy machine may not manage many attempts in the time.
    for _ in 0..20 {
        let mut runs = 0;
        let outcome = client.transact(|txn| {
            runs += 1;
            txn.get(ON_1[0])?;
            cluster.data.lock().put(ON_1[0], b"always another");
            txn.put(ON_1[0], b"mine")
        });
        let error = outcome.unwrap_err();
        // The time may be over in the middle of an attempt.
        assert!(
            matches!(error, Error::TimedOut { attempts, .. } if attempts == runs || attempts + 1 == runs),
            "{runs} runs: {error}"
        );
        assert!(error.is_retryable());
        most = runs.max(most);
        if most > 3 {
            break;
        }
    }
    assert!(most > 3, "{most} attempts");
}

#[test]
fn a_stale_token_ends_the_call() {
    let cluster = Cluster::new();
    let client = cluster.client();
    let write = |token: u64, value: &[u8]| {
        client.transact(|txn| {
            txn.guard(b"lock", token);
            txn.put(ON_1[0], value)?;
            txn.put(ON_2[0], value)
        })
    };
    write(5, b"five").unwrap();
    write(5, b"again").unwrap();
    let error = write(4, b"four").unwrap_err();
    assert!(error.is_fenced() && !error.is_retryable() && !error.is_unknown());
    let text = "the lock 'lock' has been granted with a newer token (5 > 4); acquire it again";
    assert_eq!(error.to_string(), text);
    assert_eq!(client.get(ON_2[0]).unwrap().as_deref(), Some(&b"again"[..]));
    // A transaction that only reads has its tokens checked, too; of several tokens of a lock the least
    // counts.
    let read = |tokens: &[u64]| {
        client.transact(|txn| {
            tokens.iter().for_each(|token| txn.guard(b"lock", *token));
            txn.get(ON_1[0])
        })
    };
    assert!(read(&[6, 3]).unwrap_err().is_fenced());
    assert_eq!(read(&[6]).unwrap().as_deref(), Some(&b"again"[..]));
    assert_eq!(cluster.data.lock().tokens[&b"lock"[..]], 6);
    // A transaction that gives up leaves no token.
    let gave_up = client.transact(|txn| {
        txn.guard(b"lock", 9);
        txn.get(ON_1[0])?;
        Err::<(), _>(Error::cancelled("no"))
    });
    assert!(matches!(gave_up, Err(Error::Cancelled(_))), "{gave_up:?}");
    assert_eq!(cluster.data.lock().tokens[&b"lock"[..]], 6);
}
