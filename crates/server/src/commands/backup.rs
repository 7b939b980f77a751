//! `KUMIKI.BACKUP`: the files of a node while it runs, and a moment that several nodes have in common. It is
//! Kumiki's own; `kumiki backup` sends it.
//!
//! | command | what it does |
//! |---|---|
//! | `INFO` | describes the node's data: lines of a name and values (see [`describe`]) |
//! | `PIN` name seconds | keeps the files that are there now, until they were not asked for so long |
//! | `FILES` name | lists them, as far as they are durable: the text of [`store::DataFiles`] |
//! | `READ` name file offset count | bytes of a file; fewer than were asked for only at its end |
//! | `NARROW` name segment… | keeps only the segments from those numbers on, one for each log |
//! | `UNPIN` name | ends the pin |
//! | `HOLD` milliseconds | holds the durable epoch, and answers the hold's number, the epoch and the time |
//! | `RELEASE` number | ends the hold, and answers 1 if it has lasted until then |
//!
//! `FILES` and `READ` renew the pin. A hold delays the replies to writes, so that it ends by itself soon.

use std::fmt::Write as _;
use std::time::Duration;

use base::number::parse_int;
use cluster::topology::PartitionInfo;
use resp::Args;
use store::BackupSource;

use super::help::help;
use crate::background_job::{AfterJob, BackgroundJob, JobError, JobReply};
use crate::command::CommandKind::{Container, Deferred, Local};
use crate::command::{CommandDefinition, DeferredAnswer, commands};
use crate::partition::Partition;
use crate::runtime_context::RuntimeContext;
use crate::server_state::ServerState;
use crate::session::ClientSession;

/// The commands of this family.
pub(super) const COMMANDS: &[CommandDefinition] = commands! { "server";
    "kumiki.backup" -2 "admin noscript no_multi" NONE("") "" ""
        "0.1.0" "Depends on subcommand.",
        Container, BACKUP, "The files of this node, for backups.";
};

const BACKUP: &[CommandDefinition] = commands! { "server";
    "kumiki.backup|info" 2 "admin noscript no_multi" NONE("") "" ""
        "0.1.0" "O(N) where N is the number of the cluster's nodes",
        Deferred(info), "Describes this node's data.";
    "kumiki.backup|pin" 4 "admin noscript no_multi" NONE("") "" ""
        "0.1.0" "O(N) where N is the number of files",
        Deferred(pin), "Keeps the files that are there now: name, seconds.";
    "kumiki.backup|files" 3 "admin noscript no_multi" NONE("") "" ""
        "0.1.0" "O(N) where N is the number of files",
        Deferred(files), "Lists the files, as far as they are durable: name.";
    "kumiki.backup|read" 6 "admin noscript no_multi" NONE("") "" ""
        "0.1.0" "O(N) where N is the number of bytes",
        Deferred(read), "Bytes of a file: name, file, offset, count.";
    "kumiki.backup|narrow" -3 "admin noscript no_multi" NONE("") "" ""
        "0.1.0" "O(N) where N is the number of logs",
        Local(narrow), "Keeps only the segments from these on: name, a segment for each log.";
    "kumiki.backup|unpin" 3 "admin noscript no_multi" NONE("") "" ""
        "0.1.0" "O(1)",
        Local(unpin), "Keeps no files any more: name.";
    "kumiki.backup|hold" 3 "admin noscript no_multi" NONE("") "" ""
        "0.1.0" "O(1)",
        Local(hold), "Holds the durable epoch: milliseconds.";
    "kumiki.backup|release" 3 "admin noscript no_multi" NONE("") "" ""
        "0.1.0" "O(1)",
        Local(release), "Ends a hold: its number.";
    "kumiki.backup|help" 2 "loading stale" NONE("") "" ""
        "0.1.0" "O(1)",
        Local(backup_help), "What can be asked.";
};

const REPLICATED: &str =
    "ERR this node's partition is replicated, and such partitions cannot be backed up yet";
const NOT_NUMBER: &str = "ERR value is not an integer or out of range";
/// The longest time for which files are pinned.
const LONGEST_PIN: u64 = 24 * 3600;
/// The longest time for which the durable epoch is held.
const LONGEST_HOLD: u64 = 5_000;
/// The most bytes that are read at once.
const MOST_BYTES: u64 = 4 << 20;
/// For how long reading of files renews their pin.
const RENEWAL: Duration = Duration::from_secs(600);

fn backup_help(_: &mut RuntimeContext, session: &mut ClientSession, _: Args<'_>) {
    help("KUMIKI.BACKUP", BACKUP, session);
}

/// Returns the node's data. Answers with an error if it cannot be backed up.
fn source(shared: &ServerState, session: &mut ClientSession) -> Option<BackupSource> {
    match &shared.partition {
        Partition::Local(db) => Some(db.backup_source()),
        Partition::Replicated(_) => {
            session.writer().error(REPLICATED);
            None
        }
    }
}

/// Returns an argument as a number from 1 on, `most` at most. Answers with an error if it is none.
fn number(session: &mut ClientSession, arg: &[u8], most: u64) -> Option<u64> {
    let number = parse_int(arg).and_then(|number| u64::try_from(number).ok());
    let number = number.filter(|number| (1..=most).contains(number));
    if number.is_none() {
        session.writer().error(NOT_NUMBER);
    }
    number
}

fn text(arg: &[u8]) -> String {
    String::from_utf8_lossy(arg).into_owned()
}

/// Does `work` with the node's data on another thread.
fn begin(
    context: &RuntimeContext,
    session: &mut ClientSession,
    work: impl FnOnce(&ServerState, &BackupSource) -> Result<JobReply, JobError> + Send + 'static,
) -> Option<DeferredAnswer> {
    let source = source(&context.shared, session)?;
    let (runtime, what) = (session.client.runtime, "a step of a backup");
    let work = move |shared: &ServerState| work(shared, &source);
    match BackgroundJob::begin(&context.shared, runtime, AfterJob::Reply, what, work) {
        Ok(job) => Some(DeferredAnswer::Job(job)),
        Err(error) => {
            session.writer().error(&format!("ERR {error}"));
            None
        }
    }
}

fn info(
    context: &mut RuntimeContext,
    session: &mut ClientSession,
    _: Args<'_>,
) -> Option<DeferredAnswer> {
    let over_tls = session.client.over_tls;
    begin(context, session, move |shared, source| {
        let id = source.data_id(random)?;
        Ok(JobReply::Text(describe(shared, &id, over_tls)))
    })
}

fn random() -> u64 {
    getrandom::u64().unwrap_or_else(|_| fastrand::u64(..))
}

/// Describes the node's data, a line for each fact:
///
/// | line | meaning |
/// |---|---|
/// | `data` id | the id of the data directory |
/// | `cluster` name | the cluster's name, if it has one |
/// | `node` number | this node; 0 without a cluster |
/// | `partition` number node address slots | a partition, the first of its nodes, the address of that for clients, and ranges of slots, separated by commas; one line for each partition of the cluster |
/// | `replicated` number | a partition that is on several nodes |
fn describe(shared: &ServerState, id: &str, over_tls: bool) -> String {
    let mut text = format!("data {id}\n");
    let mut line = |line: std::fmt::Arguments<'_>| {
        writeln!(text, "{line}").expect("a string takes everything");
    };
    let Some(routes) = &shared.routes else {
        line(format_args!("node 0"));
        return text;
    };
    let topology = &routes.topology;
    if let Some(name) = topology.name() {
        line(format_args!("cluster {name}"));
    }
    line(format_args!("node {}", routes.me.0));
    for partition in topology.partitions() {
        let node = topology.node(topology.node_of(partition.id));
        let node = node.expect("a partition is at nodes of the file");
        let (id, slots) = (partition.id.0, slots(partition));
        let address = node.client_address(over_tls);
        line(format_args!(
            "partition {id} {} {address} {slots}",
            node.id.0
        ));
        if topology.is_replicated(partition.id) {
            line(format_args!("replicated {id}"));
        }
    }
    text
}

fn slots(partition: &PartitionInfo) -> String {
    let ranges = partition.slots.iter();
    let ranges: Vec<String> = ranges
        .map(|range| format!("{}-{}", range.start(), range.end()))
        .collect();
    match ranges.is_empty() {
        true => "-".to_owned(),
        false => ranges.join(","),
    }
}

fn pin(
    context: &mut RuntimeContext,
    session: &mut ClientSession,
    args: Args<'_>,
) -> Option<DeferredAnswer> {
    let seconds = number(session, args.at(3), LONGEST_PIN)?;
    let name = text(args.at(2));
    begin(context, session, move |_, source| {
        source.pin(&name, Duration::from_secs(seconds))?;
        Ok(JobReply::Ok)
    })
}

fn files(
    context: &mut RuntimeContext,
    session: &mut ClientSession,
    args: Args<'_>,
) -> Option<DeferredAnswer> {
    let name = text(args.at(2));
    begin(context, session, move |_, source| {
        source.renew(&name, RENEWAL)?;
        Ok(JobReply::Text(source.files()?.to_string()))
    })
}

fn read(
    context: &mut RuntimeContext,
    session: &mut ClientSession,
    args: Args<'_>,
) -> Option<DeferredAnswer> {
    let offset = parse_int(args.at(4)).and_then(|offset| u64::try_from(offset).ok());
    let Some(offset) = offset else {
        session.writer().error(NOT_NUMBER);
        return None;
    };
    let count = number(session, args.at(5), MOST_BYTES)?;
    let (name, file) = (text(args.at(2)), text(args.at(3)));
    begin(context, session, move |_, source| {
        source.renew(&name, RENEWAL)?;
        Ok(JobReply::Bytes(source.read(
            &file,
            offset,
            count as usize,
        )?))
    })
}

fn narrow(context: &mut RuntimeContext, session: &mut ClientSession, args: Args<'_>) {
    let Some(source) = source(&context.shared, session) else {
        return;
    };
    let segments = args.from(3).iter().map(parse_int);
    let segments = segments.map(|segment| u32::try_from(segment?).ok());
    let Some(segments) = segments.collect::<Option<Vec<u32>>>() else {
        return session.writer().error(NOT_NUMBER);
    };
    match source.narrow(&text(args.at(2)), &segments) {
        Ok(()) => session.writer().ok(),
        Err(error) => session.writer().error(&format!("ERR {error}")),
    }
}

fn unpin(context: &mut RuntimeContext, session: &mut ClientSession, args: Args<'_>) {
    if let Some(source) = source(&context.shared, session) {
        source.unpin(&text(args.at(2)));
        session.writer().ok();
    }
}

fn hold(context: &mut RuntimeContext, session: &mut ClientSession, args: Args<'_>) {
    let Some(source) = source(&context.shared, session) else {
        return;
    };
    let Some(milliseconds) = number(session, args.at(2), LONGEST_HOLD) else {
        return;
    };
    let mut writer = session.writer();
    match source.hold(Duration::from_millis(milliseconds)) {
        Ok(moment) => {
            writer.array(3);
            writer.int(moment.number as i64);
            writer.int(moment.epoch.0 as i64);
            writer.int(moment.time_ms as i64);
        }
        Err(error) => writer.error(&format!("ERR {error}")),
    }
}

fn release(context: &mut RuntimeContext, session: &mut ClientSession, args: Args<'_>) {
    let Some(source) = source(&context.shared, session) else {
        return;
    };
    let number = parse_int(args.at(2)).and_then(|number| u64::try_from(number).ok());
    let has_lasted = number.is_some_and(|number| source.release(number));
    session.writer().int(i64::from(has_lasted));
}
