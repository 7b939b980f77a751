//! The options of `LCS`.

use base::Op;
use resp::Args;

use super::super::arguments::{int, is};
use crate::command::{Ops, Planned};
use crate::refusal::Refusal;
use crate::render::{Computation, Render, SubsequenceOptions};

/// Plans `LCS`.
pub(super) fn lcs<'a>(args: Args<'a>, ops: &mut Ops<'a>) -> Planned<'a> {
    let mut options = SubsequenceOptions::default();
    let mut at = 3;
    while let Some(option) = args.get(at) {
        if is(option, "len") {
            options.length = true;
        } else if is(option, "idx") {
            options.places = true;
        } else if is(option, "withmatchlen") {
            options.part_lengths = true;
        } else if is(option, "minmatchlen")
            && let Some(least) = args.get(at + 1)
        {
            options.least = int(least)?;
            at += 1;
        } else {
            return Err(Refusal::Syntax);
        }
        at += 1;
    }
    if options.length && options.places {
        return Err(Refusal::Text(
            "ERR If you want both the length and indexes, please just use IDX.",
        ));
    }
    ops.extend([1, 2].map(|at| Op::Get { key: args.at(at) }));
    Ok(Render::computed(Computation::Subsequence(options)))
}
