//! Requests on a schedule: bare round trips, straight to a node, and through the proxy, by turns in
//! short slices.
//!
//! Of ten requests nine write a row with a key and a value of 5 bytes, and one reads the row that
//! was written last. Each client has rows of its own, so that it knows every answer.

use std::net::SocketAddr;

use cql::{Bound, Consistency, ResultBody, ValueList, Version};

use super::system::{CassandraRoute, CassandraSystem};
use crate::driver::{BlockingClient, DONE, DrivePlan, DriveResult, LoadSchedule, drive_slice};
use crate::error::RunError;
use crate::run_context::RunContext;
use crate::sample::RunSample;
use crate::systems::EchoConnection;
use cassandra::{self, CqlConnection, PreparedStatement};

/// Slices of each kind in one run.
const SLICES: u32 = 8;
/// Bytes of a request and of a reply on the bare connection: about as long as an EXECUTE that
/// writes, and its reply.
const REQUEST: usize = 58;
const REPLY: usize = 13;
/// One request in so many reads.
const READS: u64 = 10;
/// Rows of a client.
const ROWS: u64 = 16;

pub(super) struct PacedLoad {
    pub(super) version: Version,
    /// Requests a second of all clients together.
    pub(super) rate: f64,
    /// Requests before that, each way.
    pub(super) warm_up: u64,
    pub(super) clients: usize,
}

pub(super) fn measure(
    paced: &PacedLoad,
    system: &CassandraSystem,
    context: &RunContext<'_>,
    sample: &mut RunSample,
) -> Result<(), RunError> {
    let failed = |what: &'static str| move |error: RunError| RunError::failed(what)(&error);
    create(&system.nodes()).map_err(failed("making a table"))?;
    let connect = |route, first: usize| {
        let all = first..first + paced.clients;
        PreparedClients::connect(all, &system.targets(route), paced.version)
            .map_err(failed("connecting"))
    };
    let mut bare =
        EchoConnection::new(REQUEST, REPLY).map_err(|error| RunError::failed("echoing")(&error))?;
    let mut direct = connect(CassandraRoute::Direct, 0)?;
    let mut proxy = connect(CassandraRoute::Proxy, paced.clients)?;
    for _ in 0..paced.warm_up {
        direct.run()?;
        proxy.run()?;
    }
    let plan = DrivePlan {
        pace: LoadSchedule::Open { rate: paced.rate },
        warm_up: context.scale.warm_up / SLICES,
        time: context.scale.time / SLICES,
    };
    let [mut bare_driven, mut direct_driven, mut driven] = [(); 3].map(|()| DriveResult::default());
    let (mut direct_used, mut used) = ([0.0; 2], [0.0; 2]);
    let add = |sum: &mut [f64; 2], before: [f64; 2]| {
        let after = system.used();
        for ((sum, before), after) in sum.iter_mut().zip(before).zip(after) {
            *sum += after - before;
        }
    };
    let done = |driven: &DriveResult| driven.latency.count() as f64;
    for _ in 0..SLICES {
        bare = drive_slice(bare, plan, context.stop, &mut bare_driven)?;
        let before = system.used();
        direct = drive_slice(direct, plan, context.stop, &mut direct_driven)?;
        add(&mut direct_used, before);
        let before = system.used();
        proxy = drive_slice(proxy, plan, context.stop, &mut driven)?;
        add(&mut used, before);
    }
    let values = &mut sample.values;
    driven.add_figures(values);
    values.set("latency-min", driven.latency.quantile_ms(0.0));
    let p50 = |driven: &DriveResult| driven.latency.quantile_ms(0.5);
    let (ours, theirs, trip) = (p50(&driven), p50(&direct_driven), p50(&bare_driven));
    values.set("round-trip", trip);
    values.set("direct-p50", theirs);
    values.set("direct-latency", direct_driven.latency.mean_ms());
    values.set("direct-p99", direct_driven.latency.quantile_ms(0.99));
    values.set("beside-direct", ours / theirs);
    values.set("above", (ours - theirs - trip) * 1e3);
    values.set("mean-by-median", driven.latency.mean_ms() / ours);
    // The part of a slice that is not counted takes the same time for each request.
    let counted = plan.time.as_secs_f64() / (plan.time + plan.warm_up).as_secs_f64();
    let each = |used: f64, driven: &DriveResult| used * counted * 1e6 / done(driven);
    values.set("server-cpu", each(used[0], &driven));
    values.set("proxy-cpu", each(used[1], &driven));
    values.set("direct-server-cpu", each(direct_used[0], &direct_driven));
    Ok(())
}

fn create(nodes: &[SocketAddr]) -> Result<(), RunError> {
    let mut link = CqlConnection::connect(nodes[0], Version::V4).map_err(RunError::of)?;
    let copies = nodes.len();
    for text in [
        format!(
            "CREATE KEYSPACE bench WITH replication = \
             {{'class': 'SimpleStrategy', 'replication_factor': {copies}}}"
        ),
        "CREATE TABLE bench.tiny (k text PRIMARY KEY, v text)".to_owned(),
    ] {
        link.query(&text, Consistency::One).map_err(RunError::of)?;
    }
    cassandra::agree(nodes).map_err(RunError::of)
}

/// All clients, on one thread: each request goes over the connection of the next one.
struct PreparedClients {
    all: Vec<PreparedClient>,
    turn: usize,
}

struct PreparedClient {
    link: CqlConnection,
    put: PreparedStatement,
    get: PreparedStatement,
    client: u64,
    asked: u64,
    puts: u64,
}

impl PreparedClients {
    fn connect(
        clients: std::ops::Range<usize>,
        targets: &[SocketAddr],
        version: Version,
    ) -> Result<PreparedClients, RunError> {
        let client = |client: usize| {
            let link = CqlConnection::connect(targets[client % targets.len()], version);
            let mut link = link.map_err(RunError::of)?;
            let mut prepare = |text| link.prepare(text).map_err(RunError::of);
            Ok(PreparedClient {
                put: prepare("INSERT INTO bench.tiny (k, v) VALUES (?, ?)")?,
                get: prepare("SELECT v FROM bench.tiny WHERE k = ?")?,
                link,
                client: client as u64,
                asked: 0,
                puts: 0,
            })
        };
        let all: Result<Vec<PreparedClient>, RunError> = clients.map(client).collect();
        Ok(PreparedClients { all: all?, turn: 0 })
    }
}

impl BlockingClient for PreparedClients {
    fn run(&mut self) -> Result<u64, RunError> {
        self.turn = (self.turn + 1) % self.all.len();
        self.all[self.turn].ask().map(|()| DONE)
    }

    fn settle(&mut self, _: u64) -> Result<(), RunError> {
        Ok(())
    }
}

impl PreparedClient {
    fn ask(&mut self) -> Result<(), RunError> {
        self.asked += 1;
        let reads = self.asked.is_multiple_of(READS);
        let put = self.puts - u64::from(reads);
        let key = format!("{:05}", self.client * ROWS + put % ROWS);
        let value = format!("{:05}", (self.client * 7919 + put * 4729) % 100_000);
        let mut values = ValueList::new();
        values.push(Bound::Bytes(key.as_bytes()));
        if reads {
            let look = |body: ResultBody<'_>| is_row(&body, value.as_bytes());
            let link = &mut self.link;
            return link.execute(&self.get, &values, Consistency::One, look);
        }
        values.push(Bound::Bytes(value.as_bytes()));
        self.puts += 1;
        let look = |body: ResultBody<'_>| match body {
            ResultBody::Void => Ok(()),
            other => Err(format!("a write was answered with {other:?}")),
        };
        let written = self
            .link
            .execute(&self.put, &values, Consistency::One, look);
        written.map_err(RunError::of)
    }
}

/// Checks that there is one row, which holds this value.
fn is_row(body: &ResultBody<'_>, value: &[u8]) -> Result<(), RunError> {
    let rows = match body {
        ResultBody::Rows(rows) => rows.iter().collect(),
        _ => Vec::new(),
    };
    match &rows[..] {
        [row] if row[..] == [Some(value)] => Ok(()),
        _ => Err(format!("{body:?} instead of {}", value.escape_ascii()).into()),
    }
}
