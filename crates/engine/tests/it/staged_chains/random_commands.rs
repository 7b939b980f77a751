//! Random commands on collections, staged before the ones before them are applied.

use std::collections::VecDeque;

use base::Op;
use fastrand::Rng;
use values::{hashes, lists, sets, sorted_sets, streams};

use super::Members;
use crate::support::call;
use crate::support::replica::{Replica, stager};

/// A command on a collection.
struct Command {
    key: &'static [u8],
    number: u16,
    args: Vec<Vec<u8>>,
}

impl Command {
    /// Draws a command on one of five collections, which are large most of the time.
    fn draw(random: &mut Rng, id: u64) -> Command {
        let element = format!("element {}", random.u32(..400)).into_bytes();
        let value = vec![b'v'; random.usize(..40)];
        let (key, number, args): (&[u8], u16, Vec<Vec<u8>>) = match random.u32(..10) {
            0 | 1 => (b"list", lists::RPUSH, vec![element, value]),
            2 => (
                b"list",
                lists::LPOP,
                vec![random.u32(1..3).to_string().into()],
            ),
            3 => (b"hash", hashes::HSET, vec![element, value]),
            4 => (b"hash", hashes::HDEL, vec![element]),
            5 => (b"set", sets::SADD, vec![element]),
            6 => (b"set", sets::SREM, vec![element]),
            7 => (
                b"sorted",
                sorted_sets::ZADD,
                vec![random.u32(..99).to_string().into(), element],
            ),
            8 => (b"sorted", sorted_sets::ZREM, vec![element]),
            _ => (
                b"stream",
                streams::XADD,
                vec![format!("{id}-1").into(), element, value],
            ),
        };
        Command { key, number, args }
    }

    fn op(&self) -> Op<'_> {
        let args: Vec<&[u8]> = self.args.iter().map(|arg| &arg[..]).collect();
        call(self.key, self.number, &args)
    }
}

/// Entries are applied some time after they were staged, or lost. What is applied agrees with a replica on which one
/// transaction follows when the one before is applied.
#[test]
fn random_chains_agree_with_transactions_one_after_another() {
    for seed in 0..20 {
        let mut random = Rng::with_seed(seed);
        let (members, single) = (Members::new(), Replica::new());
        let mut waiting = VecDeque::new();
        let mut next = 0;
        for _ in 0..600 {
            next += 1;
            match random.u32(..100) {
                0..55 => {
                    let count = random.usize(1..4);
                    let draw = || Command::draw(&mut random, next);
                    let mut commands: Vec<Command> =
                        std::iter::repeat_with(draw).take(count).collect();
                    // Of several entries with one id only the first is added.
                    commands.dedup_by_key(|command| command.key);
                    let mut ops: Vec<Op<'_>> = commands.iter().map(Command::op).collect();
                    if next % 50 == 0 {
                        ops.push(Op::Delete {
                            key: commands[0].key,
                        });
                    }
                    let staged = members.submit_any(next, &ops);
                    let deletes = ops.len() > commands.len();
                    waiting.extend(staged.map(|staged| (next, commands, deletes, staged)));
                }
                55..97 => {
                    let Some((number, commands, deletes, (replies, entry))) = waiting.pop_front()
                    else {
                        continue;
                    };
                    members.apply(number, &entry);
                    let mut ops: Vec<Op<'_>> = commands.iter().map(Command::op).collect();
                    if deletes {
                        ops.push(Op::Delete {
                            key: commands[0].key,
                        });
                    }
                    let same = single.stage(number, &ops).unwrap();
                    assert_eq!(same.value, replies, "seed {seed}, transaction {number}");
                    single.apply(&single.entry());
                    single.engine.release(stager(number).id);
                    members.leader.tidy();
                }
                97 => {
                    members.leader.engine.drop_holds();
                    waiting.clear();
                }
                _ => members.check_equal(),
            }
        }
        members.leader.engine.drop_holds();
        members.check_equal();
        assert_eq!(members.leader.hash(), single.hash(), "seed {seed}");
        let (followed, dropped) = members.leader.engine.staged_counts();
        assert!(followed > 20 && dropped > 0, "{followed}, {dropped}");
    }
}
