//! Statements: simple and prepared ones, batches, pages.

use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;

use futures::TryStreamExt as _;
use futures::future::try_join_all;
use scylla::response::PagingState;
use scylla::response::query_result::QueryResult;
use scylla::statement::batch::{Batch, BatchStatement, BatchType};
use scylla::statement::prepared::PreparedStatement;
use scylla::statement::unprepared::Statement;
use scylla::value::{CqlDecimal, CqlTimestamp, CqlValue, MaybeUnset, Row};
use uuid::Uuid;

use crate::report_lines::{columns, refused, rows, say};
use crate::{Outcome, Program};

pub(crate) const ID: Uuid = Uuid::from_u128(0x0000_0000_0000_4000_8000_0000_0000_0001);
/// 2020-02-29 12:30:45.678, in milliseconds since 1970.
const TIME: CqlTimestamp = CqlTimestamp(1_582_979_445_678);
/// Requests that are sent at once.
const AT_ONCE: usize = 300;
/// Rows of a page.
const PAGE: i32 = 7;

type Part = (BatchStatement, Vec<CqlValue>);

/// A value of text.
pub(crate) fn word(text: &str) -> CqlValue {
    CqlValue::Text(text.to_owned())
}

/// A value that is set.
pub(crate) fn set<T>(value: T) -> MaybeUnset<Option<T>> {
    MaybeUnset::Set(Some(value))
}

impl Program {
    pub(crate) async fn simple(&self) -> Outcome {
        self.text(
            "CREATE TABLE simple (k text PRIMARY KEY, b blob, i int, l bigint, u uuid, t timestamp, \
             f boolean, d double, n decimal, names list<text>, ages map<text, int>, tags set<int>)",
        )
        .await?;
        self.text(
            "INSERT INTO simple (k, b, i, l) VALUES ('literal', 0x00ff, -7, 9223372036854775807)",
        )
        .await?;
        let values = ("bound", vec![0_u8, 1], i32::MAX, i64::MIN, ID, TIME);
        let text = "INSERT INTO simple (k, b, i, l, u, t) VALUES (?, ?, ?, ?, ?, ?)";
        self.session.query_unpaged(text, values).await?;
        for key in ["literal", "bound", "absent"] {
            let text = "SELECT k, b, i, l, u, t FROM simple WHERE k = ?";
            let found = self.with(text, vec![word(key)]).await?;
            say(&format!("simple {key}"), rows(found)?);
        }
        let named = HashMap::from([("key", word("named")), ("number", CqlValue::Int(42))]);
        let text = "INSERT INTO simple (k, i) VALUES (:key, :number)";
        self.session.query_unpaged(text, named).await?;
        let found = self
            .text("SELECT k, i FROM simple WHERE k = 'named'")
            .await?;
        say("simple named", rows(found)?);
        Ok(())
    }

    pub(crate) async fn prepared(&self) -> Outcome {
        let session = &self.session;
        let insert = session
            .prepare(
                "INSERT INTO simple (k, b, i, l, u, t, f, d, n, names, ages, tags) \
                 VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            )
            .await?;
        let parameters = insert.get_variable_col_specs();
        let parameters = parameters
            .iter()
            .map(|column| (column.name().to_owned(), column.typ().clone()));
        say("prepared parameters", parameters.collect::<Vec<_>>());
        let key = insert
            .get_variable_pk_indexes()
            .iter()
            .map(|key| (key.index, key.sequence));
        say("prepared key", key.collect::<Vec<_>>());
        let select = session.prepare("SELECT * FROM simple WHERE k = ?").await?;
        // The driver itself knows whether a key is given, and where it lies.
        say(
            "prepared token",
            select
                .calculate_token(&("all",))?
                .map(|token| token.value()),
        );
        let of = async |key: &str| rows(session.execute_unpaged(&select, (key,)).await?);
        // 12345678901234567890.05
        let decimal = CqlDecimal::from_signed_be_bytes_and_exponent(
            1_234_567_890_123_456_789_005_i128.to_be_bytes().to_vec(),
            2,
        );
        let ages = [("anna", 30), ("bert", -1)];
        let all = vec![
            set(word("all")),
            set(CqlValue::Blob(vec![0xff; 5])),
            set(CqlValue::Int(1)),
            set(CqlValue::BigInt(2)),
            set(CqlValue::Uuid(ID)),
            set(CqlValue::Timestamp(TIME)),
            set(CqlValue::Boolean(true)),
            set(CqlValue::Double(0.5)),
            set(CqlValue::Decimal(decimal)),
            set(CqlValue::List(["one", "two", "one"].map(word).to_vec())),
            set(CqlValue::Map(
                ages.map(|(name, age)| (word(name), CqlValue::Int(age)))
                    .to_vec(),
            )),
            set(CqlValue::Set([3, 1, 2].map(CqlValue::Int).to_vec())),
        ];
        session.execute_unpaged(&insert, all).await?;
        say("prepared all", of("all").await?);
        let mut nulls = vec![MaybeUnset::Set(None); 12];
        nulls[0] = set(word("nulls"));
        session.execute_unpaged(&insert, nulls).await?;
        say("prepared nulls", of("nulls").await?);
        // What is unset stays; what is null goes.
        let mut unset = vec![MaybeUnset::Unset; 12];
        unset[0] = set(word("all"));
        unset[1] = MaybeUnset::Set(None);
        session.execute_unpaged(&insert, unset).await?;
        say("prepared unset", of("all").await?);
        let named = session
            .prepare("UPDATE simple SET i = :number, l = :other WHERE k = :key")
            .await?;
        let values = HashMap::from([
            ("key", word("all")),
            ("number", CqlValue::Int(77)),
            ("other", CqlValue::BigInt(78)),
        ]);
        session.execute_unpaged(&named, values).await?;
        let found = self.text("SELECT i, l FROM simple WHERE k = 'all'").await?;
        say("prepared named", rows(found)?);
        let delete = session.prepare("DELETE FROM simple WHERE k = ?").await?;
        session.execute_unpaged(&delete, ("nulls",)).await?;
        say("prepared delete", of("nulls").await?);
        let many = session.prepare("SELECT k FROM simple WHERE k IN ?").await?;
        let found = session
            .execute_unpaged(&many, (["all", "literal", "absent"].as_slice(),))
            .await?;
        say(
            "prepared in",
            rows(found)?.into_iter().collect::<BTreeSet<_>>(),
        );
        let running = (0..AT_ONCE).map(|_| session.execute_unpaged(&select, ("all",)));
        let mut found = BTreeSet::new();
        for result in try_join_all(running).await? {
            found.extend(rows(result)?);
        }
        say("prepared at once", found);
        let long: Vec<u8> = (0..300_000).map(|at| (at * 7) as u8).collect();
        let mut values = vec![MaybeUnset::Unset; 12];
        values[0] = set(word("long"));
        values[1] = set(CqlValue::Blob(long.clone()));
        session.execute_unpaged(&insert, values).await?;
        let found = self.text("SELECT b FROM simple WHERE k = 'long'").await?;
        let (back,) = found.into_rows_result()?.single_row::<(Vec<u8>,)>()?;
        say("prepared long", back == long);
        Ok(())
    }

    pub(crate) async fn user_types(&self) -> Outcome {
        self.text("CREATE TYPE address (street text, number int)")
            .await?;
        self.text(
            "CREATE TABLE people (k int PRIMARY KEY, home frozen<address>, pair tuple<int, text>, \
             names list<frozen<address>>)",
        )
        .await?;
        self.text("INSERT INTO people (k, home) VALUES (1, {street: 'Ring', number: 5})")
            .await?;
        let text = "INSERT INTO people (k, home, pair, names) VALUES (?, ?, ?, ?)";
        let insert = self.session.prepare(text).await?;
        let address = |street: &str, number: Option<i32>| CqlValue::UserDefinedType {
            keyspace: self.keyspace.clone(),
            name: "address".to_owned(),
            fields: vec![
                ("street".to_owned(), Some(word(street))),
                ("number".to_owned(), number.map(CqlValue::Int)),
            ],
        };
        let names = CqlValue::List(vec![address("a", Some(1)), address("b", None)]);
        let pair = CqlValue::Tuple(vec![Some(CqlValue::Int(7)), Some(word("seven"))]);
        let values = vec![CqlValue::Int(2), address("Weg", Some(6)), pair, names];
        self.session.execute_unpaged(&insert, values).await?;
        for key in [1, 2] {
            let text = format!("SELECT home, pair, names FROM people WHERE k = {key}");
            say(&format!("type {key}"), rows(self.text(&text).await?)?);
        }
        Ok(())
    }

    async fn batch(&self, kind: BatchType, parts: Vec<Part>) -> Outcome<QueryResult> {
        let (statements, values): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
        let batch = Batch::new_with_statements(kind, statements);
        Ok(self.session.batch(&batch, values).await?)
    }

    pub(crate) async fn batches(&self) -> Outcome {
        self.text("CREATE TABLE items (k int, c int, v text, PRIMARY KEY (k, c))")
            .await?;
        self.text("CREATE TABLE counts (k text PRIMARY KEY, n counter)")
            .await?;
        let insert = self
            .session
            .prepare("INSERT INTO items (k, c, v) VALUES (?, ?, ?)")
            .await?;
        let put = |key: i32, place: i32, text: &str| {
            (
                insert.clone().into(),
                vec![CqlValue::Int(key), CqlValue::Int(place), word(text)],
            )
        };
        let text = |text: &str| (BatchStatement::from(text), Vec::new());
        for (kind, key) in [(BatchType::Logged, 1), (BatchType::Unlogged, 2)] {
            let mut parts: Vec<Part> = (0..4)
                .map(|number| put(key, number, &format!("value {number}")))
                .collect();
            let update = BatchStatement::from("UPDATE items SET v = 'text' WHERE k = ? AND c = 9");
            parts.push((update, vec![CqlValue::Int(key)]));
            parts.push(text(&format!(
                "DELETE FROM items WHERE k = {key} AND c = 0"
            )));
            self.batch(kind, parts).await?;
            let found = self
                .text(&format!("SELECT c, v FROM items WHERE k = {key}"))
                .await?;
            say(&format!("batch {key}"), rows(found)?);
        }
        let add = self
            .session
            .prepare("UPDATE counts SET n = n + ? WHERE k = ?")
            .await?;
        let count = |key: &str, amount: i64| {
            let amount = CqlValue::Counter(scylla::value::Counter(amount));
            (BatchStatement::from(add.clone()), vec![amount, word(key)])
        };
        let parts = vec![count("a", 5), count("b", -3), count("a", 1)];
        self.batch(BatchType::Counter, parts).await?;
        let found = self.text("SELECT k, n FROM counts").await?;
        say(
            "batch of counters",
            rows(found)?.into_iter().collect::<BTreeSet<_>>(),
        );
        self.text(
            "BEGIN BATCH INSERT INTO items (k, c) VALUES (3, 1); \
             INSERT INTO items (k, c) VALUES (3, 2); APPLY BATCH",
        )
        .await?;
        say(
            "batch as text",
            rows(self.text("SELECT c FROM items WHERE k = 3").await?)?,
        );
        let mixed = Batch::new_with_statements(BatchType::Logged, vec![add.clone().into()]);
        let (_, values) = count("a", 1);
        let result = self.session.batch(&mixed, vec![values]).await;
        refused("batch of counters and others", &self.keyspace, result);
        for step in ["batch with a condition", "batch with a condition, again"] {
            let parts = vec![
                text("INSERT INTO items (k, c, v) VALUES (4, 1, 'x') IF NOT EXISTS"),
                text("INSERT INTO items (k, c, v) VALUES (4, 2, 'y') IF NOT EXISTS"),
            ];
            say(step, rows(self.batch(BatchType::Logged, parts).await?)?);
        }
        // Cassandra warns of what is larger than 5 KiB and touches several partitions.
        let large = (0..20)
            .map(|number| put(100 + number, 0, &"x".repeat(500)))
            .collect();
        let result = self.batch(BatchType::Unlogged, large).await?;
        let warned = result.warnings().map(|text| text.contains("exceeding"));
        say("batch that is large", warned.collect::<Vec<_>>());
        Ok(())
    }

    pub(crate) async fn paging(&self) -> Outcome {
        let session = &self.session;
        let insert = session
            .prepare("INSERT INTO items (k, c, v) VALUES (50, ?, ?)")
            .await?;
        for number in 0..50 {
            session
                .execute_unpaged(&insert, (number, format!("page {number}")))
                .await?;
        }
        let simple = Statement::new("SELECT c FROM items WHERE k = 50").with_page_size(PAGE);
        let mut prepared = session.prepare("SELECT c FROM items WHERE k = ?").await?;
        prepared.set_page_size(PAGE);
        for (name, prepared) in [("simple", None), ("prepared", Some(&prepared))] {
            let (mut pages, mut all, mut state) = (Vec::new(), Vec::new(), PagingState::start());
            loop {
                let (page, next) = self.page(&simple, prepared, state).await?;
                pages.push(page.len());
                all.extend(page);
                match next {
                    ControlFlow::Continue(next) => state = next,
                    ControlFlow::Break(()) => break,
                }
            }
            say(&format!("pages {name}"), pages);
            say(
                &format!("pages {name}, all"),
                all == (0..50).collect::<Vec<_>>(),
            );
        }
        // A page is found again by its state.
        let (_, next) = self.page(&simple, None, PagingState::start()).await?;
        if let ControlFlow::Continue(state) = next {
            say("pages by state", self.page(&simple, None, state).await?.0);
        }
        let several = Statement::new("SELECT k, c FROM items WHERE k IN (1, 2, 50)");
        let pager = session.query_iter(several.with_page_size(PAGE), ()).await?;
        let found: Vec<Row> = pager.rows_stream::<Row>()?.try_collect().await?;
        say(
            "pages over partitions",
            found.iter().map(columns).collect::<BTreeSet<_>>().len(),
        );
        let pager = session.execute_iter(prepared, (50,)).await?;
        let found: Vec<(i32,)> = pager.rows_stream::<(i32,)>()?.try_collect().await?;
        say("pages, one after the other", found.len());
        Ok(())
    }

    /// The page that begins at `state`, of one statement or the other.
    async fn page(
        &self,
        simple: &Statement,
        prepared: Option<&PreparedStatement>,
        state: PagingState,
    ) -> Outcome<(Vec<i32>, ControlFlow<(), PagingState>)> {
        let (result, next) = match prepared {
            Some(prepared) => {
                self.session
                    .execute_single_page(prepared, (50,), state)
                    .await?
            }
            None => {
                self.session
                    .query_single_page(simple.clone(), (), state)
                    .await?
            }
        };
        let found = result.into_rows_result()?;
        let found = found.rows::<(i32,)>()?;
        let found = found
            .map(|row| row.map(|(place,)| place))
            .collect::<Result<_, _>>()?;
        Ok((found, next.into_paging_control_flow()))
    }
}
