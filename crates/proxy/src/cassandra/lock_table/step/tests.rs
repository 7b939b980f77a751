//! Steps on a table with a name, a note and an owner; and random steps, compared with a table of cells,
//! each of which has its own end.

use std::collections::BTreeMap;
use std::time::Duration;

use ::locks::FencingToken;
use cql::{Bound, ValueList, Version};

use super::super::schema::tests::{schema, simple};
use super::*;

fn step_of(schema: Schema, text: &str, values: &[Bound<'_>]) -> Result<LockStep, ProxyError> {
    let mut list = ValueList::new();
    values.iter().for_each(|value| list.push(*value));
    let statement = LockStatement::parse(text).expect("of the recipe");
    LockStep::new(&Arc::new(schema), &statement, &list.values(Version::V5))
}

fn step(text: &str) -> LockStep {
    step_of(simple(), text, &[]).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn refused(text: &str) -> String {
    step_of(simple(), text, &[]).expect_err(text).to_string()
}

#[test]
fn who_makes_a_row_would_hold_a_lock() {
    for (text, when_abandoned) in [
        (
            "INSERT INTO app.locks (name) VALUES ('a') IF NOT EXISTS USING TTL 9",
            WhenAbandoned::Holds,
        ),
        (
            "UPDATE app.locks SET owner = 'b' WHERE name = 'a' IF owner = null",
            WhenAbandoned::Holds,
        ),
        (
            "UPDATE app.locks SET owner = null WHERE name = 'a' IF owner = null",
            WhenAbandoned::Other,
        ),
        (
            "UPDATE app.locks SET owner = 'c' WHERE name = 'a' IF owner = 'b'",
            WhenAbandoned::Other,
        ),
        (
            "UPDATE app.locks SET note = 'n' WHERE name = 'a' IF EXISTS",
            WhenAbandoned::Other,
        ),
        (
            "DELETE FROM app.locks WHERE name = 'a'",
            WhenAbandoned::Other,
        ),
        (
            "DELETE FROM app.locks WHERE name = 'a' IF owner = null",
            WhenAbandoned::Other,
        ),
        (
            "SELECT * FROM app.locks WHERE name = 'a'",
            WhenAbandoned::Other,
        ),
    ] {
        assert_eq!(step(text).when_abandoned(), when_abandoned, "{text}");
    }
}

/// A table of one lock, whose time stands still except for [`OneLock::pass`].
#[derive(Default)]
struct OneLock(Option<(Vec<u8>, LockLease)>);

impl OneLock {
    fn lock(&self) -> Option<Lock> {
        self.0.as_ref().map(|(value, left)| Lock {
            value: value.as_slice().into(),
            token: FencingToken(1),
            left: *left,
            waiters: 0,
        })
    }

    fn pass(&mut self, seconds: u64) {
        if let Some((_, LockLease::For(left))) = &mut self.0 {
            *left = left.saturating_sub(Duration::from_secs(seconds));
            if left.is_zero() {
                self.0 = None;
            }
        }
    }

    /// Takes the columns and values of the reply, as text.
    fn take(&mut self, step: &LockStep) -> String {
        let judged = step.evaluate(self.lock().as_ref());
        match &judged {
            StepOutcome::Applied(ChangeVerdict::Set { value, lease }) => {
                self.0 = Some((value.clone(), *lease));
            }
            StepOutcome::Applied(ChangeVerdict::Remove) => self.0 = None,
            StepOutcome::Refused(what) => return (*what).to_owned(),
            _ => {}
        }
        let Some(builder) = step.reply_rows(&judged) else {
            return "done".to_owned();
        };
        let rows = builder.rows(false);
        let columns = rows.metadata.columns.clone().expect("they are told").0;
        let mut lines: Vec<String> = Vec::new();
        for row in rows.iter() {
            let one = |(column, value): (&ColumnSpec, Option<&[u8]>)| {
                let value = CqlValue::decode(&column.data_type, value).expect("of its type");
                let value = match value {
                    CqlValue::Text(text) => text,
                    CqlValue::Boolean(truth) => truth.to_string(),
                    other => format!("{other:?}"),
                };
                format!("{}={value}", column.name)
            };
            let values: Vec<String> = columns.iter().zip(row).map(one).collect();
            lines.push(values.join(" "));
        }
        lines.join("; ")
    }

    fn run(&mut self, text: &str) -> String {
        self.take(&step(text))
    }
}

#[test]
fn the_recipe() {
    let mut lock = OneLock::default();
    let insert = |who: &str| {
        format!(
            "INSERT INTO app.locks (name, owner) VALUES ('a', '{who}') IF NOT EXISTS USING TTL 30"
        )
    };
    let select = "SELECT owner AS who, name FROM app.locks WHERE name = 'a' LIMIT 1";
    assert_eq!(lock.run(select), "");
    assert_eq!(lock.run(&insert("anna")), "[applied]=true");
    let held = "[applied]=false name=a note=Null owner=anna";
    assert_eq!(lock.run(&insert("bert")), held);
    assert_eq!(lock.run(&insert("anna")), held);
    assert_eq!(lock.run(select), "who=anna name=a");
    let renew =
        "UPDATE app.locks USING TTL 60 SET owner = 'anna' WHERE name = 'a' IF owner = 'anna'";
    let others = "UPDATE app.locks USING TTL 60 SET owner = 'b' WHERE name = 'a' \
                  IF owner = 'b' AND note = 'x' AND owner = 'b'";
    assert_eq!(lock.run(renew), "[applied]=true");
    assert_eq!(lock.run(others), "[applied]=false owner=anna note=Null");
    lock.pass(40);
    assert_eq!(lock.run(select), "who=anna name=a");
    let give = |who: &str| format!("DELETE FROM app.locks WHERE name = 'a' IF owner = '{who}'");
    assert_eq!(lock.run(&give("bert")), "[applied]=false owner=anna");
    assert_eq!(lock.run(&give("anna")), "[applied]=true");
    assert_eq!(lock.run(&give("anna")), "[applied]=false");
    assert_eq!(lock.run(renew), "[applied]=false");
    assert_eq!(
        lock.run("DELETE FROM app.locks WHERE name = 'a' IF EXISTS"),
        "[applied]=false"
    );
    assert_eq!(lock.run("DELETE FROM app.locks WHERE name = 'a'"), "done");
    assert_eq!(lock.run(&insert("bert")), "[applied]=true");
    lock.pass(30);
    assert_eq!(lock.run(select), "");
    assert_eq!(lock.run(&insert("anna")), "[applied]=true");
}

#[test]
fn a_condition_on_null_holds_of_no_row() {
    let mut lock = OneLock::default();
    let take = "UPDATE app.locks USING TTL 9 SET owner = 'b' WHERE name = 'a' IF owner = null";
    assert_eq!(lock.run(take), "[applied]=true");
    assert_eq!(lock.run(take), "[applied]=false owner=b");
    // The row was not made by INSERT: it goes with its last column.
    let empty = "UPDATE app.locks USING TTL 9 SET owner = null WHERE name = 'a' IF EXISTS";
    assert_eq!(lock.run(empty), "[applied]=true");
    assert_eq!(lock.run(empty), "[applied]=false");
    assert_eq!(
        lock.run("DELETE FROM app.locks WHERE name = 'a' IF owner = null"),
        "[applied]=true"
    );
}

#[test]
fn what_cassandra_refuses_is_refused() {
    for (text, word) in [
        (
            "INSERT INTO t (owner) VALUES ('a') IF NOT EXISTS",
            "Some partition key parts are missing: name",
        ),
        (
            "INSERT INTO t (name, x) VALUES ('a', 1) IF NOT EXISTS",
            "Undefined column name x",
        ),
        (
            "INSERT INTO t (name) VALUES (null) IF NOT EXISTS",
            "Invalid null value",
        ),
        (
            "INSERT INTO t (name) VALUES ('') IF NOT EXISTS",
            "Key may not be empty",
        ),
        (
            "INSERT INTO t (name) VALUES (7) IF NOT EXISTS",
            "Invalid constant for name",
        ),
        (
            "INSERT INTO t (name) VALUES ('a') IF NOT EXISTS USING TTL -1",
            "but was -1",
        ),
        (
            "INSERT INTO t (name) VALUES ('a') IF NOT EXISTS USING TTL 630720001",
            "ttl is too large",
        ),
        (
            "INSERT INTO t (name) VALUES (?) IF NOT EXISTS",
            "Invalid amount of bind variables",
        ),
        (
            "UPDATE t SET name = 'b' WHERE name = 'a' IF EXISTS",
            "found in SET part",
        ),
        (
            "UPDATE t SET owner = 'b', owner = 'c' WHERE name = 'a' IF EXISTS",
            "Multiple",
        ),
        (
            "UPDATE t SET owner = 'b' WHERE owner = 'a' IF EXISTS",
            "Non PRIMARY KEY columns",
        ),
        (
            "UPDATE t SET owner = 'b' WHERE name = 'a' IF name = 'a'",
            "cannot have IF conditions",
        ),
        (
            "DELETE FROM t WHERE name = 'a' AND name = 'b'",
            "more than one relation",
        ),
    ] {
        let error = refused(text);
        assert!(error.contains(word), "{text}: {error}");
    }
}

#[test]
fn values_are_bound() {
    let text = "INSERT INTO t (name, owner, note) VALUES (?, ?, ?) IF NOT EXISTS USING TTL ?";
    let insert = |owner, ttl: Bound<'static>| {
        step_of(
            simple(),
            text,
            &[Bound::Bytes(b"a"), owner, Bound::Unset, ttl],
        )
    };
    let ttl = Bound::Bytes(&[0, 0, 0, 5]);
    let mut lock = OneLock::default();
    assert_eq!(
        lock.take(&insert(Bound::Bytes(b"me"), ttl).expect("right")),
        "[applied]=true"
    );
    assert_eq!(
        lock.0.as_ref().expect("held").1,
        LockLease::For(Duration::from_secs(5))
    );
    let reply_rows = lock.run("SELECT * FROM t WHERE name = 'a'");
    assert_eq!(reply_rows, "name=a note=Null owner=me");
    for none in [Bound::Null, Bound::Unset, Bound::Bytes(b"")] {
        let mut lock = OneLock::default();
        lock.take(&insert(Bound::Null, none).expect("right"));
        assert_eq!(lock.0.expect("held").1, LockLease::Endless);
    }
    assert!(insert(Bound::Bytes(b"me"), Bound::Bytes(b"12345")).is_err());
    assert!(insert(Bound::Bytes(b"\xff"), ttl).is_err(), "no UTF-8");
    let must = "DELETE FROM t WHERE name = 'a' IF owner = ?";
    assert!(step_of(simple(), must, &[Bound::Unset]).is_err());
}

#[test]
fn columns_without_one_lease_are_refused() {
    let mut lock = OneLock::default();
    let text = "INSERT INTO t (name, owner, note) VALUES ('a', 'b', 'c') IF NOT EXISTS";
    assert_eq!(lock.run(text), "[applied]=true");
    let renew = "UPDATE t USING TTL 60 SET owner = 'b' WHERE name = 'a' IF owner = 'b'";
    assert_eq!(lock.run(renew), MIXED);
    assert_eq!(lock.run("SELECT note FROM t WHERE name = 'a'"), "note=c");
    lock.run("DELETE FROM t WHERE name = 'a'");
    lock.run(&format!("{text} USING TTL 5"));
    let endless = "UPDATE t SET owner = 'd', note = null WHERE name = 'a' IF owner = 'b'";
    assert_eq!(lock.run(endless), "[applied]=true");
    lock.pass(100);
    assert_eq!(lock.run("SELECT owner FROM t WHERE name = 'a'"), "owner=d");
}

#[test]
fn locks_have_names_of_their_own() {
    let with = |columns: &[(&'static str, &'static str, i32)]| {
        let columns: Vec<_> = columns
            .iter()
            .map(|(name, kind, at)| (*name, DataType::Text, *kind, *at))
            .collect();
        schema(&columns).expect("a table of locks")
    };
    let two = with(&[("a", "partition_key", 0), ("b", "clustering", 0)]);
    let lock = |a: &str, b: &str| {
        let text = format!("DELETE FROM t WHERE b = '{b}' AND a = '{a}'");
        step_of(two.clone(), &text, &[]).expect("right").lock
    };
    assert_ne!(lock("x", "yz"), lock("xy", "z"));
    assert_ne!(lock("x", "y"), lock("y", "x"));
    let half = "SELECT * FROM t WHERE a = 'x'";
    assert!(
        step_of(two.clone(), half, &[])
            .expect_err(half)
            .to_string()
            .contains("not the whole key")
    );
    let half = "DELETE FROM t WHERE a = 'x'";
    let error = step_of(two.clone(), half, &[]).expect_err(half);
    assert_eq!(error.to_string(), "Some clustering keys are missing: b");
    let mut other = two.clone();
    other.id = [8; 16];
    let text = "DELETE FROM t WHERE b = 'y' AND a = 'x'";
    assert_ne!(
        step_of(other, text, &[]).expect("right").lock,
        lock("x", "y")
    );
}

/// A row as Cassandra has it: each column with its end, and the end of the marker.
#[derive(Default)]
struct Model {
    cells: BTreeMap<&'static str, (String, u64)>,
    now: u64,
}

impl Model {
    fn value(&self, column: &str) -> Option<&str> {
        self.cells.get(column).map(|(value, _)| &**value)
    }

    fn pass(&mut self, seconds: u64) {
        self.now += seconds;
        let now = self.now;
        self.cells.retain(|_, (_, end)| *end > now);
    }

    fn set(&mut self, column: &'static str, value: Option<&str>, ttl: u64) {
        match value {
            None => drop(self.cells.remove(column)),
            Some(value) => {
                let cell = (value.to_owned(), self.now + ttl);
                self.cells.insert(column, cell);
            }
        }
    }

    fn shown(&self) -> String {
        if self.cells.is_empty() {
            return String::new();
        }
        let shown = |column| self.value(column).unwrap_or("Null").to_owned();
        format!("name=a note={} owner={}", shown("note"), shown("owner"))
    }
}

#[test]
fn random_steps_do_what_cells_with_ends_do() {
    for seed in 0..400 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut lock, mut model) = (OneLock::default(), Model::default());
        for _ in 0..40 {
            let some = |random: &mut fastrand::Rng| random.choice(["x", "y"]).unwrap_or("x");
            let quoted =
                |value: Option<&str>| value.map_or("null".to_owned(), |it| format!("'{it}'"));
            let value = random.bool().then(|| some(&mut random));
            let wanted = random.bool().then(|| some(&mut random));
            let (ttl, column) = (
                random.u64(1..20),
                *random.choice(&["note", "owner"]).expect("two"),
            );
            let (shown, must) = (quoted(value), quoted(wanted));
            match random.u8(..5) {
                0 => {
                    let reply_rows = lock.run(&format!(
                        "INSERT INTO t (name, {column}) VALUES ('a', {shown}) IF NOT EXISTS USING TTL {ttl}"
                    ));
                    assert_eq!(
                        reply_rows == "[applied]=true",
                        model.cells.is_empty(),
                        "seed {seed}"
                    );
                    if model.cells.is_empty() {
                        model.set("", Some(""), ttl);
                        model.set(column, value, ttl);
                    }
                }
                1 => {
                    let reply_rows = lock.run(&format!(
                        "UPDATE t USING TTL {ttl} SET {column} = {shown} WHERE name = 'a' IF owner = {must}"
                    ));
                    let holds = model.value("owner") == wanted;
                    assert_eq!(reply_rows == "[applied]=true", holds, "seed {seed}");
                    if holds {
                        model.set(column, value, ttl);
                    }
                }
                2 => {
                    let reply_rows =
                        lock.run(&format!("DELETE FROM t WHERE name = 'a' IF note = {must}"));
                    let holds = model.value("note") == wanted;
                    assert_eq!(reply_rows == "[applied]=true", holds, "seed {seed}");
                    if holds {
                        model.cells.clear();
                    }
                }
                _ => {
                    let seconds = random.u64(..6);
                    lock.pass(seconds);
                    model.pass(seconds);
                }
            }
            assert_eq!(
                lock.run("SELECT * FROM t WHERE name = 'a'"),
                model.shown(),
                "seed {seed}"
            );
        }
    }
}
