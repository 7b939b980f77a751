//! A read-atomic write that its client coordinates (PUT+ of paper 1, algorithm 1), step by step. It does no
//! I/O: the requests of a stage come out, their answers go in.
//!
//! | stage | requests | ends when |
//! |---|---|---|
//! | preparing | `Prepare` to each participant | all have prepared: the write has committed. One has not: the attempt has failed. An answer is lost: it is abandoned |
//! | abandoning | `Abandon` to the home | the home says that it has aborted, or that it has committed |
//! | committing | `Commit` to each participant | all have answered: every later read sees the write |
//!
//! The participants do the same as for a node that coordinates (module [`node`](crate::node)), and the first
//! of them is the home, which decides when the client is gone. The invariants are those of that module.
//! In particular: after it has asked to abandon an attempt, the client counts no more votes (3). The
//! home remembers a commit for [`Timeouts::transaction`] at least; an answer to `Abandon` that comes later
//! after the beginning of the attempt means nothing, and the driver must not pass it on.
//!
//! [`Timeouts::transaction`]: crate::Timeouts::transaction

use base::participant::Isolation;
use base::planted::{self, Bug};
use base::{Abort, Op, PartitionId, TransactionId};

use super::Algorithm;
use crate::message::{Answer, AttemptOutcome, ParticipantList, Request};
use crate::requester::LostRequest;
use crate::topology::Topology;

/// See the module's description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteStage {
    /// Participants are asked to prepare.
    Preparing,
    /// The home is asked to abort.
    Abandoning,
    /// Participants are asked to commit.
    Committing,
    /// There are no more requests.
    Over,
}

/// What follows from an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteStep {
    /// Answers of this stage are missing: they are awaited, or their requests sent again.
    Wait,
    /// The next stage has begun.
    NextStage,
    /// The attempt has no effect, for this reason, and will have none. Another one may.
    Failed(Abort),
    /// The outcome will not be known, for this reason.
    Unknown(String),
    /// The write has taken effect at all participants, durably. They may forget it.
    Done,
}

/// An attempt to write read-atomic keys of several partitions.
#[derive(Debug)]
pub struct ReadAtomicWrite {
    id: TransactionId,
    participant_list: ParticipantList,
    siblings: Vec<u8>,
    parts: Vec<WritePart>,
    stage: WriteStage,
    /// Why it was abandoned.
    abandoned: Option<Abort>,
}

#[derive(Debug)]
struct WritePart {
    of: PartitionId,
    /// Indexes of its operations.
    ops: Vec<usize>,
    /// It has not answered in this stage.
    is_missing: bool,
    /// It has prepared, or may do so.
    may_be_prepared: bool,
}

impl ReadAtomicWrite {
    /// Begins an attempt to execute operations that set or delete read-atomic keys whole. The id must be
    /// new.
    ///
    /// # Panics
    /// If an operation has no key, or there is none.
    #[must_use]
    pub fn new(
        topology: &Topology,
        id: TransactionId,
        algorithm: Algorithm,
        ops: &[Op<'_>],
    ) -> ReadAtomicWrite {
        let key = |op: &'_ Op<'_>| topology.partition_of(op.key().expect("it has a key"));
        let mut parts: Vec<WritePart> = Vec::new();
        for (at, op) in ops.iter().enumerate() {
            let of = key(op);
            match parts.iter_mut().find(|part| part.of == of) {
                Some(part) => part.ops.push(at),
                None => parts.push(WritePart {
                    of,
                    ops: vec![at],
                    is_missing: true,
                    may_be_prepared: true,
                }),
            }
        }
        ReadAtomicWrite {
            id,
            participant_list: ParticipantList {
                home: parts[0].of,
                participants: parts.iter().map(|part| part.of).collect(),
            },
            siblings: super::siblings(algorithm, ops.iter().filter_map(Op::key)),
            parts,
            stage: WriteStage::Preparing,
            abandoned: None,
        }
    }

    /// Returns the id of the attempt.
    #[must_use]
    pub fn id(&self) -> TransactionId {
        self.id
    }

    /// Returns the present stage.
    #[must_use]
    pub fn stage(&self) -> WriteStage {
        self.stage
    }

    /// Returns the requests of the present stage that have no answer yet, each with its receiver. `ops` are
    /// the operations with which the attempt began.
    pub fn requests<'o>(
        &'o self,
        ops: &'o [Op<'o>],
    ) -> impl Iterator<Item = (PartitionId, Request<'o>)> {
        let is_asked = |part: &&WritePart| match self.stage {
            WriteStage::Preparing | WriteStage::Committing => part.is_missing,
            WriteStage::Abandoning => part.of == self.participant_list.home,
            WriteStage::Over => false,
        };
        let id = self.id;
        self.parts.iter().filter(is_asked).map(move |part| {
            let request = match self.stage {
                WriteStage::Preparing => Request::Prepare {
                    id,
                    age: id.timestamp,
                    participant_list: self.participant_list.clone(),
                    siblings: &self.siblings,
                    isolation: Isolation::ReadAtomic,
                    ops: part.ops.iter().map(|&at| ops[at].clone()).collect(),
                },
                WriteStage::Abandoning => Request::Abandon { id },
                _ => Request::Commit { id, awaited: true },
            };
            (part.of, request)
        })
    }

    /// Returns the participants.
    pub fn participants(&self) -> impl Iterator<Item = PartitionId> {
        self.parts.iter().map(|part| part.of)
    }

    /// Returns the participants that must be told that the attempt has failed: all that may have prepared.
    pub fn prepared(&self) -> impl Iterator<Item = PartitionId> {
        let prepared = self.parts.iter().filter(|part| part.may_be_prepared);
        prepared.map(|part| part.of)
    }

    /// Handles a participant's answer to a request of a stage. An answer of an earlier stage changes nothing.
    pub fn answered(
        &mut self,
        stage: WriteStage,
        of: PartitionId,
        answer: Result<Answer, LostRequest>,
    ) -> WriteStep {
        if stage != self.stage {
            return WriteStep::Wait;
        }
        match stage {
            WriteStage::Preparing => self.on_vote(of, answer),
            WriteStage::Abandoning => self.on_abandoned(answer),
            WriteStage::Committing => self.on_committed(of, &answer),
            WriteStage::Over => WriteStep::Wait,
        }
    }

    fn on_vote(&mut self, of: PartitionId, answer: Result<Answer, LostRequest>) -> WriteStep {
        let part = self.parts.iter_mut().find(|part| part.of == of);
        let Some(part) = part else {
            return WriteStep::Wait;
        };
        let against = match answer {
            Ok(Answer::Replies(replies)) if replies.len() == part.ops.len() => {
                part.is_missing = false;
                let all = !self.parts.iter().any(|part| part.is_missing);
                return match all || planted::is(Bug::EarlyCommit) {
                    true => self.begin_commit(),
                    false => WriteStep::Wait,
                };
            }
            // The participant does not know if its vote is durable: as good as lost.
            Ok(Answer::Aborted(Abort::Unknown { what })) => return self.abandon(what),
            Ok(Answer::Aborted(abort)) => abort,
            // A request that was never sent is as good as a vote against.
            Err(LostRequest { sent: false, why }) => Abort::Unavailable { what: why },
            Err(LostRequest { why, .. }) => return self.abandon(why),
            Ok(other) => return self.abandon(format!("a participant answered {other:?}")),
        };
        part.may_be_prepared = false;
        self.stage = WriteStage::Over;
        WriteStep::Failed(against)
    }

    fn abandon(&mut self, what: String) -> WriteStep {
        self.stage = WriteStage::Abandoning;
        self.abandoned = Some(Abort::Unavailable { what });
        WriteStep::NextStage
    }

    fn on_abandoned(&mut self, answer: Result<Answer, LostRequest>) -> WriteStep {
        match answer {
            Ok(Answer::AttemptOutcome(AttemptOutcome::Aborted)) => {
                self.stage = WriteStage::Over;
                let why = self
                    .abandoned
                    .take()
                    .expect("it was abandoned for a reason");
                WriteStep::Failed(why)
            }
            Ok(Answer::AttemptOutcome(AttemptOutcome::Committed)) => self.begin_commit(),
            // Its log has failed: only a restart will show the outcome.
            Ok(Answer::Failed(what)) => {
                self.stage = WriteStage::Over;
                WriteStep::Unknown(what)
            }
            _ => WriteStep::Wait,
        }
    }

    fn begin_commit(&mut self) -> WriteStep {
        self.stage = WriteStage::Committing;
        self.parts
            .iter_mut()
            .for_each(|part| part.is_missing = true);
        WriteStep::NextStage
    }

    fn on_committed(&mut self, of: PartitionId, answer: &Result<Answer, LostRequest>) -> WriteStep {
        if *answer != Ok(Answer::Done) {
            return WriteStep::Wait;
        }
        let answered = self.parts.iter_mut().filter(|part| part.of == of);
        answered.for_each(|part| part.is_missing = false);
        if self.parts.iter().any(|part| part.is_missing) {
            return WriteStep::Wait;
        }
        self.stage = WriteStage::Over;
        WriteStep::Done
    }

    /// Returns the outcome as far as it is known when the driver gives up before the end.
    #[must_use]
    pub fn open_outcome(&self) -> Abort {
        let missing = self.parts.iter().filter(|part| part.is_missing);
        let partitions: Vec<u16> = missing.map(|part| part.of.0).collect();
        let what = match (&self.abandoned, self.stage) {
            (_, WriteStage::Committing) => return Abort::Unacknowledged { partitions },
            (Some(Abort::Unavailable { what }), _) => what.clone(),
            _ => format!("of the partitions {partitions:?} nothing was heard in time"),
        };
        Abort::Unknown { what }
    }
}

#[cfg(test)]
mod tests {
    use base::partition::OwnedReply;
    use base::{NodeId, Timestamp};

    use super::*;

    const ID: TransactionId = TransactionId {
        timestamp: Timestamp(7),
        unique: 3,
    };
    const NONE: Vec<PartitionId> = Vec::new();

    /// Two keys, of partitions 1 and 2.
    const KEYS: [&[u8]; 2] = [b"b", b"a"];

    fn ops() -> [Op<'static>; 2] {
        KEYS.map(|key| Op::put(key, b"v"))
    }

    fn begun() -> ReadAtomicWrite {
        let node = |id: u16| crate::topology::NodeInfo {
            id: NodeId(id),
            client: ([127, 0, 0, 1], 7000 + id).into(),
            tls: None,
            fabric: ([127, 0, 0, 1], 17000 + id).into(),
            replica: None,
        };
        let text = crate::topology::even(&[1, 2].map(node), 1, None);
        let topology = Topology::parse(&text, "two").unwrap();
        ReadAtomicWrite::new(&topology, ID, Algorithm::Fast, &ops())
    }

    fn asked(write: &ReadAtomicWrite) -> Vec<PartitionId> {
        write.requests(&ops()).map(|(of, _)| of).collect()
    }

    const ONE: PartitionId = PartitionId(1);
    const OTHER: PartitionId = PartitionId(2);

    fn vote() -> Result<Answer, LostRequest> {
        Ok(Answer::Replies(vec![OwnedReply::Ok]))
    }

    fn lost(sent: bool) -> Result<Answer, LostRequest> {
        let why = "the link broke".to_owned();
        Err(LostRequest { sent, why })
    }

    fn outcome(outcome: AttemptOutcome) -> Result<Answer, LostRequest> {
        Ok(Answer::AttemptOutcome(outcome))
    }

    #[test]
    fn it_commits_when_all_have_prepared_and_is_done_when_all_have_committed() {
        let mut write = begun();
        assert_eq!(asked(&write), [ONE, OTHER]);
        let (prepare, commit) = (WriteStage::Preparing, WriteStage::Committing);
        assert_eq!(write.answered(prepare, OTHER, vote()), WriteStep::Wait);
        assert_eq!(write.answered(prepare, OTHER, vote()), WriteStep::Wait);
        assert_eq!(asked(&write), [ONE]);
        let open = write.open_outcome();
        assert!(matches!(open, Abort::Unknown { .. }), "{open:?}");
        assert_eq!(write.answered(prepare, ONE, vote()), WriteStep::NextStage);
        assert_eq!(asked(&write), [ONE, OTHER]);
        let done = || Ok(Answer::Done);
        assert_eq!(write.answered(commit, ONE, done()), WriteStep::Wait);
        assert_eq!(write.answered(commit, OTHER, lost(true)), WriteStep::Wait);
        assert_eq!(asked(&write), [OTHER]);
        let partitions = vec![OTHER.0];
        assert_eq!(write.open_outcome(), Abort::Unacknowledged { partitions });
        assert_eq!(write.answered(commit, OTHER, done()), WriteStep::Done);
        assert_eq!(asked(&write), NONE);
    }

    #[test]
    fn a_vote_against_ends_it_and_the_others_are_told() {
        for answer in [Ok(Answer::Aborted(Abort::Refused)), lost(false)] {
            let mut write = begun();
            let step = write.answered(WriteStage::Preparing, OTHER, answer);
            assert!(matches!(step, WriteStep::Failed(_)), "{step:?}");
            assert_eq!(write.prepared().collect::<Vec<_>>(), [ONE]);
            // A vote that comes late is not counted.
            let late = write.answered(WriteStage::Preparing, ONE, vote());
            assert_eq!((late, asked(&write)), (WriteStep::Wait, NONE));
        }
    }

    #[test]
    fn the_home_decides_when_a_vote_is_lost() {
        let what = "it has ceased to lead".to_owned();
        for answer in [lost(true), Ok(Answer::Aborted(Abort::Unknown { what }))] {
            for (said, step) in [
                (AttemptOutcome::Open, WriteStep::Wait),
                (AttemptOutcome::Committed, WriteStep::NextStage),
            ] {
                let mut write = begun();
                let lost = write.answered(WriteStage::Preparing, OTHER, answer.clone());
                assert_eq!((lost, asked(&write)), (WriteStep::NextStage, vec![ONE]));
                let late = write.answered(WriteStage::Preparing, ONE, vote());
                assert_eq!(
                    (late, write.stage()),
                    (WriteStep::Wait, WriteStage::Abandoning)
                );
                let next = write.answered(WriteStage::Abandoning, ONE, outcome(said));
                assert_eq!(next, step);
            }
            let mut write = begun();
            write.answered(WriteStage::Preparing, OTHER, answer);
            let aborted = outcome(AttemptOutcome::Aborted);
            let step = write.answered(WriteStage::Abandoning, ONE, aborted);
            assert!(matches!(step, WriteStep::Failed(Abort::Unavailable { .. })));
            assert_eq!(write.prepared().count(), 2);
        }
    }
}
