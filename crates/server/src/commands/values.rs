//! Plans of commands that crate `values` executes where the key is.

use base::Op;
use base::transaction::ValueCall;
use resp::Args;

use crate::command::{Ops, Planned};
use crate::render::Render;

/// Plans a command whose key is its first argument.
pub(super) fn value<'a, const COMMAND: u16>(args: Args<'a>, ops: &mut Ops<'a>) -> Planned<'a> {
    plan(COMMAND, args, 1, ops)
}

/// Plans a command whose key is the argument with this number.
pub(super) fn plan<'a>(command: u16, args: Args<'a>, key: usize, ops: &mut Ops<'a>) -> Planned<'a> {
    let mut call = ValueCall {
        command,
        seed: 0,
        args: args.from(key + 1).iter().collect(),
    };
    if call.is_random() {
        call.seed = fastrand::u64(..);
    }
    ops.push(Op::Call {
        key: args.at(key),
        call,
    });
    Ok(Render::Plain)
}
