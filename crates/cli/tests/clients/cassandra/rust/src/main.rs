//! What the Rust driver does with Cassandra:
//! `rust-driver driver|locks HOST PORT KEYSPACE [4 [USER PASSWORD]]`.
//!
//! | first word | what it does |
//! |---|---|
//! | `driver` | statements of all kinds, changes of the schema, errors, traces |
//! | `locks` | the recipe for locks, on the tables `locks` and `leases` |
//!
//! It does the same each time and prints one line for each step, in which there are no times, ids or
//! addresses. So the lines of two runs are alike, whatever stands between the driver and the nodes.
//! The keyspace is made anew, and dropped in the end. The driver speaks version 4 of the protocol.

mod recipe;
mod report_lines;
mod schema;
mod statements;
mod transactions;

use std::env;
use std::error::Error;
use std::num::NonZeroU32;
use std::process::ExitCode;
use std::time::Duration;

use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::errors::ExecutionError;
use scylla::response::query_result::QueryResult;
use scylla::value::CqlValue;
use tokio::runtime;

use report_lines::say;

/// How long a request may take on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(60);

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// The session, and the keyspace that is this program's own.
struct Program {
    session: Session,
    keyspace: String,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let [
        what @ ("driver" | "locks"),
        host,
        port,
        keyspace,
        ref further @ ..,
    ] = arguments[..]
    else {
        return usage();
    };
    let user = match *further {
        [] | ["4"] => None,
        ["4", user, password] => Some((user, password)),
        _ => return usage(),
    };
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    let run = async {
        let session = connect(&format!("{host}:{port}"), user).await?;
        let keyspace = keyspace.to_owned();
        Program { session, keyspace }.run(what).await
    };
    let done = runtime
        .map_err(Into::into)
        .and_then(|runtime| runtime.block_on(run));
    match done {
        Ok(()) => {
            println!("done");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: rust-driver driver|locks HOST PORT KEYSPACE [4 [USER PASSWORD]]");
    ExitCode::FAILURE
}

async fn connect(address: &str, user: Option<(&str, &str)>) -> Outcome<Session> {
    let profile = ExecutionProfile::builder().request_timeout(Some(PATIENCE));
    let mut builder = SessionBuilder::new()
        .known_node(address)
        .connection_timeout(PATIENCE)
        .schema_agreement_timeout(PATIENCE)
        .tracing_info_fetch_attempts(NonZeroU32::new(100).ok_or("no attempts")?)
        .tracing_info_fetch_interval(Duration::from_millis(200))
        .default_execution_profile_handle(profile.build().into_handle());
    if let Some((user, password)) = user {
        builder = builder.user(user, password);
    }
    Ok(builder.build().await?)
}

impl Program {
    async fn run(&self, what: &str) -> Outcome {
        let keyspace = &self.keyspace;
        self.text(&format!("DROP KEYSPACE IF EXISTS {keyspace}"))
            .await?;
        self.text(&format!(
            "CREATE KEYSPACE {keyspace} WITH replication = \
             {{'class': 'SimpleStrategy', 'replication_factor': 1}}"
        ))
        .await?;
        self.session.use_keyspace(keyspace, false).await?;
        let used = self.session.get_keyspace();
        say("keyspace", used.is_some_and(|used| *used == *keyspace));
        if what == "locks" {
            return self.recipe().await;
        }
        self.simple().await?;
        self.prepared().await?;
        self.user_types().await?;
        self.batches().await?;
        self.paging().await?;
        self.transactions().await?;
        self.schema().await?;
        self.errors().await?;
        self.tracing().await?;
        self.system().await?;
        self.ends().await
    }

    /// Executes a text without values.
    async fn text(&self, text: &str) -> Result<QueryResult, ExecutionError> {
        self.session.query_unpaged(text, ()).await
    }

    /// Executes a text with values, which the driver prepares for it.
    async fn with(&self, text: &str, values: Vec<CqlValue>) -> Result<QueryResult, ExecutionError> {
        self.session.query_unpaged(text, values).await
    }
}
