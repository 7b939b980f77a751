//! Points that runs reach, so that a run in which nothing happens does not pass for a correct one.

use super::scenario::Scenario;

::simulation::points! {
    /// A point that runs should reach.
    pub enum Point {
        CoordinatorCrash => "a coordinator crashed after it had asked for votes",
        ParticipantCrash => "a participant crashed while it was prepared",
        RestoredPrepared => "a restart brought prepared attempts back",
        RestoredCommitted => "a restart brought committed attempts back",
        HomeCommitted => "a home committed in a coordinator's stead",
        HomeAborted => "a home aborted in a coordinator's stead",
        Abandoned => "a coordinator gave up by way of the home",
        Died => "a younger transaction gave way",
        Waited => "a transaction waited for holds",
        Refused => "an attempt was refused before it came",
        HeldOcc => "a transaction of one partition met a hold",
        Overtaken => "a commit timestamp was overtaken",
        UnknownOutcome => "a client was not told the outcome",
        LostEpochs => "a crash lost epochs that were not durable",
        Separated => "nodes were separated",
        Flushed => "a partition was flushed",
        Elected => "a replicated partition got another leader",
        TookOver => "a new leader found prepared attempts",
        Kept => "a new leader had what its predecessor could not tell",
        Lost => "a new leader lacked what its predecessor had begun",
        LostAnswer => "an answer was lost with the leadership",
        Redirected => "a node was asked that did not lead",
        Stale => "a node was asked that did not know that it led no more",
        RampWrite => "a read-atomic write was begun",
        SecondRound => "a read-atomic read needed a second round",
        RampOvertaken => "a read-atomic write was overtaken",
        ClientWrite => "a client coordinated a read-atomic write",
        ClientGone => "a client went away while it coordinated",
        CommitWaited => "a read-atomic write waited for its commit",
    }
}

impl Scenario {
    /// Returns `true` if runs of this scenario can reach a point.
    #[must_use]
    pub fn has(self, point: Point) -> bool {
        match self {
            Scenario::TwoPhaseCommit => !matches!(
                point,
                Point::RampWrite
                    | Point::SecondRound
                    | Point::RampOvertaken
                    | Point::CommitWaited
                    | Point::ClientWrite
                    | Point::ClientGone
            ),
            Scenario::Ramp => point != Point::Flushed,
        }
    }
}
