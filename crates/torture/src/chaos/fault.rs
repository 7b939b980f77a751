//! The faults of a round and their times, drawn from the seed before the round begins.
//!
//! The leader is determined at the moment at which the fault strikes. Several faults may exist at
//! once. With half of the nodes or more hit nothing is promised but that the partition stays
//! consistent; it must serve again when all faults have ended.

use std::fmt;
use std::time::Duration;

/// The target of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whom {
    /// The leader at that moment.
    Leader,
    /// This node.
    Node(u16),
}

/// A fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChaosFault {
    /// Its plug is pulled: neither nodes nor clients can reach it.
    Unplug(Whom),
    /// The other nodes and it cannot reach each other; clients can reach it.
    Isolate(Whom),
    /// So many nodes, less than half, with or without the leader, and the others cannot reach each
    /// other.
    Split {
        /// The nodes of the smaller part.
        minority: Vec<u16>,
    },
    /// Two nodes cannot reach each other.
    Cut {
        /// One.
        one: Whom,
        /// The other one: so many nodes behind it.
        behind: u16,
    },
    /// Nothing that one node sends to another arrives; the other direction is open.
    Mute {
        /// The sender.
        from: Whom,
        /// The receiver: so many nodes behind it.
        behind: u16,
    },
    /// SIGKILL; it comes back at the end of the fault.
    Kill(Whom),
    /// SIGKILL of all of them.
    KillAll,
    /// SIGSTOP, and SIGCONT at the end: it wakes up, and does not know how late it is.
    Pause(Whom),
    /// Its disk is full.
    Fill(Whom),
    /// SIGKILL, and its disk is lost. It comes back empty, and is added when the round's faults
    /// have ended.
    Wipe(Whom),
    /// SIGTERM, and a start.
    Restart(Whom),
    /// `kumiki cluster transfer`.
    Transfer(u16),
}

/// A fault and its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedFault {
    /// When it strikes, after the round has begun.
    pub at: Duration,
    /// Its duration.
    pub lasts: Duration,
    /// The fault.
    pub fault: ChaosFault,
}

/// The conditions of the draw.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// The number of nodes.
    pub nodes: u16,
    /// The shortest time after which a silent leader is replaced.
    pub election: Duration,
    /// The time in which faults strike.
    pub span: Duration,
    /// `true` if a disk may be full.
    pub may_fill: bool,
    /// Leaders sleep longer than their leases, one after the other, without other faults.
    pub drowsy: bool,
}

/// Returns the faults of a round, by their time.
pub fn plan(rng: &mut fastrand::Rng, terms: &Terms) -> Vec<PlannedFault> {
    if terms.drowsy {
        return (0..SLEEPS).map(|turn| drowse(rng, terms, turn)).collect();
    }
    let count = rng.usize(2..=5);
    let mut faults: Vec<PlannedFault> = (0..count).map(|_| one(rng, terms)).collect();
    // A second lost disk may lose entries that the majority relied upon.
    let mut wiped = false;
    faults.retain(|planned| {
        !(matches!(planned.fault, ChaosFault::Wipe(_)) && std::mem::replace(&mut wiped, true))
    });
    faults.sort_by_key(|planned| planned.at);
    faults
}

fn one(rng: &mut fastrand::Rng, terms: &Terms) -> PlannedFault {
    let fault = draw(rng, terms);
    let most = match fault {
        ChaosFault::Kill(_)
        | ChaosFault::KillAll
        | ChaosFault::Wipe(_)
        | ChaosFault::Transfer(_) => terms.election,
        ChaosFault::Pause(_) => 4 * terms.election,
        _ => 5 * terms.election,
    };
    let at = terms.span.mul_f64(rng.f64());
    let lasts = match rng.u32(0..3) {
        // Many end at once, so that the partition comes back from the worst of them.
        0 => terms.span + terms.election - at,
        _ => most.mul_f64(0.1 + 0.9 * rng.f64()),
    };
    PlannedFault { at, lasts, fault }
}

/// The number of sleeping leaders in a round without other faults.
const SLEEPS: u32 = 4;

/// Returns a leader that sleeps until another one has been elected.
fn drowse(rng: &mut fastrand::Rng, terms: &Terms, turn: u32) -> PlannedFault {
    PlannedFault {
        at: 5 * turn * terms.election,
        lasts: terms.election.mul_f64(2.5 + 1.5 * rng.f64()),
        fault: ChaosFault::Pause(Whom::Leader),
    }
}

fn draw(rng: &mut fastrand::Rng, terms: &Terms) -> ChaosFault {
    let whom = match rng.bool() {
        true => Whom::Leader,
        false => Whom::Node(rng.u16(1..=terms.nodes)),
    };
    let behind = rng.u16(1..terms.nodes);
    match rng.u32(0..24) {
        0..2 => ChaosFault::Unplug(whom),
        2..4 => ChaosFault::Isolate(Whom::Leader),
        4..6 => ChaosFault::Split {
            minority: minority(rng, terms.nodes),
        },
        6..8 => ChaosFault::Cut { one: whom, behind },
        8..11 => ChaosFault::Mute { from: whom, behind },
        11..14 => ChaosFault::Kill(whom),
        14..15 => ChaosFault::KillAll,
        15..18 => ChaosFault::Pause(whom),
        18..20 if terms.may_fill => ChaosFault::Fill(whom),
        18..20 => ChaosFault::Kill(whom),
        20..21 => ChaosFault::Wipe(whom),
        21..22 => ChaosFault::Restart(whom),
        _ => ChaosFault::Transfer(rng.u16(1..=terms.nodes)),
    }
}

fn minority(rng: &mut fastrand::Rng, nodes: u16) -> Vec<u16> {
    let mut all: Vec<u16> = (1..=nodes).collect();
    rng.shuffle(&mut all);
    all.truncate(usize::from(rng.u16(1..=(nodes - 1) / 2)));
    all
}

/// Returns the node that is so many behind `node`, in a circle of `nodes`.
#[must_use]
pub fn behind(node: u16, count: u16, nodes: u16) -> u16 {
    (node - 1 + count) % nodes + 1
}

impl fmt::Display for PlannedFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (at, lasts) = (self.at.as_millis(), self.lasts.as_millis());
        write!(f, "{at} ms: {:?} for {lasts} ms", self.fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(nodes: u16) -> Terms {
        Terms {
            nodes,
            election: Duration::from_millis(500),
            span: Duration::from_secs(3),
            may_fill: true,
            drowsy: false,
        }
    }

    #[test]
    fn a_seed_draws_the_same_faults_again_and_all_kinds_are_drawn() {
        let many = |seed| -> Vec<Vec<PlannedFault>> {
            let mut rng = fastrand::Rng::with_seed(seed);
            (0..200).map(|_| plan(&mut rng, &terms(5))).collect()
        };
        assert_eq!(many(7), many(7));
        assert_ne!(many(7), many(8));
        let rounds = many(7);
        let mut kinds: Vec<_> = rounds
            .iter()
            .flatten()
            .map(|planned| std::mem::discriminant(&planned.fault))
            .collect();
        let wipes = |round: &Vec<PlannedFault>| {
            let wipe = |planned: &&PlannedFault| matches!(planned.fault, ChaosFault::Wipe(_));
            round.iter().filter(wipe).count()
        };
        assert!(
            rounds.iter().all(|round| wipes(round) < 2),
            "one lost disk a round"
        );
        kinds.sort_by_key(|kind| format!("{kind:?}"));
        kinds.dedup();
        assert_eq!(kinds.len(), 12);
    }

    #[test]
    fn minorities_are_small_and_neighbours_are_others() {
        let mut rng = fastrand::Rng::with_seed(1);
        for nodes in [3, 5] {
            for _ in 0..50 {
                let few = minority(&mut rng, nodes);
                assert!(
                    !few.is_empty() && few.len() * 2 < usize::from(nodes),
                    "{few:?}"
                );
            }
            for node in 1..=nodes {
                let others = (1..nodes).map(|count| behind(node, count, nodes));
                let mut others: Vec<_> = others.collect();
                others.sort_unstable();
                others.dedup();
                assert!(others.len() == usize::from(nodes) - 1 && !others.contains(&node));
            }
        }
    }

    #[test]
    fn full_disks_and_sleepers_are_as_the_terms_say() {
        let mut rng = fastrand::Rng::with_seed(3);
        let terms = Terms {
            may_fill: false,
            drowsy: true,
            ..terms(3)
        };
        for _ in 0..100 {
            let round = plan(&mut rng, &terms);
            let has = |fault: fn(&ChaosFault) -> bool| round.iter().any(|one| fault(&one.fault));
            assert!(!has(|fault| matches!(fault, ChaosFault::Fill(_))));
            assert!(has(|fault| matches!(
                fault,
                ChaosFault::Pause(Whom::Leader)
            )));
            let ends = round.iter().map(|one| one.at + one.lasts);
            assert!(ends.zip(&round[1..]).all(|(end, next)| end < next.at));
        }
    }
}
