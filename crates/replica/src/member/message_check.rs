//! Checks the messages of other members before Raft's library sees them: the library relies on
//! members that make no mistakes, and panics where one does.
//!
//! | what | must be |
//! |---|---|
//! | kind | one that members send each other |
//! | sender | the node at the other end of the link |
//! | term | at least 1, at most 2³² above this member's |
//! | index, commit | at most 2⁶², and in this term at most what this member has |
//! | entries | without gaps behind the message's index, in terms that do not fall, each of a kind and with data that can be applied |
//! | members in a snapshot | at least one voter, no member twice |
//! | a snapshot's piece | within its length |

use std::collections::BTreeSet;

use base::NodeId;
use raft::StateRole;
use raft::eraftpb::{ConfState, Entry, EntryType, Message, MessageType};

use super::context::RaftNode;
use crate::entry_validation::count_changes;
use crate::messages::MemberMessage;
use crate::status::node_of;

/// The number of terms by which a message may be ahead. Elections never get this far, and too many
/// messages would be needed to use up the numbers.
const TERMS_AHEAD: u64 = 1 << 32;
/// The greatest index, far below the greatest integer.
const INDEX_MAX: u64 = 1 << 62;
/// The greatest length of a snapshot.
const SNAPSHOT_MAX: u64 = 1 << 50;

/// The reason why a message is not one that a member sends.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct MalformedMessage(String);

/// The objection to a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum MessageObjection {
    #[error(transparent)]
    Malformed(#[from] MalformedMessage),
    /// The leader believes that this member has acknowledged more than its log contains.
    #[error("it says that this member has entry {claimed}, and its log ends at {last}")]
    BeyondLog {
        /// The entry that the member is said to have.
        claimed: u64,
        /// The last entry of the log.
        last: u64,
    },
}

impl MalformedMessage {
    pub(super) fn new(reason: impl ToString) -> MalformedMessage {
        MalformedMessage(reason.to_string())
    }
}

/// The member's own state at the time of a message, against which the message is checked. All
/// zeros stand for a node that is not a member.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MessageCheck {
    /// Its number in the group; 0 if it has none.
    id: u64,
    term: u64,
    /// Its last entry.
    last: u64,
    leads: bool,
}

impl MessageCheck {
    /// Returns the check of the messages for this member.
    pub(super) fn of(raft: &RaftNode) -> MessageCheck {
        let raft = &raft.raft;
        MessageCheck {
            id: raft.id,
            term: raft.term,
            last: raft.raft_log.last_index(),
            leads: raft.state == StateRole::Leader,
        }
    }

    /// Checks a message that came from this node.
    ///
    /// # Errors
    /// Returns the objection to the message.
    pub(super) fn check(
        &self,
        from: NodeId,
        envelope: &MemberMessage<'_>,
    ) -> Result<(), MessageObjection> {
        match envelope {
            MemberMessage::Raft(message) => self.check_raft(from, message),
            MemberMessage::Hello(hello) => match hello.raft_id {
                0 => Ok(()),
                id => Ok(sent_by(from, id)?),
            },
            MemberMessage::Invite { raft_id } => {
                // The first members are not invited.
                let is_valid = (2..=TERMS_AHEAD).contains(&(raft_id >> 16));
                Ok(require(is_valid, || format!("an invitation as {raft_id}"))?)
            }
            MemberMessage::SnapshotPiece {
                to,
                announces,
                total,
                offset,
                piece,
            } => {
                self.check_announcement(from, announces)?;
                require(*to == announces.to, || {
                    format!("a piece for {to} of a snapshot for {}", announces.to)
                })?;
                let end = offset.checked_add(piece.len() as u64);
                let is_within = end.is_some_and(|end| end <= *total) && *total <= SNAPSHOT_MAX;
                Ok(require(is_within, || {
                    format!("{} bytes at {offset} of a snapshot of {total}", piece.len())
                })?)
            }
            MemberMessage::SnapshotProgress {
                from: id, index, ..
            } => {
                sent_by(from, *id)?;
                Ok(check_index(*index)?)
            }
            MemberMessage::CommitIndexRequest { .. } => Ok(()),
            MemberMessage::StateHashRequest { index }
            | MemberMessage::StateHashReply { index, .. } => Ok(check_index(*index)?),
            MemberMessage::CommitIndexReply { term, index, .. } => {
                self.check_term(*term)?;
                Ok(check_index(*index)?)
            }
        }
    }

    fn check_raft(&self, from: NodeId, message: &Message) -> Result<(), MessageObjection> {
        let kind = message.get_msg_type();
        require(is_sent(kind), || format!("a message of the kind {kind:?}"))?;
        sent_by(from, message.from)?;
        // Proposals and reads that a former leader passes on have no term, and are dropped.
        if is_forwarded(kind) {
            return Ok(());
        }
        self.check_term(message.term)?;
        check_index(message.index)?;
        check_index(message.commit)?;
        require(message.request_snapshot == 0, || {
            "it asks for a snapshot by itself".to_owned()
        })?;
        require(
            message.entries.is_empty() || kind == MessageType::MsgAppend,
            || format!("entries in a message of the kind {kind:?}"),
        )?;
        if kind == MessageType::MsgAppend {
            check_entries(message)?;
        }
        if message.to == self.id {
            self.check_progress(message)?;
        }
        Ok(())
    }

    /// Checks the part of a message that concerns this member's own log.
    fn check_progress(&self, message: &Message) -> Result<(), MessageObjection> {
        let from_leader = message.term >= self.term;
        let to_leader = self.leads && message.term == self.term;
        match message.get_msg_type() {
            MessageType::MsgHeartbeat if from_leader && message.commit > self.last => {
                Err(MessageObjection::BeyondLog {
                    claimed: message.commit,
                    last: self.last,
                })
            }
            MessageType::MsgHeartbeatResponse | MessageType::MsgAppendResponse if to_leader => {
                let greatest = message.index.max(message.commit);
                require(greatest <= self.last, || {
                    format!(
                        "it has entry {greatest}, and its leader's log ends at {}",
                        self.last
                    )
                })?;
                let hint = message.reject_hint;
                Ok(require(!message.reject || hint <= message.index, || {
                    format!(
                        "it rejects entry {} and gives {hint} as a hint",
                        message.index
                    )
                })?)
            }
            _ => Ok(()),
        }
    }

    /// Returns `true` if the message comes from a leader, and this member has the entries that the
    /// leader believes it to have.
    pub(super) fn fits_log(&self, envelope: &MemberMessage<'_>) -> bool {
        let MemberMessage::Raft(message) = envelope else {
            return false;
        };
        let has = match message.get_msg_type() {
            MessageType::MsgHeartbeat => message.commit <= self.last,
            MessageType::MsgAppend => message.index <= self.last,
            _ => false,
        };
        has && message.to == self.id && message.term >= self.term
    }

    fn check_announcement(
        &self,
        from: NodeId,
        announces: &Message,
    ) -> Result<(), MalformedMessage> {
        let kind = announces.get_msg_type();
        let is_one = kind == MessageType::MsgSnapshot
            && announces.has_snapshot()
            && announces.entries.is_empty();
        require(is_one, || {
            format!("a snapshot's piece in a message of the kind {kind:?}")
        })?;
        sent_by(from, announces.from)?;
        self.check_term(announces.term)?;
        let meta = announces.get_snapshot().get_metadata();
        let is_valid = (1..=announces.term).contains(&meta.term) && meta.index > 0;
        require(is_valid, || {
            format!("a snapshot of entry {} in term {}", meta.index, meta.term)
        })?;
        check_index(meta.index)?;
        check_members(meta.get_conf_state())
    }

    fn check_term(&self, term: u64) -> Result<(), MalformedMessage> {
        let most = self.term.saturating_add(TERMS_AHEAD);
        require((1..=most).contains(&term), || {
            format!("the term {term}, when this member is in {}", self.term)
        })
    }
}

fn require(holds: bool, what: impl FnOnce() -> String) -> Result<(), MalformedMessage> {
    match holds {
        true => Ok(()),
        false => Err(MalformedMessage(what())),
    }
}

fn sent_by(node: NodeId, id: u64) -> Result<(), MalformedMessage> {
    require(id != 0 && node_of(id) == node, || {
        format!("it comes from node {node} and is signed by member {id}")
    })
}

fn check_index(index: u64) -> Result<(), MalformedMessage> {
    require(index <= INDEX_MAX, || format!("the index {index}"))
}

/// Returns `true` for the kinds of messages that members may send each other by themselves.
fn is_sent(kind: MessageType) -> bool {
    matches!(
        kind,
        MessageType::MsgAppend
            | MessageType::MsgAppendResponse
            | MessageType::MsgRequestVote
            | MessageType::MsgRequestVoteResponse
            | MessageType::MsgRequestPreVote
            | MessageType::MsgRequestPreVoteResponse
            | MessageType::MsgHeartbeat
            | MessageType::MsgHeartbeatResponse
            | MessageType::MsgTimeoutNow
    ) || is_forwarded(kind)
}

/// Returns `true` for the kinds of messages that the library passes on to a leader. This crate does
/// not use them.
pub(super) fn is_forwarded(kind: MessageType) -> bool {
    matches!(
        kind,
        MessageType::MsgPropose
            | MessageType::MsgReadIndex
            | MessageType::MsgReadIndexResp
            | MessageType::MsgTransferLeader
    )
}

fn check_entries(message: &Message) -> Result<(), MalformedMessage> {
    // The library takes an entry in term 0 for one that every log has.
    require((message.index == 0) == (message.log_term == 0), || {
        format!("entry {} in term {}", message.index, message.log_term)
    })?;
    let mut previous = (message.index, message.log_term.max(1));
    for entry in &message.entries {
        let follows = entry.index == previous.0 + 1;
        let in_order = (previous.1..=message.term).contains(&entry.term);
        require(follows && in_order, || {
            format!(
                "entry {} of term {} behind entry {} of term {}, in term {}",
                entry.index, entry.term, previous.0, previous.1, message.term
            )
        })?;
        check_entry(entry)?;
        previous = (entry.index, entry.term);
    }
    Ok(())
}

/// Checks that an entry can be applied. An entry that cannot be applied would prevent the member
/// from starting.
fn check_entry(entry: &Entry) -> Result<(), MalformedMessage> {
    let older = entry.get_entry_type() == EntryType::EntryConfChange;
    require(!older, || {
        format!(
            "entry {}: a change of members of the older kind",
            entry.index
        )
    })?;
    let read = count_changes(entry).map(drop);
    read.map_err(|error| MalformedMessage(format!("entry {}: {error}", entry.index)))
}

fn check_members(members: &ConfState) -> Result<(), MalformedMessage> {
    let set = |list: &[u64]| list.iter().copied().collect::<BTreeSet<u64>>();
    let lists = [
        &members.voters,
        &members.learners,
        &members.voters_outgoing,
        &members.learners_next,
    ];
    let [voters, learners, outgoing, next] = lists.map(|list| set(list));
    let unique = lists
        .iter()
        .zip([&voters, &learners, &outgoing, &next])
        .all(|(list, set)| list.len() == set.len() && !set.contains(&0));
    let is_valid = unique
        && !voters.is_empty()
        && learners.is_disjoint(&voters)
        && learners.is_disjoint(&outgoing)
        && next.is_subset(&outgoing)
        && next.is_disjoint(&voters)
        && (!members.auto_leave || !outgoing.is_empty());
    require(is_valid, || format!("the members {members:?}"))
}

#[cfg(test)]
mod tests {
    use raft::eraftpb::Snapshot;

    use crate::entry_validation::checksum;
    use crate::wire::Payload;

    use super::*;
    use crate::messages::Hello;

    const ME: u64 = 1 << 16 | 1;
    const OTHER: u64 = 1 << 16 | 2;

    fn view(leads: bool) -> MessageCheck {
        MessageCheck {
            id: ME,
            term: 5,
            last: 10,
            leads,
        }
    }

    fn message(kind: MessageType) -> Message {
        let mut message = Message::default();
        message.set_msg_type(kind);
        (message.to, message.from, message.term) = (ME, OTHER, 5);
        message
    }

    fn entry(index: u64, term: u64) -> Entry {
        let mut entry = Entry::default();
        (entry.index, entry.term) = (index, term);
        entry
    }

    fn append(entries: Vec<Entry>) -> Message {
        let mut message = message(MessageType::MsgAppend);
        (message.index, message.log_term, message.commit) = (10, 4, 10);
        message.entries = entries.into();
        message
    }

    fn check(view: MessageCheck, message: Message) -> Result<(), MessageObjection> {
        view.check(NodeId(2), &MemberMessage::Raft(message))
    }

    fn is_malformed(checked: Result<(), MessageObjection>) -> bool {
        matches!(checked, Err(MessageObjection::Malformed(_)))
    }

    #[test]
    fn what_members_send_is_taken() {
        for kind in [
            MessageType::MsgRequestVote,
            MessageType::MsgRequestPreVoteResponse,
            MessageType::MsgHeartbeat,
            MessageType::MsgTimeoutNow,
        ] {
            assert_eq!(check(view(false), message(kind)), Ok(()));
        }
        let entries = vec![entry(11, 4), entry(12, 5), entry(13, 5)];
        assert_eq!(check(view(false), append(entries)), Ok(()));
        let mut first = append(vec![entry(1, 1)]);
        (first.index, first.log_term) = (0, 0);
        assert_eq!(check(view(false), first), Ok(()));
        let mut response = message(MessageType::MsgAppendResponse);
        (response.index, response.commit) = (10, 9);
        assert_eq!(check(view(true), response.clone()), Ok(()));
        // A response of another term says nothing about this one.
        (response.index, response.term) = (11, 4);
        assert_eq!(check(view(true), response.clone()), Ok(()));
        assert_eq!(check(view(false), response), Ok(()));
    }

    #[test]
    fn an_entry_that_has_changed_on_the_way_is_malformed() {
        let mut data = Vec::new();
        Payload::Tick { stamp_ms: 7 }.encode(&mut data);
        let proposed = Entry {
            context: checksum(&data).to_vec().into(),
            data: data.clone().into(),
            ..entry(11, 5)
        };
        assert_eq!(check(view(false), append(vec![proposed.clone()])), Ok(()));
        // It is still an entry that could be applied.
        *data.last_mut().expect("a byte") ^= 1;
        let changed = Entry {
            data: data.into(),
            ..proposed
        };
        assert!(is_malformed(check(view(false), append(vec![changed]))));
    }

    #[test]
    fn a_heartbeat_commits_no_more_than_there_is() {
        let mut heartbeat = message(MessageType::MsgHeartbeat);
        heartbeat.commit = 10;
        assert_eq!(check(view(false), heartbeat.clone()), Ok(()));
        heartbeat.commit = 1 << 40;
        let checked = check(view(false), heartbeat.clone());
        assert_eq!(
            checked,
            Err(MessageObjection::BeyondLog {
                claimed: 1 << 40,
                last: 10,
            })
        );
        // The message is for an earlier member of this node, or comes from a leader of the past.
        heartbeat.to = OTHER << 1;
        assert_eq!(check(view(false), heartbeat.clone()), Ok(()));
        (heartbeat.to, heartbeat.term) = (ME, 4);
        assert_eq!(check(view(false), heartbeat.clone()), Ok(()));
        heartbeat.commit = u64::MAX;
        assert!(is_malformed(check(view(false), heartbeat)));
    }

    #[test]
    fn terms_senders_and_kinds_are_checked() {
        for term in [0, 6 + TERMS_AHEAD, u64::MAX] {
            let mut vote = message(MessageType::MsgRequestVote);
            vote.term = term;
            assert!(is_malformed(check(view(false), vote)), "{term}");
        }
        for from in [0, ME, 1 << 16 | 3] {
            let mut vote = message(MessageType::MsgRequestVote);
            vote.from = from;
            assert!(is_malformed(check(view(false), vote)), "{from}");
        }
        for kind in [
            MessageType::MsgHup,
            MessageType::MsgBeat,
            MessageType::MsgUnreachable,
            MessageType::MsgSnapshot,
        ] {
            assert!(is_malformed(check(view(false), message(kind))), "{kind:?}");
        }
        let mut asks = message(MessageType::MsgAppendResponse);
        asks.request_snapshot = 3;
        assert!(is_malformed(check(view(true), asks)));
        let hello = |raft_id| {
            let hello = Hello {
                raft_id,
                ..Hello::default()
            };
            view(false).check(NodeId(2), &MemberMessage::Hello(hello))
        };
        assert_eq!(hello(0), Ok(()));
        assert_eq!(hello(OTHER), Ok(()));
        assert!(is_malformed(hello(ME)));
        let invite = |raft_id| view(false).check(NodeId(2), &MemberMessage::Invite { raft_id });
        assert_eq!(invite(2 << 16 | 1), Ok(()));
        assert!(is_malformed(invite(ME)) && is_malformed(invite(u64::MAX)));
    }

    #[test]
    fn entries_follow_each_other_and_can_be_applied() {
        let mut unreadable = entry(11, 5);
        unreadable.data = b"\xffnothing".to_vec().into();
        let mut older = entry(11, 5);
        older.set_entry_type(EntryType::EntryConfChange);
        for entries in [
            vec![entry(12, 5)],
            vec![entry(11, 5), entry(13, 5)],
            vec![entry(11, 3)],
            vec![entry(11, 5), entry(12, 4)],
            vec![entry(11, 6)],
            vec![unreadable],
            vec![older],
        ] {
            let what = format!("{entries:?}");
            assert!(is_malformed(check(view(false), append(entries))), "{what}");
        }
        // The library would take this for an entry that it has.
        let mut without_term = append(Vec::new());
        (without_term.index, without_term.log_term) = (1 << 40, 0);
        assert!(is_malformed(check(view(false), without_term)));
    }

    #[test]
    fn a_follower_has_no_more_than_its_leader() {
        for (index, commit, hint) in [(11, 0, 0), (10, 11, 0), (10, 0, 11), (10, 0, u64::MAX)] {
            let mut response = message(MessageType::MsgAppendResponse);
            (response.index, response.commit) = (index, commit);
            (response.reject, response.reject_hint) = (hint > 0, hint);
            let checked = check(view(true), response);
            assert!(is_malformed(checked), "{index} {commit} {hint}");
        }
    }

    #[test]
    fn snapshots_are_announced_as_they_can_be() {
        let piece = |change: &dyn Fn(&mut Message), (total, offset): (u64, u64)| {
            let mut announces = message(MessageType::MsgSnapshot);
            let mut snapshot = Snapshot::default();
            (snapshot.mut_metadata().index, snapshot.mut_metadata().term) = (20, 5);
            let members = ConfState::from((vec![ME, OTHER], vec![]));
            snapshot.mut_metadata().set_conf_state(members);
            announces.set_snapshot(snapshot);
            change(&mut announces);
            let piece = MemberMessage::SnapshotPiece {
                to: ME,
                announces,
                total,
                offset,
                piece: b"12345",
            };
            view(false).check(NodeId(2), &piece)
        };
        assert_eq!(piece(&|_| {}, (10, 5)), Ok(()));
        for range in [(10, 6), (10, u64::MAX), (u64::MAX, 0)] {
            assert!(is_malformed(piece(&|_| {}, range)), "{range:?}");
        }
        let changes: [&dyn Fn(&mut Message); 8] = [
            &|announces| announces.term = u64::MAX,
            &|announces| announces.set_msg_type(MessageType::MsgAppend),
            &|announces| announces.from = 1 << 16 | 3,
            &|announces| announces.mut_snapshot().mut_metadata().term = 0,
            &|announces| announces.mut_snapshot().mut_metadata().term = 6,
            &|announces| announces.mut_snapshot().mut_metadata().index = u64::MAX,
            &|announces| {
                let members = ConfState::default();
                announces
                    .mut_snapshot()
                    .mut_metadata()
                    .set_conf_state(members);
            },
            &|announces| {
                let members = ConfState::from((vec![ME, ME, OTHER], vec![]));
                announces
                    .mut_snapshot()
                    .mut_metadata()
                    .set_conf_state(members);
            },
        ];
        for (at, change) in changes.into_iter().enumerate() {
            assert!(is_malformed(piece(change, (10, 5))), "{at}");
        }
    }
}
