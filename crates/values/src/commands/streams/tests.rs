use base::nested::NestedItem;
use base::transaction::ValueCall;

use super::*;
use crate::call::{StoredData, StoredValue, ValueChange};
use crate::collection_editor::CollectionEditor;
use crate::execution::execute;
use crate::tree::VersionStamp;
use base::transaction::{Kind, Reply};

/// A key with a stream in both forms, and its time.
#[derive(Default)]
struct Key {
    value: Option<Vec<u8>>,
    trees: Option<CollectionEditor>,
    /// Trees that get the changes of the others from their log.
    follower: Option<CollectionEditor>,
    time_ms: u64,
}

impl Key {
    /// Executes a command on both forms. Returns the texts and numbers of its reply, separated by blanks.
    fn call(&mut self, command: u16, args: &str) -> String {
        let args: Vec<&[u8]> = args.split_whitespace().map(str::as_bytes).collect();
        let call = ValueCall {
            command,
            seed: 0,
            args: args.into(),
        };
        let before = self.value.take();
        let stored = before.as_deref();
        let stored = stored.map(|bytes| StoredValue::new(Kind::Stream, bytes));
        let outcome = execute(&call, stored, self.time_ms);
        let trees = self.call_on_trees(&call);
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(error) => {
                let error = error.to_string();
                assert!(trees.is_none_or(|shown| shown == error), "{call:?}");
                self.value = before;
                return error;
            }
        };
        assert_eq!(
            outcome.events.is_empty(),
            outcome.change == ValueChange::None
        );
        let changed = match outcome.change {
            ValueChange::Set(Kind::Stream, bytes) => Some(bytes),
            ValueChange::None => before.clone(),
            other => panic!("{other:?}"),
        };
        let shown = shown(&outcome.reply);
        if let Some(trees) = trees {
            assert_eq!(trees, shown, "{call:?}");
        }
        self.value = changed;
        self.compare();
        shown
    }

    /// Executes a command on the trees, if there are some. Returns its reply.
    fn call_on_trees(&mut self, call: &ValueCall<'_>) -> Option<String> {
        let trees = self.trees.as_mut()?;
        let data = match call.is_read_only() {
            true => StoredData::Tree(trees.view()),
            false => StoredData::Editor(trees),
        };
        let kind = Kind::Stream;
        let outcome = execute(call, Some(StoredValue { kind, data }), self.time_ms);
        let outcome = outcome.map(|outcome| {
            let is_edited = outcome.change == ValueChange::Edited;
            assert!(is_edited || outcome.change == ValueChange::None);
            (shown(&outcome.reply), is_edited)
        });
        let log = trees.take_log();
        let follower = self.follower.as_mut().expect("there is one");
        assert!(follower.apply(&log));
        Some(match outcome {
            Ok((shown, is_edited)) => {
                assert!(is_edited || log.is_empty());
                shown
            }
            Err(error) => {
                assert!(log.is_empty());
                error.to_string()
            }
        })
    }

    /// Compares both forms; makes trees of a new value.
    fn compare(&mut self) {
        let (Some(value), kind) = (&self.value, Kind::Stream) else {
            return;
        };
        if self.trees.is_none() {
            let of_packed = || CollectionEditor::of_packed(kind, value, VersionStamp(1));
            (self.trees, self.follower) = (Some(of_packed()), Some(of_packed()));
        }
        for trees in [&self.trees, &self.follower] {
            let packed = trees.as_ref().map(|trees| trees.view().to_packed(kind));
            assert_eq!(packed.as_ref(), Some(value));
        }
    }
}

fn shown(reply: &Reply<'_>) -> String {
    let item = |item: NestedItem<'_>| match item {
        NestedItem::Bytes(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        NestedItem::Int(number) => Some(number.to_string()),
        NestedItem::Nil | NestedItem::NilArray => Some("nil".to_owned()),
        _ => None,
    };
    match reply {
        Reply::Nested(reply) => reply.items().filter_map(item).collect::<Vec<_>>().join(" "),
        Reply::Int(number) => number.to_string(),
        other => format!("{other:?}"),
    }
}

#[test]
fn ids_follow_the_time_and_never_go_back() {
    let mut key = Key {
        time_ms: 5,
        ..Key::default()
    };
    assert_eq!(key.call(XADD, "* f v"), "5-0");
    assert_eq!(key.call(XADD, "* f v"), "5-1");
    key.time_ms = 4;
    assert_eq!(key.call(XADD, "* f v"), "5-2");
    assert_eq!(key.call(XADD, "9-* f v"), "9-0");
    key.time_ms = 8;
    assert_eq!(key.call(XADD, "* f v"), "9-1");
    assert!(key.call(XADD, "8-* f v").contains("smaller"));
    assert_eq!(
        key.call(XADD, "9-18446744073709551615 f v"),
        "9-18446744073709551615"
    );
    assert!(key.call(XADD, "9-* f v").contains("smaller"));
    assert_eq!(key.call(XADD, "* f v"), "10-0");
}

#[test]
fn a_consumer_that_asks_in_vain_is_noted_once_a_second() {
    let mut key = Key::default();
    key.call(XGROUP_CREATE, "g 0 MKSTREAM");
    assert_eq!(key.call(XREADGROUP, "> 0 g c"), "Nil");
    let first = key.value.clone();
    key.time_ms = 999;
    assert_eq!(key.call(XREADGROUP, "> 0 g c"), "Nil");
    assert_eq!(key.value, first);
    assert_eq!(
        key.call(XINFO_CONSUMERS, "g"),
        "name c pending 0 idle 999 inactive -1"
    );
    key.time_ms = 1000;
    assert_eq!(key.call(XREADGROUP, "> 0 g c"), "Nil");
    assert_eq!(
        key.call(XINFO_CONSUMERS, "g"),
        "name c pending 0 idle 0 inactive -1"
    );
    key.call(XADD, "1 f v");
    key.time_ms = 1100;
    assert_eq!(key.call(XREADGROUP, "> 0 g c"), "1-0 f v");
    key.time_ms = 1150;
    assert_eq!(
        key.call(XINFO_CONSUMERS, "g"),
        "name c pending 1 idle 50 inactive 50"
    );
}

#[test]
fn the_newest_entry_can_be_read() {
    let mut key = Key::default();
    assert_eq!(key.call(XREAD, "+ 0"), "Nil");
    key.call(XADD, "1 a b");
    key.call(XADD, "2 c d");
    assert_eq!(key.call(XREAD, "+ 0"), "2-0 c d");
    assert_eq!(key.call(XREAD, "$ 0"), "Nil");
    key.call(XDEL, "2");
    assert_eq!(key.call(XREAD, "+ 0"), "1-0 a b");
}

/// As of Redis 7.4; earlier releases count trimmed entries.
#[test]
fn the_lag_of_a_group_is_what_it_has_still_to_read() {
    let mut key = Key::default();
    for id in 1..=5 {
        key.call(XADD, &format!("{id} f v"));
    }
    key.call(XGROUP_CREATE, "g 0");
    key.call(XREADGROUP, "> 1 g c");
    key.call(XTRIM, "MAXLEN 2");
    let lag = |key: &mut Key| {
        let groups = key.call(XINFO_GROUPS, "");
        groups
            .rsplit(' ')
            .next()
            .map(str::to_owned)
            .expect("a word")
    };
    assert_eq!(lag(&mut key), "2");
    key.call(XREADGROUP, "> 1 g c");
    assert_eq!(lag(&mut key), "1");
    key.call(XDEL, "5");
    assert_eq!(lag(&mut key), "nil");
    key.call(XTRIM, "MAXLEN 0");
    assert_eq!(lag(&mut key), "0");
}

/// Draws a command and its arguments.
fn draw(random: &mut fastrand::Rng) -> (u16, String) {
    let id = |random: &mut fastrand::Rng| match random.u8(..8) {
        0 => "-".to_owned(),
        1 => "+".to_owned(),
        2 => format!("({}", random.u32(..300)),
        _ => format!("{}-{}", random.u32(..300), random.u32(..3)),
    };
    let exact = |random: &mut fastrand::Rng| format!("{}-{}", random.u32(..300), random.u32(..3));
    let exacts = |random: &mut fastrand::Rng| {
        let ids = (0..random.usize(1..5)).map(|_| exact(random));
        ids.collect::<Vec<_>>().join(" ")
    };
    let count = |random: &mut fastrand::Rng| match random.u8(..3) {
        0 => String::new(),
        _ => format!("COUNT {}", random.u32(1..30)),
    };
    let (group, consumer) = (
        ["g", "h", "other-group"][random.usize(..3)],
        ["alice", "bob", "c", "d"][random.usize(..4)],
    );
    let trim = |random: &mut fastrand::Rng| {
        let (sign, limit) = match random.u8(..3) {
            0 => ("~", format!("LIMIT {}", random.u32(..300))),
            1 => ("~", String::new()),
            _ => ("=", String::new()),
        };
        match random.bool() {
            true => format!("MAXLEN {sign} {} {limit}", random.u32(150..400)),
            false => format!("MINID {sign} {} {limit}", random.u32(..200)),
        }
    };
    match random.u8(..32) {
        0..8 => {
            let fields = ["f v", "f w n 5", "other x"][random.usize(..3)];
            (XADD, format!("* {fields}"))
        }
        8 => (XADD, format!("{} * f v", trim(random))),
        9 => (XTRIM, trim(random)),
        10 => (XDEL, exacts(random)),
        11 => {
            let deleted = ["", "MAXDELETEDID 3-0", "ENTRIESADDED 900"][random.usize(..3)];
            (XSETID, format!("{} {deleted}", random.u32(250..300)))
        }
        12 => {
            let from = ["0", "$", "100"][random.usize(..3)];
            let read = ["", "ENTRIESREAD 7"][random.usize(..2)];
            (XGROUP_CREATE, format!("{group} {from} {read}"))
        }
        13 => (XGROUP_SETID, format!("{group} {}", exact(random))),
        14 if random.u8(..4) == 0 => (XGROUP_DESTROY, group.to_owned()),
        15 => (XGROUP_CREATECONSUMER, format!("{group} {consumer}")),
        16 if random.bool() => (XGROUP_DELCONSUMER, format!("{group} {consumer}")),
        17..21 => {
            let no_ack = ["", "", "NOACK"][random.usize(..3)];
            let count = random.u32(1..9);
            (XREADGROUP, format!("> {count} {group} {consumer} {no_ack}"))
        }
        21 => {
            let (id, count) = (random.u32(..200), random.u32(..4));
            (XREADGROUP, format!("{id} {count} {group} {consumer}"))
        }
        22..24 => (XACK, format!("{group} {}", exacts(random))),
        24 => {
            let options = ["", "FORCE", "JUSTID", "RETRYCOUNT 3", "IDLE 5", "LASTID 50"];
            let options = options[random.usize(..6)];
            (
                XCLAIM,
                format!(
                    "{group} {consumer} {} {} {options}",
                    random.u32(..40),
                    exacts(random)
                ),
            )
        }
        25 => {
            let just_id = ["", "JUSTID"][random.usize(..2)];
            let (idle, count) = (random.u32(..40), count(random));
            let start = exact(random);
            (
                XAUTOCLAIM,
                format!("{group} {consumer} {idle} {start} {count} {just_id}"),
            )
        }
        26 => {
            let (start, end) = (id(random), id(random));
            (XRANGE, format!("{start} {end} {}", count(random)))
        }
        27 => {
            let (end, start) = (id(random), id(random));
            (XREVRANGE, format!("{end} {start} {}", count(random)))
        }
        28 => (XREAD, format!("{} {}", exact(random), random.u32(..9))),
        29 => match random.bool() {
            true => (XPENDING, group.to_owned()),
            false => {
                let (start, end) = (id(random), id(random));
                let idle = ["", "IDLE 20"][random.usize(..2)];
                let consumer = ["", consumer][random.usize(..2)];
                (
                    XPENDING,
                    format!("{group} {idle} {start} {end} 9 {consumer}"),
                )
            }
        },
        30 => match random.u8(..3) {
            0 => (XINFO_STREAM, format!("FULL {}", count(random))),
            1 => (XINFO_STREAM, String::new()),
            _ => (XLEN, String::new()),
        },
        _ => match random.bool() {
            true => (XINFO_GROUPS, String::new()),
            false => (XINFO_CONSUMERS, group.to_owned()),
        },
    }
}

/// Random commands, which both forms answer alike.
#[test]
fn both_forms_have_the_same_answers() {
    let mut random = fastrand::Rng::with_seed(11);
    let (mut longest, mut pending) = (0, 0);
    for _ in 0..12 {
        let mut key = Key::default();
        key.call(XADD, "1 f v");
        for _ in 0..1500 {
            key.time_ms += u64::from(random.u8(..4) == 0);
            if random.u32(..700) == 0 {
                key.time_ms += 1500;
            }
            let (command, args) = draw(&mut random);
            key.call(command, &args);
        }
        let number = |text: String| text.parse::<u64>().expect("a number");
        longest = longest.max(number(key.call(XLEN, "")));
        let summary = key.call(XPENDING, "g");
        pending = pending.max(
            summary
                .split(' ')
                .next()
                .map_or(0, |own| own.parse().unwrap_or(0)),
        );
    }
    assert!(longest > 150 && pending > 20, "{longest} {pending}");
}
