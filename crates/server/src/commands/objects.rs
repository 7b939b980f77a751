//! Commands on how keys are kept: `OBJECT`, and `RANDOMKEY`.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use base::Op;
use base::eviction::KeyAccess;
use base::transaction::ScanContents;
use resp::Args;

use super::help::help;
use crate::command::CommandKind::{Container, Local, Scan, Store};
use crate::command::{CommandDefinition, Ops, PlanFromKey, Planned, commands};
use crate::cursors::Cursors;
use crate::refusal::Refusal;
use crate::render::{Computation, Render};
use crate::runtime_context::RuntimeContext;
use crate::session::ClientSession;

/// The commands of this family.
pub(super) const COMMANDS: &[CommandDefinition] = commands! { "generic";
    "object" -2 "" NONE("") "" ""
        "2.2.3" "Depends on subcommand.",
        Container, OBJECT, "About how keys are kept.";
    "randomkey" 1 "readonly" NONE("") "keyspace" "request_policy:all_shards nondeterministic_output"
        "1.0.0" "O(1)",
        Scan(RANDOMKEY), "A key.";
};

const OBJECT: &[CommandDefinition] = commands! { "generic";
    "object|encoding" 3 "readonly" SECOND("RO") "keyspace" "nondeterministic_output"
        "2.2.3" "O(1)",
        Store(encoding), "How Redis would keep a value.";
    "object|freq" 3 "readonly" SECOND("RO") "keyspace" "nondeterministic_output"
        "4.0.0" "O(1)",
        Store(freq), "How often a key is used, under a policy by frequency.";
    "object|idletime" 3 "readonly" SECOND("RO") "keyspace" "nondeterministic_output"
        "2.2.3" "O(1)",
        Store(idletime), "The seconds since a key was used, under a policy by last use.";
    "object|refcount" 3 "readonly" SECOND("RO") "keyspace" "nondeterministic_output"
        "2.2.3" "O(1)",
        Store(refcount), "1: no two keys share a value.";
    "object|help" 2 "loading stale" NONE("") "keyspace" ""
        "6.2.0" "O(1)",
        Local(object_help), "What can be asked.";
};

const RANDOMKEY: PlanFromKey = PlanFromKey {
    key: sample_position,
    plan: plan_randomkey,
};

/// The most keys that `RANDOMKEY` goes on from the key that it returned last.
const LONGEST_STEP: u64 = 64;

fn object_help(_: &mut RuntimeContext, session: &mut ClientSession, _: Args<'_>) {
    help("OBJECT", OBJECT, session);
}

fn encoding<'a>(args: Args<'a>, ops: &mut Ops<'a>) -> Planned<'a> {
    ops.push(Op::Inspect { key: args.at(2) });
    Ok(Render::computed(Computation::Encoding))
}

fn refcount<'a>(args: Args<'a>, ops: &mut Ops<'a>) -> Planned<'a> {
    ops.push(Op::KindOf { key: args.at(2) });
    Ok(Render::computed(Computation::One))
}

fn freq<'a>(args: Args<'a>, ops: &mut Ops<'a>) -> Planned<'a> {
    let access = KeyAccess::Frequency;
    ops.push(Op::Access {
        key: args.at(2),
        access,
    });
    Ok(Render::computed(Computation::Use))
}

fn idletime<'a>(args: Args<'a>, ops: &mut Ops<'a>) -> Planned<'a> {
    let access = KeyAccess::IdleSeconds;
    ops.push(Op::Access {
        key: args.at(2),
        access,
    });
    Ok(Render::computed(Computation::Use))
}

/// Returns the position from which the next random key is taken.
fn sample_position(_: Args<'_>, cursors: &Cursors) -> Result<Arc<[u8]>, Refusal> {
    Ok(cursors.sample())
}

/// Plans `RANDOMKEY`: goes a random number of keys on from the key that was returned last, and behind the last
/// key of all continues at the first one. So each key is returned as often as any other.
fn plan_randomkey<'a>(_: Args<'a>, from: &'a [u8], ops: &mut Ops<'a>) -> Planned<'a> {
    let step = (RandomState::new().hash_one(0u8) % LONGEST_STEP) as usize + 1;
    ops.extend([from, &[]].map(|from| Op::Scan {
        from,
        to: None,
        limit: step + 1,
        contents: ScanContents::Keys,
    }));
    Ok(Render::computed(Computation::RandomKey { step }))
}
