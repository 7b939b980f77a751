//! Counters of one proxy.

/// Counters of one proxy since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Transactions that were sent.
    pub transactions: u64,
    /// Keys in them.
    pub keys: u64,
    /// Locks that were granted, prolongations included.
    pub grants: u64,
    /// Locks among them whose requests had waited for another holder.
    pub waited: u64,
    /// Locks whose lease had ended, and that another proxy had granted.
    pub takeovers: u64,
    /// Locks whose lease had ended when they were granted anew.
    pub lapsed: u64,
    /// Locks whose lease had ended and that were released without a request for them.
    pub expired: u64,
    /// Released locks whose record was still there when the key was acquired again.
    pub tombstones: u64,
    /// Writes of unknown outcome that were found to have taken effect.
    pub found: u64,
    /// Writes of unknown outcome that were found not to have taken effect, and tried again.
    pub repeated: u64,
    /// Requests that ended with an unknown outcome.
    pub uncertain: u64,
    /// Transactions that found another version than the proxy had read.
    pub overtaken: u64,
    /// Transactions that came after their era.
    pub eras_lost: u64,
    /// Locks that were released because their client had gone meanwhile.
    pub undone: u64,
    /// Records that a sweep found first.
    pub swept: u64,
}
