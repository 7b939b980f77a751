//! `kumiki cluster status`: a table, or JSON.

use std::fmt::Write;

use serde_json::{Value, json};
use server::replication::Report;

use super::survey::{PartitionSurvey, Survey};
use crate::output::{say, say_line};

/// Prints the reports of the nodes.
///
/// # Errors
/// The text says what is wrong.
pub(super) fn tell(survey: &Survey, as_json: bool) -> Result<(), String> {
    let problems = survey.problems();
    if as_json {
        let text = serde_json::to_string_pretty(&json(survey, &problems));
        say_line!("{}", text.expect("JSON values have a text"));
    } else {
        say!("{}", table(survey));
    }
    if problems.is_empty() {
        return Ok(());
    }
    Err(problems.join("\nkumiki: "))
}

const HEADER: [&str; 8] = [
    "partition",
    "node",
    "role",
    "term",
    "applied",
    "lag",
    "contact",
    "note",
];

/// Returns a table with a line for each node.
fn table(survey: &Survey) -> String {
    let mut rows = vec![HEADER.map(str::to_owned)];
    for surveyed in &survey.partitions {
        rows.extend(surveyed.nodes.iter().map(|(info, said)| {
            let id = info.id.to_string();
            row(surveyed, info.id, said.as_ref(), id)
        }));
    }
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..HEADER.len()).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(&widths);
        let line: Vec<String> = cells
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        writeln!(text, "{}", line.join("  ").trim_end()).expect("a string grows");
    }
    text
}

fn row(
    surveyed: &PartitionSurvey,
    node: base::NodeId,
    said: Result<&Report, &String>,
    id: String,
) -> [String; 8] {
    let none = || "-".to_owned();
    let partition = surveyed.partition.id.to_string();
    let report = match said {
        Ok(report) => report,
        Err(error) => {
            let contact = contact(surveyed, node);
            let note = error.clone();
            return [partition, id, none(), none(), none(), none(), contact, note];
        }
    };
    let (leader, member) = (surveyed.leader(), surveyed.member(node));
    let lag = leader.zip(member);
    let lag = lag.map_or_else(none, |(leader, member)| leader.lag_of(member).to_string());
    [
        partition,
        id,
        surveyed.role(report).to_owned(),
        report.term.to_string(),
        report.applied.to_string(),
        lag,
        contact(surveyed, node),
        note(surveyed, node, report),
    ]
}

/// Describes if the leader hears from the node, and how old the node's data may be.
fn contact(surveyed: &PartitionSurvey, node: base::NodeId) -> String {
    let report = surveyed.node(node).and_then(|(_, said)| said.as_ref().ok());
    match (surveyed.leader(), surveyed.member(node)) {
        (Some(leader), _) if leader.node == node.0 => "itself".to_owned(),
        (Some(_), Some(member)) if !member.active => "lost".to_owned(),
        (Some(_), Some(_)) => match report.and_then(|report| report.stale_ms) {
            Some(ms) => format!("{ms} ms ago"),
            None => "yes".to_owned(),
        },
        _ => "-".to_owned(),
    }
}

fn note(surveyed: &PartitionSurvey, node: base::NodeId, report: &Report) -> String {
    let getting = surveyed.member(node).and_then(|member| member.snapshot);
    let mut notes = Vec::new();
    if let Some(progress) = report.receiving.or(getting) {
        let mib = |bytes: u64| bytes as f64 / 1_048_576.0;
        let (done, total) = (mib(progress.done), mib(progress.total));
        notes.push(format!("snapshot: {done:.1} of {total:.1} MiB"));
    }
    if surveyed.is_learner(node) {
        notes.push("has a place without a vote".to_owned());
    }
    notes.extend(report.note.clone());
    notes.join("; ")
}

fn json(survey: &Survey, problems: &[String]) -> Value {
    let partitions = survey.partitions.iter().map(|surveyed| {
        let nodes = surveyed.nodes.iter().map(|(info, said)| {
            let member = surveyed.member(info.id);
            let lag = surveyed.leader().zip(member);
            let lag = lag.map(|(leader, member)| leader.lag_of(member));
            let mut node = json!({
                "node": info.id.0,
                "address": info.client.to_string(),
                "voter": member.map(|member| member.voter),
                "active": member.map(|member| member.active),
                "lag": lag,
            });
            match said {
                Err(error) => node["error"] = json!(error),
                Ok(report) => {
                    node["role"] = json!(surveyed.role(report));
                    node["term"] = json!(report.term);
                    node["last"] = json!(report.last);
                    node["committed"] = json!(report.committed);
                    node["applied"] = json!(report.applied);
                    node["snapshot"] = json!(report.snapshot);
                    node["stale_ms"] = json!(report.stale_ms);
                    node["note"] = json!(report.note);
                }
            }
            node
        });
        let slots = surveyed.partition.slots.iter();
        json!({
            "partition": surveyed.partition.id.0,
            "slots": slots.map(|range| [*range.start(), *range.end()]).collect::<Vec<_>>(),
            "leader": surveyed.leader().map(|leader| leader.node),
            "term": surveyed.leader().map(|leader| leader.term),
            "nodes": nodes.collect::<Vec<_>>(),
        })
    });
    json!({ "partitions": partitions.collect::<Vec<_>>(), "problems": problems })
}

#[cfg(test)]
mod tests {
    use base::{NodeId, PartitionId};
    use cluster::topology::{NodeInfo, PartitionInfo};
    use server::replication::{Member, Progress};

    use super::*;

    fn survey() -> Survey {
        let info = |id: u16| NodeInfo {
            id: NodeId(id),
            client: ([127, 0, 0, 1], 7000 + id).into(),
            tls: None,
            fabric: ([127, 0, 0, 1], 17000 + id).into(),
            replica: Some(([127, 0, 0, 1], 27000 + id).into()),
        };
        let member = |node: u16, active, matched| Member {
            node,
            id: u64::from(node) + 65_536,
            voter: true,
            active,
            matched,
            snapshot: None,
        };
        let leader = Report {
            partition: 7,
            node: 2,
            role: "leader".to_owned(),
            leader: Some(2),
            term: 5,
            last: 120,
            applied: 119,
            members: vec![
                member(1, true, 100),
                member(2, true, 120),
                member(3, false, 9),
            ],
            ..Report::default()
        };
        let follower = Report {
            node: 1,
            role: "follower".to_owned(),
            applied: 99,
            stale_ms: Some(12),
            members: Vec::new(),
            receiving: Some(Progress {
                done: 1 << 20,
                total: 4 << 20,
            }),
            ..leader.clone()
        };
        let nodes = vec![
            (info(1), Ok(follower)),
            (info(2), Ok(leader)),
            (info(3), Err("127.0.0.1:7003 does not answer".to_owned())),
        ];
        let partition = PartitionInfo {
            id: PartitionId(7),
            slots: vec![0..=16383],
            nodes: [1, 2, 3].map(NodeId).to_vec(),
        };
        Survey {
            partitions: vec![PartitionSurvey { partition, nodes }],
        }
    }

    #[test]
    fn each_node_has_a_line() {
        let text = table(&survey());
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(lines[0], HEADER);
        assert_eq!(lines[1][..6], ["7", "1", "follower", "5", "99", "20"]);
        assert!(text.contains("12 ms ago") && text.contains("snapshot: 1.0 of 4.0 MiB"));
        assert_eq!(lines[2], ["7", "2", "leader", "5", "119", "0", "itself"]);
        assert_eq!(lines[3][..7], ["7", "3", "-", "-", "-", "-", "lost"]);
        assert!(text.lines().all(|line| line.trim_end() == line));
    }

    #[test]
    fn a_place_without_a_vote_is_shown_with_what_to_do() {
        let mut survey = survey();
        assert!(!table(&survey).contains("without a vote"));
        let leader = survey.partitions[0].nodes[1].1.as_mut().unwrap();
        leader.members[0].voter = false;
        let text = table(&survey);
        let line = text.lines().nth(1).unwrap();
        assert!(line.contains("has a place without a vote"), "{text}");
        let problems = survey.partitions[0].problems().join("\n");
        for word in ["cluster add --node 1 goes on", "cluster remove gives it up"] {
            assert!(problems.contains(word), "{problems}");
        }
        let node = survey.partitions[0].nodes[0].1.as_mut().unwrap();
        node.role = "stopped".to_owned();
        node.note = Some("its disk has failed".to_owned());
        let problems = survey.partitions[0].problems().join("\n");
        let said = "node 1 has stopped: its disk has failed; mend that, and restart";
        assert!(problems.contains(said), "{problems}");
    }

    #[test]
    fn a_node_that_is_not_heard_is_shown_with_the_cause() {
        let mut survey = survey();
        let silent = Report {
            node: 3,
            role: "candidate".to_owned(),
            ..Report::default()
        };
        survey.partitions[0].nodes[2].1 = Ok(Report {
            partition: 7,
            ..silent
        });
        let problem = |survey: &Survey| survey.partitions[0].problems().join("\n");
        let said = problem(&survey);
        assert!(said.contains("look at the network"), "{said}");
        let note = "no link to node 3: the secrets differ; give all nodes the same one";
        let leader = survey.partitions[0].nodes[1].1.as_mut().unwrap();
        leader.note = Some(note.to_owned());
        let said = problem(&survey);
        assert!(said.contains(note) && !said.contains("network"), "{said}");
        // The leader's report on another node is no cause.
        let leader = survey.partitions[0].nodes[1].1.as_mut().unwrap();
        leader.note = Some("no link to node 1: the secrets differ".to_owned());
        assert!(problem(&survey).contains("look at the network"));
        let full = "the disk is full: make room";
        let node = survey.partitions[0].nodes[2].1.as_mut().unwrap();
        node.note = Some(full.to_owned());
        let said = problem(&survey);
        assert!(said.contains(full) && !said.contains("network"), "{said}");
        // It is also shown when there is no leader.
        let leader = survey.partitions[0].nodes[1].1.as_mut().unwrap();
        leader.role = "candidate".to_owned();
        assert!(problem(&survey).contains(full));
    }

    #[test]
    fn a_note_of_a_node_is_a_problem() {
        let mut survey = survey();
        let note = "a snapshot of 115.0 MiB cannot be received: no space left on device";
        let node = survey.partitions[0].nodes[0].1.as_mut().unwrap();
        node.note = Some(note.to_owned());
        let problems = survey.partitions[0].problems();
        assert!(
            problems.contains(&format!("node 1: {note}")),
            "{problems:?}"
        );
    }

    #[test]
    fn a_removed_node_that_does_not_know_it_is_shown_as_removed() {
        let mut survey = survey();
        let candidate = Report {
            partition: 7,
            node: 3,
            role: "candidate".to_owned(),
            ..Report::default()
        };
        survey.partitions[0].nodes[2].1 = Ok(candidate);
        assert!(table(&survey).contains("candidate"));
        let leader = survey.partitions[0].nodes[1].1.as_mut().unwrap();
        leader.members.pop();
        let text = table(&survey);
        assert!(
            text.contains("removed") && !text.contains("candidate"),
            "{text}"
        );
        let problems = survey.partitions[0].problems();
        let said = problems.join("\n");
        let words = [
            "node 3 was removed",
            "delete its data directory",
            "cluster add --node 3",
        ];
        assert!(words.iter().all(|word| said.contains(word)), "{said}");
        let value = json(&survey, &problems);
        assert_eq!(value["partitions"][0]["nodes"][2]["role"], "removed");
    }

    #[test]
    fn a_stopped_member_that_a_restart_does_not_help_is_not_to_be_restarted() {
        let mut survey = survey();
        let note = "the data directory is older: run \"kumiki cluster add --node 1\"";
        let node = survey.partitions[0].nodes[0].1.as_mut().unwrap();
        node.role = "stopped".to_owned();
        node.note = Some(note.to_owned());
        let problems = survey.partitions[0].problems();
        let said = format!("node 1 has stopped: {note}");
        assert!(problems.contains(&said), "{problems:?}");
    }

    #[test]
    fn who_does_not_answer_is_a_problem() {
        let mut survey = survey();
        let problems = survey.partitions[0].problems();
        assert_eq!(problems, ["node 3: 127.0.0.1:7003 does not answer"]);
        let value = json(&survey, &problems);
        assert_eq!(value["partitions"][0]["leader"], 2);
        assert_eq!(value["partitions"][0]["nodes"][0]["lag"], 20);
        assert!(value["partitions"][0]["nodes"][2]["error"].is_string());
        survey.partitions[0].nodes[1].1 = Err("silent".to_owned());
        let problems = survey.partitions[0].problems().join("\n");
        assert!(
            problems.contains("has no leader: 1 of its 3 nodes answer, and 2"),
            "{problems}"
        );
    }
}
