//! Lightweight transactions, and the recipe for locks.

use std::time::Duration;

use scylla::response::query_result::QueryResult;
use scylla::statement::Consistency;
use scylla::statement::prepared::PreparedStatement;
use scylla::statement::unprepared::Statement;

use crate::report_lines::{rows, say, table};
use crate::{Outcome, Program};

/// Longer than the shortest lease.
const LEASE_ENDS: Duration = Duration::from_secs(3);

/// A conditional statement's row: the first value says whether it was applied.
fn step(name: &str, result: QueryResult) -> Outcome {
    say(name, table(result)?);
    Ok(())
}

impl Program {
    async fn execute(&self, name: &str, statement: &PreparedStatement, values: &[&str]) -> Outcome {
        step(name, self.session.execute_unpaged(statement, values).await?)
    }

    pub(crate) async fn transactions(&self) -> Outcome {
        self.text("CREATE TABLE locks (name text PRIMARY KEY, owner text)")
            .await?;
        let session = &self.session;
        let acquire = session
            .prepare("INSERT INTO locks (name, owner) VALUES (?, ?) IF NOT EXISTS USING TTL 600")
            .await?;
        let renew = session
            .prepare("UPDATE locks USING TTL 600 SET owner = ? WHERE name = ? IF owner = ?")
            .await?;
        let release = session
            .prepare("DELETE FROM locks WHERE name = ? IF owner = ?")
            .await?;
        say(
            "transactions, known as such",
            [&acquire, &renew, &release].map(PreparedStatement::is_confirmed_lwt),
        );
        let holder = session
            .prepare("SELECT owner FROM locks WHERE name = ?")
            .await?;
        let left = session
            .prepare("SELECT ttl(owner) FROM locks WHERE name = ?")
            .await?;
        self.execute("lock", &acquire, &["door", "anna"]).await?;
        self.execute("lock, held", &acquire, &["door", "bert"])
            .await?;
        self.execute("lock, held by the same", &acquire, &["door", "anna"])
            .await?;
        let found = session.execute_unpaged(&holder, ("door",)).await?;
        say("lock, its holder", rows(found)?);
        let found = session.execute_unpaged(&left, ("door",)).await?;
        let (seconds,) = found.into_rows_result()?.single_row::<(i32,)>()?;
        say("lock, its time", 0 < seconds && seconds <= 600);
        self.execute("renew", &renew, &["anna", "door", "anna"])
            .await?;
        self.execute("renew, not the holder", &renew, &["bert", "door", "bert"])
            .await?;
        self.execute("renew, absent", &renew, &["bert", "window", "bert"])
            .await?;
        self.execute("release, not the holder", &release, &["door", "bert"])
            .await?;
        self.execute("release", &release, &["door", "anna"]).await?;
        self.execute("release, absent", &release, &["door", "anna"])
            .await?;
        let found = session.execute_unpaged(&holder, ("door",)).await?;
        say("lock, nobody's", rows(found)?);
        self.execute("lock, again", &acquire, &["door", "bert"])
            .await?;
        self.as_text(
            "lock as text",
            "INSERT INTO locks (name, owner) VALUES ('short', 'anna') IF NOT EXISTS USING TTL 1",
        )
        .await?;
        tokio::time::sleep(LEASE_ENDS).await;
        self.execute("lock, its lease has ended", &acquire, &["short", "bert"])
            .await?;
        self.as_text(
            "renew by text",
            "UPDATE locks SET owner = 'carl' WHERE name = 'short' IF owner = 'bert'",
        )
        .await?;
        self.as_text(
            "release as text",
            "DELETE FROM locks WHERE name = 'short' IF owner = 'carl'",
        )
        .await?;
        self.as_text(
            "delete if there",
            "DELETE FROM locks WHERE name = 'door' IF EXISTS",
        )
        .await?;
        let mut serial = Statement::new("SELECT owner FROM locks WHERE name = 'door'");
        serial.set_consistency(Consistency::Serial);
        say(
            "serial read",
            rows(session.query_unpaged(serial, ()).await?)?,
        );
        self.text("INSERT INTO items (k, c, v) VALUES (7, 7, 'seven')")
            .await?;
        self.as_text(
            "compare and set",
            "UPDATE items SET v = 'eight' WHERE k = 7 AND c = 7 IF v = 'seven'",
        )
        .await?;
        self.as_text(
            "compare and set, failed",
            "UPDATE items SET v = 'nine' WHERE k = 7 AND c = 7 IF v IN ('a', 'b')",
        )
        .await
    }

    async fn as_text(&self, name: &str, text: &str) -> Outcome {
        step(name, self.text(text).await?)
    }
}
