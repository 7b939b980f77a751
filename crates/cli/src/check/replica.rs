//! Describes a replica's log and snapshots.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use base::NodeId;
use replica::{CheckReport, MemberData};
use store::RecoveryProgress;

use super::progress::CheckProgress;
use super::text::{count, mib, utc};

/// Verifies a replica in `dir`, and describes it.
///
/// # Errors
/// The text says what a start would refuse, and what to do.
pub(super) fn check(dir: &Path) -> Result<String, String> {
    let disk: Arc<dyn disk::Disk> = Arc::new(disk::RealDisk);
    let (start, progress) = (Instant::now(), CheckProgress::default());
    let checked = replica::check(&disk, dir, &mut |bytes_read, bytes_total| {
        progress.tell(&RecoveryProgress {
            bytes_read,
            bytes_total,
            entries: 0,
            elapsed: start.elapsed(),
        });
    });
    progress.end();
    let report = checked.map_err(|error| error.to_string())?;
    let seconds = start.elapsed().as_secs_f64();
    Ok(describe(dir, &report, seconds))
}

fn describe(dir: &Path, report: &CheckReport, seconds: f64) -> String {
    let mut text = String::new();
    let mut line = |name: &str, what: String| {
        writeln!(text, "{name:<12}{what}").expect("a string takes everything");
    };
    line("replica", dir.display().to_string());
    match &report.data {
        None => {
            let what = "nothing: it waits for the partition to begin, or to be added to it";
            line("holds", what.to_owned());
        }
        Some(data) => {
            for (name, what) in holdings(data) {
                line(name, what);
            }
        }
    }
    let rate = report.bytes as f64 / 1_048_576.0 / seconds.max(1e-9);
    let verified = format!("{} in {seconds:.2} s, {rate:.0} MiB/s", mib(report.bytes));
    line("verified", verified);
    line("result", "sound".to_owned());
    text
}

fn holdings(data: &MemberData) -> Vec<(&'static str, String)> {
    let log = &data.log;
    let (node, incarnation) = data.member();
    let (voters, learners) = data.members();
    let mut lines = vec![(
        "member",
        match incarnation {
            1 => format!("node {}", node.0),
            more => format!("node {}, added again {}", node.0, count(more - 1, "time")),
        },
    )];
    let mut who = format!("nodes {}", list(&voters));
    if voters.is_empty() {
        "not known yet: it has not got its copy".clone_into(&mut who);
    }
    if !learners.is_empty() {
        write!(who, ", without a vote {}", list(&learners)).expect("a string takes everything");
    }
    lines.push(("members", format!("{who}, as of entry {}", log.members.0)));
    match &data.snapshot {
        None => lines.push(("snapshot", "none".to_owned())),
        Some(file) => {
            lines.push(("snapshot", file.path.display().to_string()));
            let what = format!(
                "entry {} of term {}, {}, {}, {}",
                file.head.meta.index,
                file.head.meta.term,
                count(file.records, "key"),
                mib(file.bytes),
                utc(file.head.stamp_ms)
            );
            lines.push(("", what));
        }
    }
    let entries = match (log.floor.0, log.last.0) {
        (floor, last) if floor == last => format!("no entries behind {last}"),
        (floor, last) => format!("entries {} to {last}", floor + 1),
    };
    let what = format!(
        "{entries}, {}, {}, {}",
        count(data.changes, "change"),
        count(log.segments, "segment"),
        mib(log.bytes)
    );
    lines.push(("log", what));
    let vote = match log.hard.vote {
        0 => "no vote given".to_owned(),
        id => format!("vote for node {}", NodeId(id as u16).0),
    };
    lines.push(("term", format!("{}, {vote}", log.hard.term)));
    lines.push(("recovers", recovers(data)));
    lines.extend(notes(data));
    lines
}

/// Describes the state after a recovery.
fn recovers(data: &MemberData) -> String {
    let (_, committed, last) = data.applied();
    match last - committed {
        0 => format!("everything up to entry {last}"),
        more => format!(
            "everything up to entry {committed}; of {more} more the other nodes know whether they \
             count"
        ),
    }
}

fn notes(data: &MemberData) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    if let Some(cut) = &data.log.cut {
        let what = format!(
            "{}: an unfinished write of {} bytes at byte {} would be cut off; nothing of it was \
             acknowledged",
            cut.path.display(),
            cut.bytes,
            cut.offset
        );
        lines.push(("unfinished", what));
    }
    if data.replaces_log {
        let what = "the snapshot is of another log than this one, and would take its place: it had \
                    been received when the node was stopped";
        lines.push(("warning", what.to_owned()));
    }
    let leftovers = data.log.stray.iter().chain(&data.old);
    for path in leftovers {
        let what = format!(
            "{} is not needed any more: the next start removes it",
            path.display()
        );
        lines.push(("leftover", what));
    }
    lines
}

fn list(nodes: &[NodeId]) -> String {
    let nodes: Vec<String> = nodes.iter().map(|node| node.0.to_string()).collect();
    nodes.join(", ")
}
