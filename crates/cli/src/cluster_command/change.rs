//! `kumiki cluster add`, `remove` and `transfer`: send the leader the command, and show its
//! progress.

use std::io::IsTerminal;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use base::NodeId;
use cluster::Topology;
use cluster::topology::{NodeInfo, PartitionInfo};
use server::replication::Report;

use super::survey::{PartitionSurvey, REMOVED, stopped};
use crate::node_connection::{CLOSED, Credentials, NodeConnection};
use crate::output::say_line;

/// The interval at which progress is shown.
const TELL: Duration = Duration::from_secs(1);
/// How long a leader is looked for.
const SEARCH: Duration = Duration::from_secs(10);
/// The interval at which it is looked for.
const LOOK: Duration = Duration::from_millis(200);

/// The state that the command aims at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TargetState {
    /// The node is a member with a vote.
    Member,
    /// The node is no member.
    NoMember,
    /// The node leads.
    Leader,
}

/// The change, and how long it may take.
pub(super) struct Change<'a> {
    pub(super) topology: &'a Topology,
    pub(super) partition: &'a PartitionInfo,
    pub(super) credentials: &'a Credentials,
    pub(super) patience: Duration,
}

impl Change<'_> {
    /// Makes the leader change it, and waits until it is done.
    ///
    /// # Errors
    /// The text says why it is not done, and what to do.
    pub(super) fn run(&self, wanted: TargetState, node: Option<u16>) -> Result<(), String> {
        let until = Instant::now() + self.patience;
        let survey = self.find_leader(until)?;
        let leader = survey.leader().expect("it was found");
        if let Some(said) = done_already(&survey, leader, wanted, node) {
            say_line!("{said}");
            return Ok(());
        }
        check(&survey, wanted, node)?;
        let (info, _) = survey.node(NodeId(leader.node)).expect("it has answered");
        let is_blank = node.is_some_and(|node| {
            let found = survey.node(NodeId(node));
            found.is_some_and(|(_, said)| said.as_ref().is_ok_and(|said| said.role == "blank"))
        });
        let heard_by = until.min(Instant::now() + SEARCH);
        loop {
            let outcome = self.ask_leader(info, wanted, node, until);
            match outcome {
                // The leader has not heard from a node that has just started.
                Err(said) if is_blank && is_unheard(&said) && Instant::now() < heard_by => {
                    std::thread::sleep(LOOK);
                }
                Err(said) => return Err(explained(&said, leader.node)),
                Ok(()) => break,
            }
        }
        self.confirm(wanted, node, leader, until)
    }

    /// Sends the leader the command, and shows progress until it has answered.
    fn ask_leader(
        &self,
        leader: &NodeInfo,
        wanted: TargetState,
        node: Option<u16>,
        until: Instant,
    ) -> Result<(), String> {
        let mut connection = NodeConnection::to_node(leader, self.credentials)?;
        let number = node.map(|node| node.to_string());
        let mut command = vec!["CLUSTER", "REPLICATION"];
        command.push(match wanted {
            TargetState::Member => "ADD",
            TargetState::NoMember => "REMOVE",
            TargetState::Leader => "TRANSFER",
        });
        command.extend(number.as_deref());
        let (sender, receiver) = mpsc::channel();
        std::thread::scope(|scope| {
            let patience = self.patience;
            scope.spawn(move || {
                let outcome = connection.ask(&command, patience);
                // The receiver may have given up.
                drop(sender.send(outcome));
            });
            self.watch(&receiver, node, until)
        })
    }

    /// Asks all nodes until one of them leads.
    fn find_leader(&self, until: Instant) -> Result<PartitionSurvey, String> {
        let until = until.min(Instant::now() + SEARCH);
        loop {
            let survey = PartitionSurvey::take(self.topology, self.partition, self.credentials);
            if survey.leader().is_some() {
                return Ok(survey);
            }
            if Instant::now() >= until {
                let nodes = survey.nodes.iter();
                let silent = nodes.filter_map(|(info, said)| Some((info.id, said.as_ref().err()?)));
                let silent: String = silent
                    .map(|(id, error)| format!("; node {id}: {error}"))
                    .collect();
                return Err(survey.without_leader() + &silent);
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Shows progress until the leader has answered.
    fn watch(
        &self,
        answer: &mpsc::Receiver<Result<String, String>>,
        node: Option<u16>,
        until: Instant,
    ) -> Result<(), String> {
        let mut told = ShownProgress::default();
        loop {
            match answer.recv_timeout(TELL) {
                Ok(outcome) => {
                    told.end();
                    return outcome.map(|_| ());
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err("the leader was not asked".to_owned());
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            if Instant::now() >= until {
                told.end();
                return Err(format!(
                    "it has taken longer than {} s, and may still be under way: kumiki cluster \
                     status tells; --timeout has this command wait longer",
                    self.patience.as_secs()
                ));
            }
            let survey = PartitionSurvey::take(self.topology, self.partition, self.credentials);
            told.tell(&progress(&survey, node));
        }
    }

    /// Waits until the nodes themselves report the wanted state.
    fn confirm(
        &self,
        wanted: TargetState,
        node: Option<u16>,
        before: &Report,
        until: Instant,
    ) -> Result<(), String> {
        loop {
            let survey = PartitionSurvey::take(self.topology, self.partition, self.credentials);
            if let Some(leader) = survey.leader()
                && is_so(&survey, leader, wanted, node, before)
            {
                let id = self.partition.id;
                let node = node.unwrap_or(leader.node);
                say_line!(
                    "{}",
                    match wanted {
                        TargetState::Member =>
                            format!("node {node} is a member of partition {id}, with a vote"),
                        TargetState::NoMember =>
                            format!("node {node} is no member of partition {id} any more"),
                        TargetState::Leader => format!("node {node} leads partition {id}"),
                    }
                );
                return Ok(());
            }
            if Instant::now() >= until {
                return Err(format!(
                    "the leader has agreed, and it is not seen to be so: {}",
                    survey.problems().join("; ")
                ));
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// Returns `true` if the wanted state is reached.
fn is_so(
    survey: &PartitionSurvey,
    leader: &Report,
    wanted: TargetState,
    node: Option<u16>,
    before: &Report,
) -> bool {
    let of_node = |node: u16| leader.members.iter().filter(move |one| one.node == node);
    match (wanted, node) {
        (TargetState::Member, Some(node)) => {
            let (_, said) = survey.node(NodeId(node)).expect("a node of the partition");
            let takes_part = said.as_ref().is_ok_and(|said| {
                matches!(
                    said.role.as_str(),
                    "follower" | "candidate" | "leader" | "elected"
                )
            });
            takes_part && of_node(node).any(|member| member.voter && member.active)
        }
        (TargetState::NoMember, Some(node)) => of_node(node).next().is_none(),
        (TargetState::Leader, Some(node)) => leader.node == node,
        (TargetState::Leader, None) => leader.node != before.node,
        (TargetState::Member | TargetState::NoMember, None) => unreachable!("a node is named"),
    }
}

/// Returns the message for a command that has nothing to do.
fn done_already(
    survey: &PartitionSurvey,
    leader: &Report,
    wanted: TargetState,
    node: Option<u16>,
) -> Option<String> {
    let node = node?;
    let id = survey.partition.id;
    is_so(survey, leader, wanted, Some(node), leader).then(|| match wanted {
        TargetState::Member => format!("node {node} is a member of partition {id} already"),
        TargetState::NoMember => format!("node {node} is no member of partition {id}"),
        TargetState::Leader => format!("node {node} leads partition {id} already"),
    })
}

/// Refuses commands that cannot work, if the leader would not notice.
fn check(survey: &PartitionSurvey, wanted: TargetState, node: Option<u16>) -> Result<(), String> {
    let Some((info, said)) = node.and_then(|node| survey.node(NodeId(node))) else {
        return Ok(());
    };
    match (wanted, said) {
        (TargetState::NoMember, _) => Ok(()),
        (_, Err(error)) => Err(format!(
            "node {}: {error}; start it first: kumiki serve --cluster FILE --node {} --data DIR",
            info.id, info.id
        )),
        // An earlier command has left it so, when the leader was lost: the next command continues.
        (TargetState::Member, Ok(report)) if report.role == "learner" => Ok(()),
        (TargetState::Member, Ok(report)) if report.role == "stopped" => {
            Err(format!("node {} has stopped: {}", info.id, stopped(report)))
        }
        (TargetState::Member, Ok(report)) if survey.role(report) == REMOVED => Err(format!(
            "node {} was removed: {}",
            info.id,
            survey.add_again(info.id)
        )),
        (TargetState::Member, Ok(report)) if report.role != "blank" => Err(format!(
            "node {} is a {} and keeps data of its own: stop it, remove its data directory, and \
             start it again, so that it gets a copy",
            info.id, report.role
        )),
        _ => Ok(()),
    }
}

/// Returns `true` if a leader has refused to add a node because it has not heard from it.
fn is_unheard(said: &str) -> bool {
    said.contains(replica::NOT_WAITING)
}

/// Explains the leader's answer, or the loss of the leader.
fn explained(said: &str, leader: u16) -> String {
    if said != CLOSED {
        return said.to_owned();
    }
    format!(
        "node {leader}, which led, has closed the connection before it was done: whether the members have \
         changed is not known. kumiki cluster status tells; the same command can be given again"
    )
}

/// Describes the progress in one line.
fn progress(survey: &PartitionSurvey, node: Option<u16>) -> String {
    let Some(leader) = survey.leader() else {
        return "no member leads at the moment".to_owned();
    };
    let member = node.and_then(|node| {
        let members = leader.members.iter().filter(|one| one.node == node);
        members.max_by_key(|member| member.id)
    });
    let Some(member) = member else {
        return format!("node {} works at it", leader.node);
    };
    let mib = |bytes: u64| bytes as f64 / 1_048_576.0;
    let copy = member.snapshot.map_or_else(String::new, |copy| {
        let (done, total) = (mib(copy.done), mib(copy.total));
        format!(", {done:.1} of {total:.1} MiB of a snapshot")
    });
    format!(
        "node {} lacks {} entries{copy}",
        member.node,
        leader.lag_of(member)
    )
}

/// Progress on standard error: one line on a terminal, else a line whenever it changes.
#[derive(Default)]
struct ShownProgress {
    last: String,
}

impl ShownProgress {
    fn tell(&mut self, line: &str) {
        if self.last == line {
            return;
        }
        if std::io::stderr().is_terminal() {
            eprint!("\r\x1b[Kkumiki: {line}");
        } else {
            eprintln!("kumiki: {line}");
        }
        line.clone_into(&mut self.last);
    }

    fn end(&self) {
        if !self.last.is_empty() && std::io::stderr().is_terminal() {
            eprintln!();
        }
    }
}

#[cfg(test)]
mod tests {
    use base::PartitionId;
    use cluster::topology::NodeInfo;
    use server::replication::{Member, Progress};

    use super::*;

    fn survey() -> PartitionSurvey {
        let member = |node: u16, id, voter| Member {
            node,
            id,
            voter,
            active: true,
            matched: 90,
            snapshot: None,
        };
        let leader = Report {
            partition: 1,
            node: 1,
            role: "leader".to_owned(),
            term: 3,
            last: 100,
            members: vec![
                member(1, 65_537, true),
                member(2, 65_538, true),
                Member {
                    snapshot: Some(Progress {
                        done: 1 << 20,
                        total: 2 << 20,
                    }),
                    ..member(3, 131_075, false)
                },
            ],
            ..Report::default()
        };
        let of = |node: u16, role: &str| Report {
            node,
            role: role.to_owned(),
            members: Vec::new(),
            ..leader.clone()
        };
        let info = |id: u16| NodeInfo {
            id: NodeId(id),
            client: ([127, 0, 0, 1], 7000 + id).into(),
            tls: None,
            fabric: ([127, 0, 0, 1], 17000 + id).into(),
            replica: None,
        };
        let (two, three) = (of(2, "follower"), of(3, "learner"));
        PartitionSurvey {
            partition: PartitionInfo {
                id: PartitionId(1),
                slots: vec![0..=16383],
                nodes: [1, 2, 3].map(NodeId).to_vec(),
            },
            nodes: vec![
                (info(1), Ok(leader)),
                (info(2), Ok(two)),
                (info(3), Ok(three)),
            ],
        }
    }

    #[test]
    fn what_is_so_is_told_and_what_is_not_is_waited_for() {
        let survey = survey();
        let leader = survey.leader().unwrap();
        let so = |wanted, node| is_so(&survey, leader, wanted, Some(node), leader);
        assert!(
            so(TargetState::Member, 2)
                && so(TargetState::Leader, 1)
                && so(TargetState::NoMember, 9)
        );
        assert!(!so(TargetState::Member, 3), "it has no vote yet");
        assert!(!so(TargetState::Leader, 2) && !so(TargetState::NoMember, 3));
        assert!(!is_so(&survey, leader, TargetState::Leader, None, leader));
        let said = done_already(&survey, leader, TargetState::Leader, Some(1)).unwrap();
        assert!(said.contains("leads partition 1 already"), "{said}");
        assert_eq!(
            progress(&survey, Some(3)),
            "node 3 lacks 10 entries, 1.0 of 2.0 MiB of a snapshot"
        );
    }

    #[test]
    fn a_leader_that_is_gone_is_explained() {
        let said = explained(CLOSED, 2);
        for words in ["node 2", "not known", "kumiki cluster status", "again"] {
            assert!(said.contains(words), "{said}");
        }
        assert_eq!(explained("it leads already", 2), "it leads already");
    }

    #[test]
    fn what_cannot_work_is_refused_with_what_to_do() {
        let mut survey = survey();
        let said = check(&survey, TargetState::Member, Some(2)).unwrap_err();
        assert!(said.contains("remove its data directory"), "{said}");
        let mut removed = survey.nodes[1].1.clone().unwrap();
        removed.role = "candidate".to_owned();
        let leader = survey.nodes[0].1.as_mut().unwrap();
        leader.members.retain(|member| member.node != 2);
        survey.nodes[1].1 = Ok(removed);
        let said = check(&survey, TargetState::Member, Some(2)).unwrap_err();
        assert!(
            said.contains("node 2 was removed") && said.contains("delete its data directory"),
            "{said}"
        );
        survey.nodes[2].1 = Err("127.0.0.1:7003 does not answer".to_owned());
        let said = check(&survey, TargetState::Member, Some(3)).unwrap_err();
        assert!(
            said.contains("start it first") && said.contains("--node 3"),
            "{said}"
        );
        assert!(check(&survey, TargetState::NoMember, Some(3)).is_ok());
    }
}
