//! `MEMORY`: the memory of the server and of keys.

use base::Op;
use base::size::Size;
use resp::Args;

use super::arguments::{int, is};
use super::help::help;
use crate::command::CommandKind::{Container, Local, Store};
use crate::command::{CommandDefinition, Ops, Planned, commands};
use crate::refusal::Refusal;
use crate::render::{Computation, Render};
use crate::runtime_context::RuntimeContext;
use crate::server_status::ServerStatus;
use crate::session::ClientSession;

/// The commands of this family.
pub(super) const COMMANDS: &[CommandDefinition] = commands! { "server";
    "memory" -2 "" NONE("") "" ""
        "4.0.0" "Depends on subcommand.",
        Container, MEMORY, "About memory.";
};

const MEMORY: &[CommandDefinition] = commands! { "server";
    "memory|usage" -3 "readonly" SECOND("RO") "" ""
        "4.0.0" "O(1)",
        Store(usage), "The bytes that a key and its value take.";
    "memory|stats" 2 "" NONE("") "" "nondeterministic_output request_policy:all_shards response_policy:special"
        "4.0.0" "O(1)",
        Local(stats), "Figures about memory.";
    "memory|doctor" 2 "" NONE("") "" "nondeterministic_output request_policy:all_shards response_policy:special"
        "4.0.0" "O(1)",
        Local(doctor), "A report on unusual uses of memory.";
    "memory|malloc-stats" 2 "" NONE("") "" "nondeterministic_output request_policy:all_shards response_policy:special"
        "4.0.0" "O(1)",
        Local(malloc_stats), "Says that the allocator has no figures.";
    "memory|purge" 2 "" NONE("") "" "request_policy:all_shards response_policy:all_succeeded"
        "4.0.0" "O(1)",
        Local(purge), "Does nothing: the allocator returns memory by itself.";
    "memory|help" 2 "loading stale" NONE("") "" ""
        "4.0.0" "O(1)",
        Local(memory_help), "What can be asked.";
};

/// Below this many bytes of keys the memory of the process says little.
const FEW_BYTES: u64 = 5 << 20;

fn memory_help(_: &mut RuntimeContext, session: &mut ClientSession, _: Args<'_>) {
    help("MEMORY", MEMORY, session);
}

fn usage<'a>(args: Args<'a>, ops: &mut Ops<'a>) -> Planned<'a> {
    // A string has no parts of which samples could be taken.
    match (args.get(3), args.get(4)) {
        (None, _) => {}
        (Some(option), Some(count)) if is(option, "samples") && args.len() == 5 => {
            if int(count)? < 0 {
                return Err(Refusal::Syntax);
            }
        }
        _ => return Err(Refusal::Syntax),
    }
    let key = args.at(2);
    ops.extend([Op::Inspect { key }, Op::ExpiryOf { key }]);
    let key_len = key.len();
    Ok(Render::computed(Computation::MemoryUsage { key_len }))
}

fn stats(context: &mut RuntimeContext, session: &mut ClientSession, _: Args<'_>) {
    let status = ServerStatus::now(&context.shared);
    let (data, keys) = (status.store.memory_bytes, status.store.keys);
    let clients = context.shared.in_flight.used();
    let (all, resident) = (data + clients, status.process.resident_bytes);
    let of = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
    let mut writer = session.writer();
    let numbers = [
        ("total.allocated", all as i64),
        ("clients.normal", clients as i64),
        ("keys.count", keys as i64),
        (
            "keys.bytes-per-key",
            data.checked_div(keys).unwrap_or(0) as i64,
        ),
        ("dataset.bytes", data as i64),
        ("allocator.resident", resident as i64),
        ("fragmentation.bytes", resident as i64 - all as i64),
    ];
    let parts = [
        ("dataset.percentage", 100.0 * of(data, all)),
        ("fragmentation", of(resident, all)),
    ];
    writer.map(numbers.len() + parts.len());
    for (name, number) in numbers {
        writer.bulk(name.as_bytes());
        writer.int(number);
    }
    for (name, part) in parts {
        writer.bulk(name.as_bytes());
        writer.double(part);
    }
}

fn doctor(context: &mut RuntimeContext, session: &mut ClientSession, _: Args<'_>) {
    let status = ServerStatus::now(&context.shared);
    let report = diagnosis(
        status.store.memory_bytes,
        context.shared.in_flight.used(),
        status.process.resident_bytes,
        status.memory_limit,
    );
    session.writer().verbatim(b"txt", report.as_bytes());
}

/// Returns a report on unusual uses of memory, given the bytes of keys, of clients and of the process, and the
/// limit.
fn diagnosis(keys: u64, clients: u64, resident: u64, limit: u64) -> String {
    if keys < FEW_BYTES {
        return format!("The keys take {}: too little to say more.\n", Size(keys));
    }
    let mut report = String::new();
    if limit > 0 && keys > limit / 10 * 9 {
        report += &format!(
            "The keys take {}, and maxmemory is {}: writes that need more will be refused.\n",
            Size(keys),
            Size(limit)
        );
    }
    if clients > keys / 2 {
        report += &format!(
            "Requests and replies of clients take {}: clients are slow to take replies (CLIENT LIST: omem).\n",
            Size(clients)
        );
    }
    if resident > (keys + clients) / 2 * 3 {
        report += &format!(
            "The process takes {}, and keys and clients {}: the rest is buffers, versions that transactions or \
             snapshots still read, and memory that the allocator keeps.\n",
            Size(resident),
            Size(keys + clients)
        );
    }
    match report.is_empty() {
        true => "Nothing is unusual about the memory in use.\n".to_owned(),
        false => report,
    }
}

fn malloc_stats(_: &mut RuntimeContext, session: &mut ClientSession, _: Args<'_>) {
    let text = "Stats not supported for the current allocator";
    session.writer().verbatim(b"txt", text.as_bytes());
}

fn purge(_: &mut RuntimeContext, session: &mut ClientSession, _: Args<'_>) {
    session.writer().ok();
}

#[cfg(test)]
mod tests {
    use super::diagnosis;

    #[test]
    fn unusual_memory_is_named() {
        let mb = 1 << 20;
        assert!(diagnosis(mb, 0, 900 * mb, 0).contains("too little"));
        assert!(diagnosis(100 * mb, 0, 120 * mb, 0).starts_with("Nothing"));
        assert!(diagnosis(100 * mb, 0, 120 * mb, 105 * mb).contains("maxmemory is 105.0MiB"));
        let report = diagnosis(100 * mb, 60 * mb, 500 * mb, 0);
        assert!(report.contains("omem") && report.contains("The process takes 500.0MiB"));
    }
}
