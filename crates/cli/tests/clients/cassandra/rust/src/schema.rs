//! Changes of the schema, errors, traces, and what the driver knows of nodes and tables.

use std::collections::BTreeSet;
use std::time::Duration;

use scylla::statement::Consistency;
use scylla::statement::unprepared::Statement;

use crate::report_lines::{of_prepare, refused, rows, say, tell};
use crate::statements::word;
use crate::{Outcome, Program};

impl Program {
    pub(crate) async fn schema(&self) -> Outcome {
        let session = &self.session;
        self.text("CREATE TABLE grows (k int PRIMARY KEY, a text)")
            .await?;
        let insert = session
            .prepare("INSERT INTO grows (k, a) VALUES (?, ?)")
            .await?;
        let select = session.prepare("SELECT * FROM grows WHERE k = ?").await?;
        session.execute_unpaged(&insert, (1, "one")).await?;
        say(
            "schema before",
            rows(session.execute_unpaged(&select, (1,)).await?)?,
        );
        self.text("ALTER TABLE grows ADD b int").await?;
        session.execute_unpaged(&insert, (2, "two")).await?;
        self.text("UPDATE grows SET b = 5 WHERE k = 2").await?;
        let fresh = session
            .prepare("SELECT k, a, b FROM grows WHERE k = ?")
            .await?;
        let found = session.execute_unpaged(&fresh, (2,)).await?;
        say("schema after, prepared anew", rows(found)?);
        // The statement is prepared again by the driver when it is told that it must be.
        say(
            "schema after",
            rows(session.execute_unpaged(&select, (2,)).await?)?,
        );
        self.text("DROP TABLE grows").await?;
        let result = session.execute_unpaged(&insert, (3, "three")).await;
        refused("schema, table dropped", &self.keyspace, result);
        Ok(())
    }

    pub(crate) async fn errors(&self) -> Outcome {
        for (step, text) in [
            ("error of syntax", "SELEC * FROM simple"),
            ("error of a table", "SELECT * FROM nowhere"),
            ("error of a column", "SELECT nothing FROM simple"),
            (
                "error of a type",
                "INSERT INTO simple (k, i) VALUES ('x', 'text')",
            ),
            ("error of a key", "SELECT * FROM items WHERE c = 1"),
            ("error of a keyspace", "SELECT * FROM nowhere_at_all.simple"),
            (
                "error, there already",
                "CREATE TABLE simple (k int PRIMARY KEY)",
            ),
        ] {
            refused(step, &self.keyspace, self.text(text).await);
        }
        let prepared = self
            .session
            .prepare("SELECT * FROM nowhere WHERE k = ?")
            .await;
        tell(
            "error when preparing",
            match prepared {
                Ok(_) => "not refused".to_owned(),
                Err(error) => of_prepare(&error).replace(&self.keyspace, "KEYSPACE"),
            },
        );
        let mut three = Statement::new("SELECT * FROM simple WHERE k = 'all'");
        three.set_consistency(Consistency::Three);
        let result = self.session.query_unpaged(three, ()).await;
        refused("error of replicas", &self.keyspace, result);
        // The connection is none the worse.
        let found = self.text("SELECT k FROM simple WHERE k = 'all'").await?;
        say("after errors", rows(found)?);
        Ok(())
    }

    pub(crate) async fn tracing(&self) -> Outcome {
        let session = &self.session;
        let mut simple = Statement::new("SELECT k FROM simple WHERE k = 'all'");
        simple.set_tracing(true);
        let mut prepared = session.prepare("SELECT k FROM simple WHERE k = ?").await?;
        prepared.set_tracing(true);
        for (step, result) in [
            ("trace", session.query_unpaged(simple, ()).await?),
            (
                "trace of a prepared statement",
                session.execute_unpaged(&prepared, ("all",)).await?,
            ),
        ] {
            let id = result.tracing_id().ok_or("there is no trace")?;
            // A node writes it after it has answered.
            let mut trace = session.get_tracing_info(&id).await?;
            for _ in 0..40 {
                if trace.events.len() > 3 {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(250)).await;
                trace = session.get_tracing_info(&id).await?;
            }
            let parameters = trace.parameters.unwrap_or_default();
            let told = (
                trace.request,
                parameters.get("query").cloned(),
                trace.events.len() > 3,
            );
            say(step, told);
        }
        Ok(())
    }

    pub(crate) async fn system(&self) -> Outcome {
        let found = self
            .text("SELECT key, partitioner FROM system.local")
            .await?;
        say("local", rows(found)?);
        let found = self
            .text("SELECT * FROM system.local WHERE key = 'local'")
            .await?;
        say("local by key", rows(found)?.len());
        let text = "SELECT column_name, kind, type FROM system_schema.columns \
                    WHERE keyspace_name = ? AND table_name = 'items'";
        let found = self.with(text, vec![word(&self.keyspace)]).await?;
        say("columns", rows(found)?.into_iter().collect::<BTreeSet<_>>());
        self.session.refresh_metadata().await?;
        let known = self.session.get_cluster_state();
        let nodes = known.get_nodes_info().iter();
        let nodes = nodes.map(|node| (&node.datacenter, &node.rack, node.sharder().is_some()));
        say("nodes", nodes.collect::<Vec<_>>());
        let keyspace = known.get_keyspace(&self.keyspace).ok_or("no keyspace")?;
        let tables = keyspace.tables.iter().map(|(name, table)| {
            let columns: BTreeSet<&String> = table.columns.keys().collect();
            (name, &table.partition_key, &table.clustering_key, columns)
        });
        let mut tables: Vec<_> = tables.collect();
        tables.sort();
        say("tables", tables);
        let types = keyspace.user_defined_types.values();
        let types = types.map(|known| (&known.name, &known.field_types));
        say("types", types.collect::<Vec<_>>());
        Ok(())
    }

    pub(crate) async fn ends(&self) -> Outcome {
        self.text("TRUNCATE items").await?;
        say("truncated", rows(self.text("SELECT * FROM items").await?)?);
        self.text(&format!("DROP KEYSPACE {}", self.keyspace))
            .await?;
        refused(
            "dropped",
            &self.keyspace,
            self.text("SELECT * FROM items").await,
        );
        Ok(())
    }
}
