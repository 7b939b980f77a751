//! Lists, hashes, sets, sorted sets and streams, small ones and large ones.
//!
//! | module | transactions | condition |
//! |---|---|---|
//! | [`appends`] | append to lists, and read them | they are strictly serializable: each read is a prefix of the longest one, no append is lost or there twice, transactions over several lists are whole |
//! | [`sums`] | move amounts between fields of hashes and members of sorted sets | as in [`super::transfers`] |
//! | [`moves`] | move elements between lists, and members between sets | each is in one of them |
//! | [`waits`] | push elements to queues, and wait for them | each element goes to one client; it is lost only to a client whose answer is lost |
//! | [`own`] | all kinds of changes of a client's own collections, also copies, renames and removals | all results, and the contents at the end, are those of a model |
//!
//! Each module is a workload; [`Collections`] is all of them together.

pub mod appends;
mod keys;
pub mod moves;
pub mod own;
pub mod sums;
pub mod waits;

use fastrand::Rng;

pub use self::keys::PREFIX;

use self::appends::{AppendClient, Appends};
use self::moves::{MoveClient, Moves};
use self::own::{OwnClient, OwnCollections};
use self::sums::{SumClient, Sums};
use self::waits::{WaitClient, Waits};
use super::{Client, Ended, Plan, Seen, Times, Workload};
use crate::error::TestkitError;

/// See the [module](self).
#[derive(Debug, Default)]
pub struct Collections {
    appends: Appends,
    sums: Sums,
    moves: Moves,
    waits: Waits,
    own: OwnCollections,
}

/// A client.
#[derive(Debug)]
pub struct CollectionClient {
    random: Rng,
    current: Part,
    appends: AppendClient,
    sums: SumClient,
    moves: MoveClient,
    waits: WaitClient,
    own: OwnClient,
}

/// The workload that a transaction is of.
#[derive(Clone, Copy, Debug)]
enum Part {
    Appends,
    Sums,
    Moves,
    Waits,
    Own,
}

impl Workload for Collections {
    type Client = CollectionClient;

    fn setup(&self) -> Plan {
        together([
            self.appends.setup(),
            self.sums.setup(),
            self.moves.setup(),
            self.waits.setup(),
            self.own.setup(),
        ])
    }

    fn start(&self, mut random: Rng) -> CollectionClient {
        CollectionClient {
            current: Part::Own,
            appends: self.appends.start(random.fork()),
            sums: self.sums.start(random.fork()),
            moves: self.moves.start(random.fork()),
            waits: self.waits.start(random.fork()),
            own: self.own.start(random.fork()),
            random,
        }
    }

    fn reads(&self) -> Plan {
        together([
            self.appends.reads(),
            self.sums.reads(),
            self.moves.reads(),
            self.waits.reads(),
            self.own.reads(),
        ])
    }

    fn check(&mut self, clients: Vec<CollectionClient>, found: Option<&[Seen]>) -> Vec<String> {
        let (mut appends, mut sums, mut moves) = (Vec::new(), Vec::new(), Vec::new());
        let (mut waits, mut own) = (Vec::new(), Vec::new());
        for client in clients {
            appends.push(client.appends);
            sums.push(client.sums);
            moves.push(client.moves);
            waits.push(client.waits);
            own.push(client.own);
        }
        let mut rest = found;
        let mut complaints = check_part(&mut self.appends, appends, &mut rest);
        complaints.extend(check_part(&mut self.sums, sums, &mut rest));
        complaints.extend(check_part(&mut self.moves, moves, &mut rest));
        complaints.extend(check_part(&mut self.waits, waits, &mut rest));
        complaints.extend(check_part(&mut self.own, own, &mut rest));
        complaints
    }
}

/// Checks a workload by the first of the results that are left, which are its own.
fn check_part<W: Workload>(
    part: &mut W,
    clients: Vec<W::Client>,
    rest: &mut Option<&[Seen]>,
) -> Vec<String> {
    let own = rest.map(|all| all.split_at(part.reads().steps.len()));
    *rest = own.map(|(_, rest)| rest);
    part.check(clients, own.map(|(own, _)| own))
}

fn together(plans: [Plan; 5]) -> Plan {
    Plan {
        steps: plans.into_iter().flat_map(|plan| plan.steps).collect(),
    }
}

impl CollectionClient {
    fn part(&mut self) -> &mut dyn Client {
        match self.current {
            Part::Appends => &mut self.appends,
            Part::Sums => &mut self.sums,
            Part::Moves => &mut self.moves,
            Part::Waits => &mut self.waits,
            Part::Own => &mut self.own,
        }
    }
}

impl Client for CollectionClient {
    fn plan(&mut self) -> Plan {
        self.current = match self.random.u32(..100) {
            0..25 => Part::Appends,
            25..40 => Part::Sums,
            40..55 => Part::Moves,
            55..80 => Part::Waits,
            _ => Part::Own,
        };
        self.part().plan()
    }

    fn end(&mut self, plan: &Plan, ended: &Ended, times: Times) -> Result<(), TestkitError> {
        self.part().end(plan, ended, times)
    }
}

#[cfg(test)]
mod tests;
