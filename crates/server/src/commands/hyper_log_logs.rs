//! Commands on HyperLogLogs.

use base::Op;
use base::key_event::KeyEvent;
use base::transaction::ValueCall;
use resp::{Args, Writer};
use values::hyper_log_logs::{self, merge};

use super::arguments::is;
use super::values::value;
use crate::command::CommandKind::{Compound, Local, Store};
use crate::command::{CommandDefinition, CompoundStop, Ops, Planned, commands};
use crate::refusal::{Refusal, shown, write_op_error};
use crate::render::{Computation, Render};
use crate::runtime_context::RuntimeContext;
use crate::session::ClientSession;
use crate::working_set::{WorkingSet, WorkingValue};

/// The commands of this family.
pub(super) const COMMANDS: &[CommandDefinition] = commands! { "hyperloglog";
    "pfadd" -2 "write denyoom fast" ONE("RW insert") "hyperloglog" ""
        "2.8.9" "O(1) to add every element.",
        Store(value::<{ hyper_log_logs::PFADD }>), "Adds elements to a HyperLogLog; answers 1 if its estimate may change.";
    "pfcount" -2 "readonly may_replicate whole_value" ALL("RW access") "hyperloglog" ""
        "2.8.9" "O(1) with a very small average constant time when called with a single key. O(N) with N being the number of keys, and much bigger constant times, when called with multiple keys.",
        Store(pfcount), "Estimates how many different elements HyperLogLogs have.";
    "pfmerge" -2 "write denyoom" ALL("RW access insert; RO access") "hyperloglog" ""
        "2.8.9" "O(N) to merge N HyperLogLogs, but with high constant times.",
        Compound(pfmerge), "Adds the elements of HyperLogLogs to another one.";
    "pfdebug" 3 "write denyoom admin" SECOND("RW access") "hyperloglog" ""
        "2.8.9" "N/A",
        Store(pfdebug), "Shows the registers of a HyperLogLog.";
    "pfselftest" 1 "admin" NONE("") "hyperloglog" ""
        "2.8.9" "N/A",
        Local(pfselftest), "Checks the computation of HyperLogLogs.";
};

/// Plans `PFCOUNT`: of one key it keeps the estimate.
fn pfcount<'a>(args: Args<'a>, ops: &mut Ops<'a>) -> Planned<'a> {
    if args.len() == 2 {
        return value::<{ hyper_log_logs::PFCOUNT }>(args, ops);
    }
    ops.extend(args.from(1).iter().map(|key| Op::GetAny { key }));
    Ok(Render::computed(Computation::Cardinality))
}

fn pfmerge(
    args: Args<'_>,
    set: &mut WorkingSet,
    writer: &mut Writer<'_>,
) -> Result<(), CompoundStop> {
    let values = args.from(1).iter().map(|key| set.stored(key));
    let values: Vec<_> = values.collect();
    let bytes = merge(&values).map_err(Refusal::Failed)?;
    let to = args.at(1);
    let deadline = set.value(to).and_then(|value| value.deadline);
    match set.set(to, Some(WorkingValue::string(bytes, deadline))) {
        Ok(()) => {
            set.note(to, KeyEvent::PfAdd);
            writer.ok();
        }
        Err(error) => write_op_error(error, "pfmerge", writer),
    }
    Ok(())
}

fn pfdebug<'a>(args: Args<'a>, ops: &mut Ops<'a>) -> Planned<'a> {
    let word = args.at(1);
    let commands = [
        ("getreg", hyper_log_logs::PFDEBUG_GETREG),
        ("decode", hyper_log_logs::PFDEBUG_DECODE),
        ("encoding", hyper_log_logs::PFDEBUG_ENCODING),
        ("todense", hyper_log_logs::PFDEBUG_TODENSE),
    ];
    let known = commands.into_iter().find(|(name, _)| is(word, name));
    let (command, render) = match known {
        Some((_, command @ hyper_log_logs::PFDEBUG_ENCODING)) => {
            (command, Render::computed(Computation::RegisterEncoding))
        }
        Some((_, command)) => (command, Render::Plain),
        // The key is looked at first.
        None => {
            let text = [b"ERR Unknown PFDEBUG subcommand '", shown(word), b"'"].concat();
            let refused = Render::RefusedIfThere(Refusal::Owned(text));
            (hyper_log_logs::PFDEBUG_ENCODING, refused)
        }
    };
    let call = ValueCall {
        command,
        seed: 0,
        args: Box::default(),
    };
    ops.push(Op::Call {
        key: args.at(2),
        call,
    });
    Ok(render)
}

fn pfselftest(_: &mut RuntimeContext, session: &mut ClientSession, _: Args<'_>) {
    match hyper_log_logs::self_test() {
        Ok(()) => session.writer().ok(),
        Err(what) => session.writer().error(&format!("ERR {what}")),
    }
}
