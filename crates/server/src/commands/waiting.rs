//! `WAIT` and `WAITAOF`: on how many nodes the writes of a connection are.
//!
//! A reply leaves when everything that it shows is durable, on the majority of the nodes of a replicated
//! partition, and the reply to these commands leaves behind those of the connection's writes. So there is
//! nothing to wait for: they answer at once what then holds at least.

use base::number::parse_int;
use resp::{Args, Writer};

use super::arguments::int;
use crate::command::CommandKind::Local;
use crate::command::{CommandDefinition, commands};
use crate::runtime_context::RuntimeContext;
use crate::session::ClientSession;

/// The commands of this family.
pub(super) const COMMANDS: &[CommandDefinition] = commands! { "generic";
    "wait" 3 "noscript" NONE("") "connection" "request_policy:all_shards response_policy:agg_min"
        "3.0.0" "O(1)",
        Local(wait), "How many replicas have the writes of this connection.";
    "waitaof" 4 "noscript" NONE("") "connection" "request_policy:all_shards response_policy:agg_min"
        "7.2.0" "O(1)",
        Local(waitaof), "On how many nodes the writes of this connection are durable: here, and on replicas.";
};

/// Returns the number of replicas, this node not counted, that have what was acknowledged.
fn replicas(context: &RuntimeContext) -> i64 {
    let replicated = context.shared.partition.replicated();
    // Without replies that wait, an acknowledged write may be on this node alone.
    let replicated = replicated.filter(|_| context.group);
    let status = replicated.map(|own| own.member().status());
    let voters = |status: replica::Status| status.members.iter().filter(|one| one.voter).count();
    (status.map_or(0, voters) / 2) as i64
}

/// Checks a time in milliseconds. Answers with an error if it is none.
fn is_timeout(arg: &[u8], writer: &mut Writer<'_>) -> bool {
    match parse_int(arg) {
        None => writer.error("ERR timeout is not an integer or out of range"),
        Some(..0) => writer.error("ERR timeout is negative"),
        Some(_) => return true,
    }
    false
}

fn wait(context: &mut RuntimeContext, session: &mut ClientSession, args: Args<'_>) {
    if context.shared.follower().is_some() {
        return session.writer().error(
            "ERR WAIT cannot be used with replica instances: this node does not lead its partition",
        );
    }
    let replicas = replicas(context);
    let mut writer = session.writer();
    if let Err(refusal) = int(args.at(1)) {
        return refusal.write("wait", &mut writer);
    }
    if is_timeout(args.at(2), &mut writer) {
        writer.int(replicas);
    }
}

fn waitaof(context: &mut RuntimeContext, session: &mut ClientSession, args: Args<'_>) {
    let is_follower = context.shared.follower().is_some();
    let replicas = replicas(context);
    let mut writer = session.writer();
    let (local, wanted) = match (int(args.at(1)), int(args.at(2))) {
        (Ok(local), Ok(wanted)) => (local, wanted),
        (Err(refusal), _) | (_, Err(refusal)) => return refusal.write("waitaof", &mut writer),
    };
    if !(0..=1).contains(&local) {
        return writer.error("ERR value is out of range, value must between 0 and 1");
    }
    if wanted < 0 {
        return writer.error("ERR value is out of range, must be positive");
    }
    if !is_timeout(args.at(3), &mut writer) {
        return;
    }
    if is_follower {
        return writer.error(
            "ERR WAITAOF cannot be used with replica instances: this node does not lead its partition",
        );
    }
    if local == 1 && context.shared.config.data.is_none() {
        return writer
            .error("ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.");
    }
    // Without replies that wait, it is not known if the writes are in the log by now.
    let is_durable = context.group && context.shared.config.data.is_some();
    writer.array(2);
    writer.int(i64::from(is_durable));
    writer.int(replicas);
}
