//! What goes wrong in a round, and when: drawn from the seed before the round begins.
//!
//! Whoever leads is found out at the moment at which the fault strikes. Several faults may be there
//! at once. With half of the nodes or fewer hit nothing is promised but that the partition keeps its
//! word; that it serves again is asked for when all faults have ended.

use std::fmt;
use std::time::Duration;

/// Who is hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whom {
    /// Who leads at that moment.
    Leader,
    /// This node.
    Node(u16),
}

/// What goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Its plug is pulled: neither nodes nor clients reach it.
    Unplug(Whom),
    /// The others do not reach it, nor it them; clients do.
    Isolate(Whom),
    /// So many nodes, less than half, the leader among them or not, and the others do not reach each
    /// other.
    Split {
        /// Those of the smaller part.
        minority: Vec<u16>,
    },
    /// Two nodes do not reach each other.
    Cut {
        /// One.
        one: Whom,
        /// The other one: so many nodes behind it.
        behind: u16,
    },
    /// Nothing arrives of what one node sends to another; the way back is open.
    Mute {
        /// Who sends.
        from: Whom,
        /// Who gets nothing: so many nodes behind it.
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
    /// SIGKILL, and its disk is lost. It comes back empty, and is added when the round's faults have
    /// ended.
    Wipe(Whom),
    /// SIGTERM, and a start.
    Restart(Whom),
    /// `kumiki cluster transfer`.
    Transfer(u16),
}

/// A fault and its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// When it strikes, after the round has begun.
    pub at: Duration,
    /// How long it stays.
    pub lasts: Duration,
    /// What it is.
    pub fault: Fault,
}

/// What is drawn from.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// How many nodes.
    pub nodes: u16,
    /// The shortest time after which a silent leader is replaced.
    pub election: Duration,
    /// In which time faults strike.
    pub span: Duration,
    /// Whether a disk may be full.
    pub may_fill: bool,
    /// Leaders sleep longer than their leases, one after the other, and nothing else happens.
    pub drowsy: bool,
}

/// The faults of a round, by their time.
pub fn plan(rng: &mut fastrand::Rng, terms: &Terms) -> Vec<Planned> {
    if terms.drowsy {
        return (0..SLEEPS).map(|turn| drowse(rng, terms, turn)).collect();
    }
    let count = rng.usize(2..=5);
    let mut faults: Vec<Planned> = (0..count).map(|_| one(rng, terms)).collect();
    // A second lost disk may take what the majority relied upon.
    let mut wiped = false;
    faults.retain(|planned| {
        !(matches!(planned.fault, Fault::Wipe(_)) && std::mem::replace(&mut wiped, true))
    });
    faults.sort_by_key(|planned| planned.at);
    faults
}

fn one(rng: &mut fastrand::Rng, terms: &Terms) -> Planned {
    let fault = draw(rng, terms);
    let most = match fault {
        Fault::Kill(_) | Fault::KillAll | Fault::Wipe(_) | Fault::Transfer(_) => terms.election,
        Fault::Pause(_) => 4 * terms.election,
        _ => 5 * terms.election,
    };
    let at = terms.span.mul_f64(rng.f64());
    let lasts = match rng.u32(0..3) {
        // Many end at once, so that the partition comes back from the worst of them.
        0 => terms.span + terms.election - at,
        _ => most.mul_f64(0.1 + 0.9 * rng.f64()),
    };
    Planned { at, lasts, fault }
}

/// How often leaders sleep in a round in which nothing else happens.
const SLEEPS: u32 = 4;

/// A leader that sleeps until another one has been elected.
fn drowse(rng: &mut fastrand::Rng, terms: &Terms, turn: u32) -> Planned {
    Planned {
        at: 5 * turn * terms.election,
        lasts: terms.election.mul_f64(2.5 + 1.5 * rng.f64()),
        fault: Fault::Pause(Whom::Leader),
    }
}

fn draw(rng: &mut fastrand::Rng, terms: &Terms) -> Fault {
    let whom = match rng.bool() {
        true => Whom::Leader,
        false => Whom::Node(rng.u16(1..=terms.nodes)),
    };
    let behind = rng.u16(1..terms.nodes);
    match rng.u32(0..24) {
        0..2 => Fault::Unplug(whom),
        2..4 => Fault::Isolate(Whom::Leader),
        4..6 => Fault::Split {
            minority: minority(rng, terms.nodes),
        },
        6..8 => Fault::Cut { one: whom, behind },
        8..11 => Fault::Mute { from: whom, behind },
        11..14 => Fault::Kill(whom),
        14..15 => Fault::KillAll,
        15..18 => Fault::Pause(whom),
        18..20 if terms.may_fill => Fault::Fill(whom),
        18..20 => Fault::Kill(whom),
        20..21 => Fault::Wipe(whom),
        21..22 => Fault::Restart(whom),
        _ => Fault::Transfer(rng.u16(1..=terms.nodes)),
    }
}

fn minority(rng: &mut fastrand::Rng, nodes: u16) -> Vec<u16> {
    let mut all: Vec<u16> = (1..=nodes).collect();
    rng.shuffle(&mut all);
    all.truncate(usize::from(rng.u16(1..=(nodes - 1) / 2)));
    all
}

/// The node that is so many behind `node`, in a circle of `nodes`.
#[must_use]
pub fn behind(node: u16, count: u16, nodes: u16) -> u16 {
    (node - 1 + count) % nodes + 1
}

impl fmt::Display for Planned {
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
        let many = |seed| -> Vec<Vec<Planned>> {
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
        let wipes = |round: &Vec<Planned>| {
            let wipe = |planned: &&Planned| matches!(planned.fault, Fault::Wipe(_));
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
            let has = |fault: fn(&Fault) -> bool| round.iter().any(|one| fault(&one.fault));
            assert!(!has(|fault| matches!(fault, Fault::Fill(_))));
            assert!(has(|fault| matches!(fault, Fault::Pause(Whom::Leader))));
            let ends = round.iter().map(|one| one.at + one.lasts);
            assert!(ends.zip(&round[1..]).all(|(end, next)| end < next.at));
        }
    }
}
