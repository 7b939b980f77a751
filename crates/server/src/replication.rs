//! A node's report on the replicas of its partition: the answer to `CLUSTER REPLICATION STATUS`,
//! which `kumiki cluster` reads.
//!
//! It consists of lines `name:value`, like those of `INFO`. Readers ignore names that they do not
//! know.
//!
//! | name | value |
//! |---|---|
//! | `partition` | number of the node's partition; 0: it holds none |
//! | `node` | the node |
//! | `role` | `leader`, `elected` (it leads, and cannot serve yet), `follower`, `candidate`, `learner` (without a vote), `blank` (its disk is empty), `removed`, `stopped` (it does not go on until the process is restarted), or `alone`: the partition is not replicated |
//! | `leader` | who leads, as far as the node knows; left out if it does not |
//! | `term` | its term |
//! | `last`, `committed`, `applied`, `snapshot` | indexes in the log: the last entry, the last that is known to be committed, the last that is executed, that of the newest snapshot |
//! | `stale_ms` | how old what it has may be, in milliseconds; left out if that is not known |
//! | `receiving` | bytes of a snapshot that have come, and of how many: `12/80` |
//! | `note` | what it waits for, or what is wrong |
//! | `member` | one for each member: `node=2,id=65538,voter=1,active=1,matched=17`, and `snapshot=12/80` while it gets one; `matched` and `active` are known to the leader alone |

use std::fmt::{self, Display, Write};

/// See the module's description.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // The fields are those of the module's table.
pub struct Report {
    pub partition: u16,
    pub node: u16,
    pub role: String,
    pub leader: Option<u16>,
    pub term: u64,
    pub last: u64,
    pub committed: u64,
    pub applied: u64,
    pub snapshot: u64,
    pub stale_ms: Option<u64>,
    pub receiving: Option<Progress>,
    pub note: Option<String>,
    pub members: Vec<Member>,
}

/// A member, as the node knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Member {
    /// Its node.
    pub node: u16,
    /// Its number in the group, which changes after it has lost its disk.
    pub id: u64,
    /// `true` if it has a vote.
    pub voter: bool,
    /// `true` if the leader has heard from it lately.
    pub active: bool,
    /// The last entry that it is known to have.
    pub matched: u64,
    /// The progress of a snapshot that it receives.
    pub snapshot: Option<Progress>,
}

/// Bytes that have come, and their total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that have come.
    pub done: u64,
    /// Bytes in total.
    pub total: u64,
}

/// The role of a node whose partition is on it alone.
pub const ALONE: &str = "alone";
/// The role of a node that leads and serves.
pub const LEADER: &str = "leader";

/// Why a node's answer is not a report. Another request would get the same answer; the node may be of
/// another version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReportError {
    /// A line that cannot be parsed.
    #[error("the node's report has a malformed line: '{0}'")]
    Line(String),
    /// The line with the role is missing.
    #[error("the node's report lacks its role")]
    NoRole,
}

impl Report {
    /// Parses a node's answer.
    ///
    /// # Errors
    /// Returns a [`ReportError`] if a line is malformed, or the role is missing.
    pub fn parse(text: &str) -> Result<Report, ReportError> {
        let mut report = Report::default();
        for line in text.lines().filter(|line| !line.is_empty()) {
            let read = line.split_once(':').and_then(|(name, value)| {
                let known = report.set(name, value);
                known.is_some().then_some(())
            });
            read.ok_or_else(|| ReportError::Line(line.to_owned()))?;
        }
        match report.role.is_empty() {
            true => Err(ReportError::NoRole),
            false => Ok(report),
        }
    }

    /// Sets a field; `None` if its value is malformed.
    fn set(&mut self, name: &str, value: &str) -> Option<()> {
        match name {
            "partition" => self.partition = value.parse().ok()?,
            "node" => self.node = value.parse().ok()?,
            "role" => value.clone_into(&mut self.role),
            "leader" => self.leader = Some(value.parse().ok()?),
            "term" => self.term = value.parse().ok()?,
            "last" => self.last = value.parse().ok()?,
            "committed" => self.committed = value.parse().ok()?,
            "applied" => self.applied = value.parse().ok()?,
            "snapshot" => self.snapshot = value.parse().ok()?,
            "stale_ms" => self.stale_ms = Some(value.parse().ok()?),
            "receiving" => self.receiving = Some(Progress::parse(value)?),
            "note" => self.note = Some(value.to_owned()),
            "member" => self.members.push(Member::parse(value)?),
            _ => {}
        }
        Some(())
    }

    /// Returns the number of entries that a member lacks, as this node, the leader, knows.
    #[must_use]
    pub fn lag_of(&self, member: &Member) -> u64 {
        self.last.saturating_sub(member.matched)
    }
}

impl Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "partition:{}\r\nnode:{}\r\n", self.partition, self.node)?;
        write!(f, "role:{}\r\n", self.role)?;
        if let Some(leader) = self.leader {
            write!(f, "leader:{leader}\r\n")?;
        }
        for (name, value) in [
            ("term", self.term),
            ("last", self.last),
            ("committed", self.committed),
            ("applied", self.applied),
            ("snapshot", self.snapshot),
        ] {
            write!(f, "{name}:{value}\r\n")?;
        }
        if let Some(stale_ms) = self.stale_ms {
            write!(f, "stale_ms:{stale_ms}\r\n")?;
        }
        if let Some(receiving) = self.receiving {
            write!(f, "receiving:{receiving}\r\n")?;
        }
        if let Some(note) = &self.note {
            write!(f, "note:{}\r\n", note.replace(['\r', '\n'], " "))?;
        }
        let mut members = self.members.iter();
        members.try_for_each(|member| write!(f, "member:{member}\r\n"))
    }
}

impl Member {
    fn parse(text: &str) -> Option<Member> {
        let mut member = Member::default();
        for field in text.split(',') {
            let (name, value) = field.split_once('=')?;
            match name {
                "node" => member.node = value.parse().ok()?,
                "id" => member.id = value.parse().ok()?,
                "voter" => member.voter = value == "1",
                "active" => member.active = value == "1",
                "matched" => member.matched = value.parse().ok()?,
                "snapshot" => member.snapshot = Some(Progress::parse(value)?),
                _ => {}
            }
        }
        Some(member)
    }
}

impl Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (voter, active) = (u8::from(self.voter), u8::from(self.active));
        write!(
            f,
            "node={},id={},voter={voter},active={active},matched={}",
            self.node, self.id, self.matched
        )?;
        match self.snapshot {
            Some(snapshot) => write!(f, ",snapshot={snapshot}"),
            None => Ok(()),
        }
    }
}

impl Progress {
    fn parse(text: &str) -> Option<Progress> {
        let (done, total) = text.split_once('/')?;
        Some(Progress {
            done: done.parse().ok()?,
            total: total.parse().ok()?,
        })
    }
}

impl Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.done)?;
        f.write_char('/')?;
        write!(f, "{}", self.total)
    }
}

impl From<(u64, u64)> for Progress {
    fn from((done, total): (u64, u64)) -> Progress {
        Progress { done, total }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_come_back() {
        let report = Report {
            partition: 2,
            node: 3,
            role: "learner".to_owned(),
            leader: Some(1),
            term: 4,
            last: 17,
            committed: 16,
            applied: 15,
            snapshot: 10,
            stale_ms: Some(3),
            receiving: Some(Progress { done: 1, total: 2 }),
            note: Some("waits:\r\nfor=itself, and".to_owned()),
            members: vec![
                Member {
                    node: 1,
                    id: 65_537,
                    voter: true,
                    active: true,
                    matched: 17,
                    snapshot: None,
                },
                Member {
                    node: 3,
                    snapshot: Some(Progress { done: 5, total: 9 }),
                    ..Member::default()
                },
            ],
        };
        let text = report.to_string();
        let expected = Report {
            note: Some("waits:  for=itself, and".to_owned()),
            ..report
        };
        assert_eq!(Report::parse(&text).as_ref(), Ok(&expected));
        let newer = format!("{text}colour:blue\r\nmember:node=4,colour=red\r\n");
        assert_eq!(Report::parse(&newer).unwrap().members[2].node, 4);
        assert_eq!(expected.lag_of(&expected.members[0]), 0);
        assert_eq!(expected.lag_of(&expected.members[1]), 17);
    }

    #[test]
    fn nonsense_is_no_report() {
        for text in [
            "",
            "role",
            "role:x\nterm:many",
            "role:x\nmember:node",
            "term:1",
        ] {
            assert!(Report::parse(text).is_err(), "{text:?}");
        }
    }
}
