//! The points that runs reach, so that a run without faults does not pass for a correct one.

::simulation::points! {
    /// A point that is worth reaching.
    pub enum Point {
        Elected => "a node began to lead",
        Deposed => "a leadership was lost",
        Crashed => "a node crashed",
        PowerFailed => "the power failed within an operation of the disk",
        Paused => "a node did nothing for a while",
        Separated => "two nodes were separated",
        Isolated => "a node was cut off",
        DiskFull => "a node stepped aside because its disk was full",
        LogCut => "a node cut its log because its disk was full",
        LostDisk => "a node lost its disk",
        Added => "a node was added",
        Removed => "a node was removed",
        HandedOver => "leadership was handed over",
        SnapshotMade => "a snapshot was made",
        Redirected => "a client was sent to the leader",
        Held => "a transaction met a hold",
        Unknown => "a client did not learn the outcome",
        ToldAgain => "a client learned the outcome by asking again",
        Forgotten => "a client was forgotten",
        Full => "a client got no session, because of the others",
        Stale => "a member showed what it had",
        FoundPrepared => "an attempt was found prepared",
        CommittedAttempt => "a prepared attempt was committed",
        Refused => "an attempt was refused",
        OldLeader => "a leader was asked that did not know of the next one",
        Compared => "members compared their states",
        Fenced => "a token was refused",
        Followed => "a transaction was staged after one that was not applied",
        Dropped => "staged versions were dropped with a leadership",
        Extended => "a text was extended whose entries have operations",
    }
}
