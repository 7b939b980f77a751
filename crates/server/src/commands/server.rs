//! Commands about the server.

use std::time::{SystemTime, UNIX_EPOCH};

use admin::about;
use base::Op;
use resp::Args;

use super::arguments::{int, is};
use crate::command::CommandKind::{Databases, Local, Store};
use crate::command::{CommandDefinition, Ops, Planned, commands};
use crate::database_selection::DatabaseLimits;
use crate::info;
use crate::refusal::Refusal;
use crate::render::Render;
use crate::runtime_context::RuntimeContext;
use crate::session::ClientSession;

/// The commands of this family.
pub(super) const COMMANDS: &[CommandDefinition] = commands! { "server";
    "dbsize" 1 "readonly fast" NONE("") "keyspace" "request_policy:all_shards response_policy:agg_sum"
        "1.0.0" "O(1)",
        Store(dbsize), "How many keys the selected database has.";
    "flushdb" -1 "write" NONE("") "keyspace dangerous" "request_policy:all_shards response_policy:all_succeeded"
        "1.0.0" "O(N) where N is the number of keys.",
        Store(flush_database), "Deletes all keys of the selected database.";
    "flushall" -1 "write" NONE("") "keyspace dangerous" "request_policy:all_shards response_policy:all_succeeded"
        "1.0.0" "O(N) where N is the number of keys.",
        Store(flush_all), "Deletes all keys of all databases.";
    "swapdb" 3 "write fast" NONE("") "keyspace dangerous" ""
        "4.0.0" "O(1)",
        Databases(swap_databases), "Exchanges the keys of two databases.";
    "time" 1 "loading stale fast" NONE("") "" "nondeterministic_output"
        "2.6.0" "O(1)",
        Local(time), "The server's clock: seconds and microseconds.";
    "info" -1 "loading stale" NONE("") "dangerous" "nondeterministic_output request_policy:all_shards response_policy:special"
        "1.0.0" "O(1)",
        Local(server_info), "Figures about the server.";
    "lolwut" -1 "readonly fast" NONE("") "" ""
        "5.0.0" "O(1)",
        Local(lolwut), "A pattern of wooden joints, and the version.";
};

fn dbsize<'a>(_: Args<'a>, ops: &mut Ops<'a>) -> Planned<'a> {
    ops.push(Op::Count { database: 0 });
    Ok(Render::Plain)
}

fn flush_database<'a>(args: Args<'a>, ops: &mut Ops<'a>) -> Planned<'a> {
    flush(args, Op::FlushDatabase { database: 0 }, ops)
}

fn flush_all<'a>(args: Args<'a>, ops: &mut Ops<'a>) -> Planned<'a> {
    flush(args, Op::Flush, ops)
}

fn flush<'a>(args: Args<'a>, op: Op<'a>, ops: &mut Ops<'a>) -> Planned<'a> {
    let option = args
        .get(1)
        .is_none_or(|option| is(option, "async") || is(option, "sync"));
    if args.len() > 2 || !option {
        return Err(Refusal::Syntax);
    }
    ops.push(op);
    Ok(Render::Plain)
}

fn swap_databases<'a>(args: Args<'a>, limits: DatabaseLimits, ops: &mut Ops<'a>) -> Planned<'a> {
    if limits.in_cluster {
        return Err(Refusal::Text("ERR SWAPDB is not allowed in cluster mode"));
    }
    let number = |at: usize, refusal: &'static str| {
        let number = int(args.at(at)).ok();
        let number = number.and_then(|number| i32::try_from(number).ok());
        number.ok_or(Refusal::Text(refusal))
    };
    let first = number(1, "ERR invalid first DB index")?;
    let second = number(2, "ERR invalid second DB index")?;
    let of = |number: i32| {
        let number = u16::try_from(number).ok();
        let number = number.filter(|number| *number < limits.count);
        number.ok_or(Refusal::Text("ERR DB index is out of range"))
    };
    let (first, second) = (of(first)?, of(second)?);
    if first != second {
        ops.push(Op::SwapDatabases { first, second });
    }
    Ok(Render::Ok)
}

fn time(_: &mut RuntimeContext, session: &mut ClientSession, _: Args<'_>) {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let mut writer = session.writer();
    writer.array(2);
    writer.bulk_int(now.as_secs() as i64);
    writer.bulk_int(i64::from(now.subsec_micros()));
}

/// A lattice as it is made of joints of wood, without nails.
const LATTICE: &str = "\
    +--+--+--+--+--+--+--+--+\n\
    | /|\\ | /|\\ | /|\\ | /|\\ |\n\
    +--+--+--+--+--+--+--+--+\n\
    | \\|/ | \\|/ | \\|/ | \\|/ |\n\
    +--+--+--+--+--+--+--+--+\n";

fn lolwut(_: &mut RuntimeContext, session: &mut ClientSession, args: Args<'_>) {
    if args.len() >= 3 && is(args.at(1), "version") {
        // The numbers are those of other pictures; there is one.
        if let Some(refusal) = args.from(2).iter().find_map(|arg| int(arg).err()) {
            return refusal.write("lolwut", &mut session.writer());
        }
    }
    let text = format!(
        "{LATTICE}\nKumiki {}, Redis ver. {}\n",
        about::VERSION,
        about::REDIS_VERSION
    );
    session.writer().verbatim(b"txt", text.as_bytes());
}

fn server_info(context: &mut RuntimeContext, session: &mut ClientSession, args: Args<'_>) {
    let text = info::report(&context.shared, args.from(1));
    session.writer().verbatim(b"txt", text.as_bytes());
}
