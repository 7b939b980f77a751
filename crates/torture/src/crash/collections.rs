//! Clients of the workload on collections, beside the load that the ledger judges.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use testkit::workload::collections::CollectionClient;
use testkit::workload::{self, Collections, Counts, Ended, Workload};
use xtask::interrupt;

use crate::chaos::convergence;
use crate::chaos::load::transact;
use crate::chaos::session::{ChaosSession, World};
use crate::crash::node_load::PATIENCE;
use crate::crash::verdict::CrashVerdict;

/// How long to wait before collections are read again.
const LOOK: Duration = Duration::from_millis(20);

/// What a client has done in a round.
#[derive(Debug)]
pub struct DrivenClient {
    client: CollectionClient,
    counts: Counts,
    complaint: Option<String>,
}

/// Executes the setup of a workload at new servers.
///
/// # Errors
/// Returns an error if they do not serve, or the user asked to stop.
pub fn set_up(collections: &Collections, addresses: Vec<SocketAddr>) -> Result<()> {
    convergence::set_up(&World::new(addresses), PATIENCE, &collections.setup())
}

/// Drives a client until the load is over, or its server has given a wrong answer. `may_fail` returns `true` if the
/// connection may have ended by now; `commit` is called after each transaction that took effect.
pub fn drive(
    world: &World,
    mut client: CollectionClient,
    rng: fastrand::Rng,
    may_fail: impl Fn() -> bool,
    commit: impl Fn(),
) -> DrivenClient {
    let mut session = ChaosSession::new(world, PATIENCE, rng);
    let (mut counts, mut complaint) = (Counts::default(), None);
    while complaint.is_none() && !world.is_over() {
        let ended = match transact(world, &mut session, &mut client) {
            Ok(ended) => ended,
            Err(wrong) => {
                complaint = Some(wrong.to_string());
                break;
            }
        };
        counts.count(&ended);
        match ended {
            Ended::Committed(_) => commit(),
            Ended::Unknown if !may_fail() => {
                let wrong = world.wrong.lock().first().cloned();
                let unanswered = || "a transaction on collections was not answered".to_owned();
                complaint = Some(wrong.unwrap_or_else(unanswered));
            }
            Ended::Aborted | Ended::Unknown => {}
        }
    }
    DrivenClient {
        client,
        counts,
        complaint,
    }
}

/// Judges a round: reads all collections from servers that are there again, and adds to its verdict.
///
/// # Errors
/// Returns an error if the user asked to stop.
pub fn check(
    collections: &mut Collections,
    driven: Vec<DrivenClient>,
    addresses: Vec<SocketAddr>,
    verdict: &mut CrashVerdict,
) -> Result<()> {
    let (mut clients, mut complaints) = (Vec::new(), Vec::new());
    for one in driven {
        clients.push(one.client);
        verdict.collections += one.counts.committed;
        complaints.extend(one.complaint);
    }
    let world = World::new(addresses);
    let mut session = ChaosSession::new(&world, PATIENCE, fastrand::Rng::new());
    let deadline = Instant::now() + PATIENCE;
    let found = loop {
        interrupt::check()?;
        let found = workload::read(&mut session, &collections.reads());
        // A wrong reply stays wrong.
        if found.is_some() || Instant::now() > deadline || !world.wrong.lock().is_empty() {
            break found;
        }
        thread::sleep(LOOK);
    };
    if found.is_none() {
        complaints.push("collections are not readable".to_owned());
    }
    complaints.extend(collections.check(clients, found.as_deref()));
    verdict.wrong.extend(complaints);
    verdict.wrong.extend(world.wrong.into_inner());
    Ok(())
}
