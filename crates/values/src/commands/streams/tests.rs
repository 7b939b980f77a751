use base::nested::NestedItem;
use base::transaction::ValueCall;

use super::*;
use crate::call::{StoredValue, ValueChange};
use crate::execution::execute;
use base::transaction::{Kind, Reply};

/// A key with a stream, and its time.
#[derive(Default)]
struct Key {
    value: Option<Vec<u8>>,
    time_ms: u64,
}

impl Key {
    /// Executes a command. Returns the texts and numbers of its reply, separated by blanks.
    fn call(&mut self, command: u16, args: &str) -> String {
        let args: Vec<&[u8]> = args.split_whitespace().map(str::as_bytes).collect();
        let call = ValueCall {
            command,
            seed: 0,
            args: args.into(),
        };
        let bytes = self.value.take();
        let stored = bytes.as_deref();
        let stored = stored.map(|bytes| StoredValue::new(Kind::Stream, bytes));
        let time_ms = self.time_ms;
        let outcome = match execute(&call, stored, time_ms) {
            Ok(outcome) => outcome,
            Err(error) => {
                self.value = bytes;
                return error.to_string();
            }
        };
        let changed = match outcome.change {
            ValueChange::Set(Kind::Stream, bytes) => Some(bytes),
            ValueChange::None => bytes.clone(),
            other => panic!("{other:?}"),
        };
        assert!(outcome.events.is_empty() || changed != bytes);
        let shown = shown(&outcome.reply);
        self.value = changed;
        shown
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
        value: None,
        time_ms: 5,
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
