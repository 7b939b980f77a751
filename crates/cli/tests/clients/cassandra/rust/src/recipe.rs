//! The recipe for locks, on the tables `locks` and `leases`: they are taken, renewed, given and lost.
//! Each step prints what the driver says of the answer: names, types and values.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use futures::future::try_join_all;
use scylla::response::query_result::QueryResult;
use scylla::statement::prepared::PreparedStatement;
use scylla::value::{CqlValue, MaybeUnset};
use uuid::Uuid;

use crate::report_lines::{of_prepare, refused, say, table, tell};
use crate::statements::{ID, set, word};
use crate::{Outcome, Program};

const LOCKS: &str = "CREATE TABLE locks (name text PRIMARY KEY, owner text, note text)";
const LEASES: &str = "CREATE TABLE leases (shard int, name text, owner uuid, host inet, \
                      epoch bigint, live boolean, PRIMARY KEY (shard, name))";
/// Longer than the shortest lease.
const LEASE_ENDS: Duration = Duration::from_secs(9);
/// Clients that want a lock at the same time.
const RACE: usize = 100;

/// The lock `door`, by texts.
const AS_TEXT: [(&str, &str); 14] = [
    ("text, nobody's", "SELECT * FROM locks WHERE name = 'door'"),
    (
        "text, taken",
        "INSERT INTO locks (name, owner) VALUES ('door', 'anna') IF NOT EXISTS USING TTL 600",
    ),
    (
        "text, held",
        "INSERT INTO locks (name, owner) VALUES ('door', 'bert') IF NOT EXISTS USING TTL 600",
    ),
    (
        "text, its holder",
        "SELECT * FROM locks WHERE name = 'door'",
    ),
    (
        "text, renamed",
        "SELECT owner AS who FROM locks WHERE name = 'door' LIMIT 1",
    ),
    (
        "text, renewed",
        "UPDATE locks USING TTL 600 SET owner = 'anna' WHERE name = 'door' IF owner = 'anna'",
    ),
    (
        "text, renewed by another",
        "UPDATE locks USING TTL 600 SET owner = 'bert' WHERE name = 'door' IF owner = 'bert'",
    ),
    (
        "text, two conditions",
        "UPDATE locks USING TTL 600 SET note = 'n' WHERE name = 'door' IF owner = 'anna' AND note = 'x'",
    ),
    (
        "text, if there",
        "UPDATE locks USING TTL 600 SET note = null WHERE name = 'door' IF EXISTS",
    ),
    (
        "text, if there, absent",
        "UPDATE locks USING TTL 600 SET note = 'n' WHERE name = 'window' IF EXISTS",
    ),
    (
        "text, given by another",
        "DELETE FROM locks WHERE name = 'door' IF owner = 'bert'",
    ),
    (
        "text, given",
        "DELETE FROM locks WHERE name = 'door' IF owner = 'anna'",
    ),
    (
        "text, given, absent",
        "DELETE FROM locks WHERE name = 'door' IF owner = 'anna'",
    ),
    (
        "text, gone",
        "SELECT owner, name FROM locks WHERE name = 'door'",
    ),
];

/// Texts that are refused.
const WRONG: [(&str, &str); 6] = [
    (
        "error of a column",
        "INSERT INTO locks (name, nothing) VALUES ('a', 'b') IF NOT EXISTS",
    ),
    (
        "error of the key",
        "INSERT INTO locks (owner) VALUES ('b') IF NOT EXISTS",
    ),
    (
        "error of a lease",
        "INSERT INTO locks (name) VALUES ('b') IF NOT EXISTS USING TTL -1",
    ),
    (
        "error of a condition",
        "UPDATE locks SET owner = 'a' WHERE name = 'b' IF name = 'b'",
    ),
    (
        "error of an empty key",
        "DELETE FROM locks WHERE name = '' IF EXISTS",
    ),
    ("error of a table", "SELECT * FROM keys WHERE name = 'a'"),
];

fn told(step: &str, result: QueryResult) -> Outcome {
    say(step, table(result)?);
    Ok(())
}

impl Program {
    /// Does all of it.
    pub(crate) async fn recipe(&self) -> Outcome {
        self.text(LOCKS).await?;
        self.text(LEASES).await?;
        for (step, text) in AS_TEXT {
            told(step, self.text(text).await?)?;
        }
        self.prepared_locks().await?;
        self.key_of_two().await?;
        for (step, text) in WRONG {
            refused(step, &self.keyspace, self.text(text).await);
        }
        let wrong = "DELETE FROM locks WHERE nobody = ? IF owner = ?";
        let error = self.session.prepare(wrong).await.err();
        let words = error.map_or_else(|| "not refused".to_owned(), |error| of_prepare(&error));
        tell(
            "error when preparing",
            words.replace(&self.keyspace, "KEYSPACE"),
        );
        // A table that is made anew has no locks of the one before.
        self.text("DROP TABLE locks").await?;
        self.text(LOCKS).await?;
        let short = "SELECT * FROM locks WHERE name = 'short'";
        told("made anew", self.text(short).await?)?;
        self.text("ALTER TABLE locks ADD more int").await?;
        for step in ["grown", "grown, held"] {
            let insert = "INSERT INTO locks (name, more) VALUES ('short', 5) IF NOT EXISTS";
            told(step, self.text(insert).await?)?;
        }
        self.text(&format!("DROP KEYSPACE {}", self.keyspace))
            .await?;
        Ok(())
    }

    async fn prepare(&self, name: &str, text: &str) -> Outcome<PreparedStatement> {
        let prepared = self.session.prepare(text).await?;
        let columns = prepared.get_variable_col_specs();
        let columns = columns
            .iter()
            .map(|column| (column.name().to_owned(), column.typ().clone()));
        let key = prepared
            .get_variable_pk_indexes()
            .iter()
            .map(|key| key.index);
        let (columns, key): (Vec<_>, Vec<_>) = (columns.collect(), key.collect());
        say(
            &format!("prepared, {name}"),
            (columns, key, prepared.is_confirmed_lwt()),
        );
        Ok(prepared)
    }

    async fn prepared_locks(&self) -> Outcome {
        let take =
            "INSERT INTO locks (name, owner, note) VALUES (?, ?, ?) IF NOT EXISTS USING TTL ?";
        let take = self.prepare("take", take).await?;
        let renew = "UPDATE locks USING TTL ? SET owner = ? WHERE name = ? IF owner = ?";
        let renew = self.prepare("renew", renew).await?;
        let give = self
            .prepare("give", "DELETE FROM locks WHERE name = ? IF owner = ?")
            .await?;
        let holder = self
            .prepare("holder", "SELECT owner, note FROM locks WHERE name = ?")
            .await?;
        let run = async |step: &str, statement: &PreparedStatement, values: Vec<CqlValue>| {
            told(step, self.session.execute_unpaged(statement, values).await?)
        };
        let taken = |name: &str, owner: &str, lease: i32| {
            vec![word(name), word(owner), word("why"), CqlValue::Int(lease)]
        };
        let renewed = |owner: &str, name: &str, before: &str| {
            vec![CqlValue::Int(600), word(owner), word(name), word(before)]
        };
        run("prepared, taken", &take, taken("wall", "anna", 600)).await?;
        run("prepared, held", &take, taken("wall", "bert", 600)).await?;
        run("prepared, its holder", &holder, vec![word("wall")]).await?;
        run("prepared, renewed", &renew, renewed("anna", "wall", "anna")).await?;
        run(
            "prepared, passed on",
            &renew,
            renewed("bert", "wall", "anna"),
        )
        .await?;
        run(
            "prepared, too late",
            &renew,
            renewed("bert", "wall", "anna"),
        )
        .await?;
        run(
            "prepared, given by another",
            &give,
            vec![word("wall"), word("anna")],
        )
        .await?;
        run("prepared, given", &give, vec![word("wall"), word("bert")]).await?;
        run("prepared, nobody's", &holder, vec![word("wall")]).await?;
        let unset = vec![
            set(word("fence")),
            set(word("anna")),
            MaybeUnset::Unset,
            MaybeUnset::Unset,
        ];
        let result = self.session.execute_unpaged(&take, unset).await?;
        told("prepared, unset", result)?;
        run("prepared, short", &take, taken("short", "anna", 6)).await?;
        run("prepared, short, held", &take, taken("short", "bert", 6)).await?;
        tokio::time::sleep(LEASE_ENDS).await;
        run(
            "prepared, its lease has ended",
            &holder,
            vec![word("short")],
        )
        .await?;
        run("prepared, taken over", &take, taken("short", "bert", 600)).await?;
        let race = (0..RACE).map(|number| {
            let values = taken("race", &format!("client {number}"), 600);
            self.session.execute_unpaged(&take, values)
        });
        let mut winners = 0;
        for result in try_join_all(race).await? {
            let (_, rows) = table(result)?;
            winners += usize::from(rows[0][0] == "Boolean(true)");
        }
        say("prepared, at once", winners);
        Ok(())
    }

    async fn key_of_two(&self) -> Outcome {
        let take = "INSERT INTO leases (shard, name, owner, host, epoch, live) \
                    VALUES (?, ?, ?, ?, ?, ?) IF NOT EXISTS USING TTL 600";
        let take = self.prepare("take of two", take).await?;
        let session = &self.session;
        let (four, six) = (
            IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(Ipv6Addr::LOCALHOST),
        );
        let lease = |name: &'static str, host: IpAddr, epoch: i64, live: Option<bool>| {
            let values: (i32, &str, Uuid, IpAddr, i64, Option<bool>) =
                (1, name, ID, host, epoch, live);
            session.execute_unpaged(&take, values)
        };
        told("two, taken", lease("a", four, 1 << 40, Some(true)).await?)?;
        told("two, another", lease("b", six, -1, None).await?)?;
        told("two, held", lease("a", four, 1 << 40, Some(false)).await?)?;
        let renew = "UPDATE leases USING TTL 600 SET epoch = ? WHERE name = ? AND shard = ? \
                     IF owner = ? AND epoch = ?";
        let renew = self.prepare("renew of two", renew).await?;
        for step in ["two, renewed", "two, renewed too late"] {
            let values = (1_i64 << 41, "a", 1, ID, 1_i64 << 40);
            told(step, session.execute_unpaged(&renew, values).await?)?;
        }
        let holder = "SELECT * FROM leases WHERE shard = 1 AND name = 'b'";
        told("two, its holder", self.text(holder).await?)?;
        let give = format!(
            "DELETE FROM leases WHERE shard = 1 AND name = 'b' IF owner = {ID} AND host = '::1'"
        );
        told("two, as text", self.text(&give).await?)?;
        let give = "DELETE FROM leases WHERE shard = 1 AND name = 'a' IF live = true";
        told("two, given", self.text(give).await?)
    }
}
