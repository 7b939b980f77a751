//! The parameters of a run, which its seed determines.

use std::time::Duration;

use ::simulation::draw;

/// When the faults stop, when clients stop sending random requests, when the last round begins, and
/// when the run ends.
pub(super) const FAULTS_END: Duration = Duration::from_secs(12);
pub(super) const CLIENTS_END: Duration = Duration::from_secs(16);
pub(super) const LAST_ROUND: Duration = Duration::from_secs(28);
pub(super) const END: Duration = Duration::from_secs(70);

/// The longest lease, and the longest wait before the last round.
pub(super) const LONGEST_LEASE_MS: u64 = 2_500;
pub(super) const LONGEST_WAIT_MS: u64 = 3_000;

/// The longest time for an answer, besides waits and pauses.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);

/// The parameters of a run, which its seed determines.
pub(super) struct Plan {
    /// One proxy has the table in its memory; otherwise a partition keeps it.
    pub(super) alone: bool,
    pub(super) proxies: usize,
    pub(super) clients: usize,
    pub(super) keys: usize,
    pub(super) batch: usize,
    /// Clients stay with one proxy.
    pub(super) loyal: bool,
    /// The longest time that clients think.
    pub(super) think_ms: u64,
    /// How many of a thousand messages are lost, and how many are slow.
    pub(super) lost: u64,
    pub(super) slow: u64,
    /// How many of a thousand transactions are refused for a moment.
    pub(super) refused: u64,
    /// The mean time between faults; `None`: there are none.
    pub(super) faults_ms: Option<u64>,
}

impl Plan {
    pub(super) fn draw(rng: &mut fastrand::Rng) -> Plan {
        let alone = rng.u8(0..4) == 0;
        let calm = rng.u8(0..8) == 0;
        let rarely = |rng: &mut fastrand::Rng, most: u64| match rng.u8(0..3) {
            _ if calm => 0,
            0 => 0,
            _ => rng.u64(0..=most),
        };
        Plan {
            alone,
            proxies: if alone { 1 } else { rng.usize(1..=3) },
            clients: rng.usize(2..=6),
            keys: rng.usize(1..=4),
            batch: if rng.bool() { 1 } else { 16 },
            loyal: rng.bool(),
            think_ms: draw::one_of(rng, &[5, 50, 400]),
            lost: rarely(rng, 60),
            slow: rarely(rng, 60),
            refused: rarely(rng, 100),
            faults_ms: (!calm).then(|| rng.u64(150..2_000)),
        }
    }
}
