//! Points that runs reach, so that a run in which nothing happens does not pass for a correct one.

::simulation::points! {
    /// A point that runs should reach.
    pub enum CoveragePoint {
        Granted => "a lock was granted",
        Waited => "a lock was granted to a client that waited",
        Takeover => "a lock was taken over from another proxy",
        Expired => "a lock whose lease had ended was released",
        Tombstone => "the record of a released lock was replaced",
        Found => "a write of unknown outcome was found",
        Repeated => "a write of unknown outcome was repeated",
        Uncertain => "a client was not told the outcome",
        Unavailable => "a client was told that nothing happened",
        Overtaken => "a proxy was overtaken by another one",
        EraLost => "a transaction came after its era",
        Undone => "a lock was released because its client had gone",
        Swept => "a sweep found a record without a request",
        Late => "a write took effect after it was given up",
        Killed => "a proxy was killed while a client held a lock",
        Rebooted => "the same, and the clock that leases are measured by began anew",
        Paused => "a proxy was paused",
        CutOff => "a proxy was cut off",
        Elected => "the partition changed its leader",
        ClockSet => "a wall clock was set",
        Settling => "a table without memory refused to grant",
        LedgerFailed => "a ledger was not kept",
        CleanStop => "a table was stopped and had no locks",
        Cancelled => "a client went away while it waited",
        Batched => "several keys travelled in one transaction",
    }
}
