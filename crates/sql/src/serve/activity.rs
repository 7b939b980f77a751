//! What the clients of a server do, as `pg_stat_activity` shows it, and functions by which one client ends
//! what another one does.
//!
//! Clients have no roles: each that may connect may end what the others do, as a superuser of PostgreSQL.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use datafusion::arrow::array::{
    ArrayRef, AsArray, BooleanArray, Int32Array, Int64Array, RecordBatch, StringArray,
    TimestampMicrosecondArray, UInt32Array,
};
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::common::Result;
use datafusion::datasource::MemTable;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature,
    Volatility,
};
use parking_lot::Mutex;
use pgwire::api::{ClientInfo, ConnectionHandle};
use pgwire::messages::response::TransactionStatus;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::session::CATALOGUE;

/// The name of the view.
pub(crate) const VIEW: &str = "pg_stat_activity";
/// Bytes of a statement that are shown, as by PostgreSQL's default.
const SHOWN: usize = 1024;
/// What PostgreSQL answers for the first database and the first role that were made.
const DATABASE_ID: u32 = 16_384;
const ROLE_ID: u32 = 10;

/// The clients of a server.
pub(crate) struct Activity {
    clients: Mutex<BTreeMap<i32, Arc<ClientActivity>>>,
    /// Where cancellations run.
    runtime: Handle,
}

/// A client that has authenticated.
pub(crate) struct ClientActivity {
    pid: i32,
    user: String,
    application: String,
    address: SocketAddr,
    connected: i64,
    doing: Mutex<Doing>,
    cancel: Option<Arc<ConnectionHandle>>,
    terminate: Notify,
}

/// Times are in microseconds since the Unix epoch.
struct Doing {
    state: &'static str,
    query: String,
    query_start: Option<i64>,
    transaction_start: Option<i64>,
    changed: i64,
}

/// A client's own view of the server's activity. It belongs to its connection.
pub(crate) struct Own {
    activity: Arc<Activity>,
    client: OnceLock<Arc<ClientActivity>>,
}

/// Has the client be shown until it is dropped.
pub(crate) struct Registered<'o>(&'o Own);

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        if let Some(client) = self.0.client.get() {
            self.0.activity.clients.lock().remove(&client.pid);
        }
    }
}

impl Activity {
    /// Returns the activity of no client. Call it within a runtime.
    pub(crate) fn new() -> Arc<Activity> {
        Arc::new(Activity {
            clients: Mutex::default(),
            runtime: Handle::current(),
        })
    }

    /// Cancels the statement of a client, or closes its connection. Returns `false` if there is no such client.
    fn end(&self, pid: i64, end: End) -> bool {
        let clients = self.clients.lock();
        let client = i32::try_from(pid).ok().and_then(|pid| clients.get(&pid));
        let Some(client) = client else { return false };
        match (end, &client.cancel) {
            (End::Connection, _) => client.terminate.notify_one(),
            (End::Statement, Some(handle)) => {
                let handle = Arc::clone(handle);
                self.runtime.spawn(async move { handle.cancel().await });
            }
            (End::Statement, None) => {}
        }
        true
    }

    /// Returns the view's rows.
    fn rows(&self) -> Result<RecordBatch> {
        let clients: Vec<_> = self.clients.lock().values().map(Arc::clone).collect();
        let doing: Vec<_> = clients.iter().map(|client| client.doing.lock()).collect();
        let count = clients.len();
        let texts = |values: Vec<&str>| Arc::new(StringArray::from(values)) as ArrayRef;
        let same = |text: &'static str| texts(vec![text; count]);
        let no_text = || Arc::new(StringArray::from(vec![None::<&str>; count])) as ArrayRef;
        let ids = |id: Option<u32>| Arc::new(UInt32Array::from(vec![id; count])) as ArrayRef;
        let times = |values: Vec<Option<i64>>| {
            Arc::new(TimestampMicrosecondArray::from(values).with_timezone("UTC")) as ArrayRef
        };
        let addresses: Vec<_> = clients
            .iter()
            .map(|one| one.address.ip().to_string())
            .collect();
        let numbers = |values: Vec<Option<i32>>| Arc::new(Int32Array::from(values)) as ArrayRef;
        let ports = clients.iter().map(|one| Some(one.address.port().into()));
        let columns: [(&str, ArrayRef); 22] = [
            ("datid", ids(Some(DATABASE_ID))),
            ("datname", same(CATALOGUE)),
            (
                "pid",
                numbers(clients.iter().map(|one| Some(one.pid)).collect()),
            ),
            ("leader_pid", numbers(vec![None; count])),
            ("usesysid", ids(Some(ROLE_ID))),
            (
                "usename",
                texts(clients.iter().map(|one| &*one.user).collect()),
            ),
            (
                "application_name",
                texts(clients.iter().map(|one| &*one.application).collect()),
            ),
            (
                "client_addr",
                texts(addresses.iter().map(|one| &**one).collect()),
            ),
            ("client_hostname", no_text()),
            ("client_port", numbers(ports.collect())),
            (
                "backend_start",
                times(clients.iter().map(|one| Some(one.connected)).collect()),
            ),
            (
                "xact_start",
                times(doing.iter().map(|one| one.transaction_start).collect()),
            ),
            (
                "query_start",
                times(doing.iter().map(|one| one.query_start).collect()),
            ),
            (
                "state_change",
                times(doing.iter().map(|one| Some(one.changed)).collect()),
            ),
            ("wait_event_type", no_text()),
            ("wait_event", no_text()),
            ("state", texts(doing.iter().map(|one| one.state).collect())),
            ("backend_xid", ids(None)),
            ("backend_xmin", ids(None)),
            (
                "query_id",
                Arc::new(Int64Array::from(vec![None; count])) as ArrayRef,
            ),
            (
                "query",
                texts(doing.iter().map(|one| &*one.query).collect()),
            ),
            ("backend_type", same("client backend")),
        ];
        let nullable = columns.map(|(name, values)| (name, values, true));
        Ok(RecordBatch::try_from_iter_with_nullable(nullable)?)
    }
}

impl ClientActivity {
    /// Waits until another client has the connection closed.
    pub(crate) async fn terminated(&self) {
        self.terminate.notified().await;
    }
}

impl Own {
    pub(crate) fn new(activity: &Arc<Activity>) -> Own {
        Own {
            activity: Arc::clone(activity),
            client: OnceLock::new(),
        }
    }

    /// Registers a client that has authenticated: it is shown from now on.
    pub(crate) fn register<C: ClientInfo>(&self, client: &C) -> Registered<'_> {
        let said = |name: &str| client.metadata().get(name).cloned().unwrap_or_default();
        let now = now();
        let registered = self.client.get_or_init(|| {
            Arc::new(ClientActivity {
                pid: client.pid_and_secret_key().0,
                user: said("user"),
                application: said("application_name"),
                address: client.socket_addr(),
                connected: now,
                doing: Mutex::new(Doing {
                    state: "idle",
                    query: String::new(),
                    query_start: None,
                    transaction_start: None,
                    changed: now,
                }),
                cancel: client
                    .session_extensions()
                    .get::<Arc<ConnectionHandle>>()
                    .map(|handle| Arc::clone(&*handle)),
                terminate: Notify::new(),
            })
        });
        let mut clients = self.activity.clients.lock();
        clients.insert(registered.pid, Arc::clone(registered));
        drop(clients);
        Registered(self)
    }

    /// Returns the client, once it has authenticated.
    pub(crate) fn client(&self) -> Option<&ClientActivity> {
        self.client.get().map(|client| &**client)
    }

    /// Notes that the client's statement begins.
    pub(crate) fn begin(&self, sql: &str) {
        let Some(client) = self.client.get() else {
            return;
        };
        let now = now();
        let mut doing = client.doing.lock();
        doing.query.clear();
        doing.query.push_str(&sql[..sql.floor_char_boundary(SHOWN)]);
        doing.query_start = Some(now);
        doing.transaction_start.get_or_insert(now);
        (doing.state, doing.changed) = ("active", now);
    }

    /// Notes that the client's message was answered.
    pub(crate) fn end(&self, transaction: TransactionStatus) {
        let Some(client) = self.client.get() else {
            return;
        };
        let mut doing = client.doing.lock();
        let state = match transaction {
            TransactionStatus::Idle => "idle",
            TransactionStatus::Transaction => "idle in transaction",
            TransactionStatus::Error => "idle in transaction (aborted)",
        };
        if transaction == TransactionStatus::Idle {
            doing.transaction_start = None;
        }
        if state != doing.state {
            (doing.state, doing.changed) = (state, now());
        }
    }

    /// Returns `pg_catalog` with the view.
    pub(crate) fn schema(&self, of: Arc<dyn SchemaProvider>) -> Arc<dyn SchemaProvider> {
        let activity = Arc::clone(&self.activity);
        Arc::new(WithView { of, activity })
    }

    /// Returns the functions that name clients.
    pub(crate) fn functions(&self) -> [ScalarUDF; 3] {
        let end = |name, end, signatures| {
            ScalarUDF::new_from_impl(Ends {
                name,
                end,
                signature: Signature::one_of(signatures, Volatility::Volatile),
                activity: Arc::clone(&self.activity),
            })
        };
        let pid = TypeSignature::Exact(vec![DataType::Int64]);
        let with_time = TypeSignature::Exact(vec![DataType::Int64; 2]);
        [
            end("pg_cancel_backend", End::Statement, vec![pid.clone()]),
            end(
                "pg_terminate_backend",
                End::Connection,
                vec![pid, with_time],
            ),
            ScalarUDF::new_from_impl(Pid {
                pid: self.client.get().map_or(0, |client| client.pid),
                signature: Signature::nullary(Volatility::Stable),
            }),
        ]
    }
}

/// `pg_catalog` and the view, whose rows are those of the moment when a statement is planned.
struct WithView {
    of: Arc<dyn SchemaProvider>,
    activity: Arc<Activity>,
}

impl std::fmt::Debug for WithView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("WithView").field(&self.of).finish()
    }
}

#[async_trait]
impl SchemaProvider for WithView {
    fn table_names(&self) -> Vec<String> {
        let mut names = self.of.table_names();
        names.push(VIEW.to_owned());
        names
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        if name != VIEW {
            return self.of.table(name).await;
        }
        let rows = self.activity.rows()?;
        let table = MemTable::try_new(rows.schema(), vec![vec![rows]])?;
        Ok(Some(Arc::new(table)))
    }

    fn table_exist(&self, name: &str) -> bool {
        name == VIEW || self.of.table_exist(name)
    }
}

/// What is ended of a client.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum End {
    Statement,
    Connection,
}

/// A function that ends what clients do.
struct Ends {
    name: &'static str,
    end: End,
    signature: Signature,
    activity: Arc<Activity>,
}

impl std::fmt::Debug for Ends {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Ends").field(&self.end).finish()
    }
}

impl PartialEq for Ends {
    fn eq(&self, other: &Ends) -> bool {
        self.end == other.end && Arc::ptr_eq(&self.activity, &other.activity)
    }
}

impl Eq for Ends {}

impl std::hash::Hash for Ends {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.end.hash(state);
    }
}

impl ScalarUDFImpl for Ends {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let pids = args.args[0].to_array(args.number_rows)?;
        let pids = pids.as_primitive::<Int64Type>();
        let ended = pids
            .iter()
            .map(|pid| Some(self.activity.end(pid?, self.end)));
        let ended: BooleanArray = ended.collect();
        Ok(ColumnarValue::Array(Arc::new(ended)))
    }
}

/// `pg_backend_pid`.
#[derive(PartialEq, Eq, Hash, Debug)]
struct Pid {
    pid: i32,
    signature: Signature,
}

impl ScalarUDFImpl for Pid {
    fn name(&self) -> &str {
        "pg_backend_pid"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int32)
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(ColumnarValue::Scalar(self.pid.into()))
    }
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
    })
}
