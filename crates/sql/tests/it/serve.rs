//! PostgreSQL's protocol, seen from a client: results in both forms, errors, cancellation, limits.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use kumiki_sql::catalogue::StoreLocation;
use kumiki_sql::error::Error;
use kumiki_sql::meter::PageMeter;
use kumiki_sql::serve::{Options, SqlServer, Stopper};
use kumiki_sql::{Catalogue, Placement, Rights, Settings, Shared, Store};
use operators::Site;
use pages::{Groups, PageSize, Table};
use testkit::peers::{self, Group};

use crate::support::wire::{Answer, Client, Message};
use crate::support::{MemoryStore, tpch};

/// A server over TPC-H at scale factor 0.01.
pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    stopper: Stopper,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Served {
    pub(crate) fn start(change: impl FnOnce(&mut Options)) -> Served {
        static STORE: OnceLock<Arc<MemoryStore>> = OnceLock::new();
        let store = STORE.get_or_init(|| tpch::store(0.01, PageSize::default(), &Groups::OneEach));
        Served::over(Arc::clone(store) as _, change)
    }

    pub(crate) fn over(store: Arc<dyn Store>, change: impl FnOnce(&mut Options)) -> Served {
        let settings = Settings {
            partitions: NonZeroUsize::new(2).unwrap(),
            rights: Rights::Read,
            ..Settings::default()
        };
        let shared = Shared::new(Catalogue::new(vec![store]), settings).unwrap();
        let mut options = options();
        change(&mut options);
        let (told, tell) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = kumiki_sql::session::runtime(None).unwrap();
            runtime.block_on(async {
                let (server, stopper) = SqlServer::bind(&options, shared).await.unwrap();
                told.send((server.address().unwrap(), stopper)).unwrap();
                server.serve().await;
            });
            runtime.shutdown_background();
        });
        let (address, stopper) = tell.recv().unwrap();
        Served {
            address,
            stopper,
            thread: Some(thread),
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stopper.stop();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking());
        }
    }
}

pub(crate) fn options() -> Options {
    Options {
        listen: "127.0.0.1:0".parse().unwrap(),
        password: None,
        certificate: None,
        insecure: false,
        connections: NonZeroUsize::new(4).unwrap(),
        queries: NonZeroUsize::new(2).unwrap(),
        patience: None,
    }
}

pub(crate) const NATIONS: &str =
    "select n_nationkey, n_name from nation where n_nationkey < 2 order by 1";
/// What takes long, and gives no row on the way.
pub(crate) const LONG: &str = "select a.l_orderkey from lineitem a, lineitem b \
                    where a.l_tax * b.l_tax + a.l_extendedprice * b.l_extendedprice < 0";

#[test]
fn the_simple_protocol_answers_several_statements() {
    let served = Served::start(|_| ());
    let mut client = Client::connect(served.address);
    let answer = client.ask(&format!(
        "set kumiki.placement = 'local'; {NATIONS}; select 1 = 1, null"
    ));
    assert_eq!(
        answer.rows(),
        [
            vec!["0", "ALGERIA"],
            vec!["1", "ARGENTINA"],
            vec!["t", "NULL"]
        ]
    );
    assert_eq!(answer.tags(), ["SET", "SELECT 2", "SELECT 1"]);
    assert_eq!(
        client.ask("begin; select 1; commit").tags(),
        ["BEGIN", "SELECT 1", "COMMIT"]
    );
    assert_eq!(client.ask("show client_encoding").rows(), [["UTF8"]]);
    assert!(client.ask("select version()").rows()[0][0].contains("DataFusion"));
    let types = "select sum(l_extendedprice), avg(l_tax), min(l_shipdate), count(*) from lineitem";
    assert_eq!(client.ask(types).rows()[0].len(), 4);
    // Nothing asked is answered by nothing.
    assert_eq!(client.ask(";").0[0].0, b'I');
    // What was executed before an error is answered.
    let half = client.ask("select 1; select nothing from nation; select 2");
    assert_eq!(
        (half.rows(), half.error().0),
        (vec![vec!["1".to_owned()]], "42703".to_owned())
    );
    // A quote with a backslash before it ends nothing in such a string.
    assert_eq!(
        client.ask("select e'it\\'s;'; select 2").rows(),
        [["it's;"], ["2"]]
    );
}

/// Messages of the extended protocol: a statement, a portal of it by name, and so many rows of that.
pub(crate) fn parse(client: &mut Client, sql: &str) {
    client.send(b'P', &[&b"\0"[..], sql.as_bytes(), b"\0\0\0"].concat());
}

pub(crate) fn bind(client: &mut Client, portal: &str) {
    client.send(b'B', &[portal.as_bytes(), &[0; 8]].concat());
}

pub(crate) fn execute(client: &mut Client, portal: &str, most: i32) {
    let rows = [portal.as_bytes(), b"\0", &most.to_be_bytes()].concat();
    client.send(b'E', &rows);
}

#[test]
fn portals_give_rows_in_parts_until_their_transaction_ends() {
    let served = Served::start(|options| options.queries = NonZeroUsize::MIN);
    let mut client = Client::connect(served.address);
    client.ask("begin");
    parse(&mut client, "select n_nationkey from nation order by 1");
    bind(&mut client, "some");
    execute(&mut client, "some", 2);
    client.send(b'S', b"");
    let first = client.until_ready();
    assert_eq!(first.rows(), [["0"], ["1"]]);
    assert!(first.0.iter().any(|message| message.0 == b's'));
    execute(&mut client, "some", -1);
    client.send(b'S', b"");
    let rest = client.until_ready();
    assert_eq!(
        (rest.rows().len(), &rest.tags()[..]),
        (23, &["SELECT 23".to_owned()][..])
    );
    // One that is not at its end does not keep its place beyond the transaction.
    let many = "select l_orderkey from lineitem";
    parse(&mut client, many);
    bind(&mut client, "many");
    execute(&mut client, "many", 1);
    client.send(b'S', b"");
    assert_eq!(client.until_ready().rows().len(), 1);
    client.ask("commit");
    assert_eq!(client.ask("select 1").rows(), [["1"]]);
    execute(&mut client, "many", 1);
    client.send(b'S', b"");
    assert_eq!(client.until_ready().error().0, "34000");
    // Outside of one it ends with the message that it came in.
    parse(&mut client, many);
    bind(&mut client, "many");
    execute(&mut client, "many", 1);
    client.send(b'S', b"");
    assert_eq!(client.until_ready().rows().len(), 1);
    assert_eq!(client.ask("select 1").rows(), [["1"]]);
}

/// A store whose one table has other columns from some time on.
#[derive(Debug)]
struct Changing {
    store: MemoryStore,
    changed: AtomicBool,
}

impl Store for Changing {
    fn name(&self) -> &str {
        self.store.name()
    }

    fn location(&self, table: &Table) -> StoreLocation {
        self.store.location(table)
    }

    fn is_remote(&self) -> bool {
        false
    }

    fn tables(&self) -> Result<Vec<String>, Error> {
        Ok(vec!["t".to_owned()])
    }

    fn open(&self, name: &str) -> Result<Option<Arc<Table>>, Error> {
        let now = usize::from(self.changed.load(Ordering::Relaxed));
        let found = (name == "t").then(|| Arc::clone(&self.store.tables[now]));
        Ok(found)
    }

    fn site(
        &self,
        table: &Arc<Table>,
        placement: Placement,
        meter: &Arc<PageMeter>,
    ) -> Option<Arc<dyn Site>> {
        self.store.site(table, placement, meter)
    }
}

#[test]
fn cursors_give_rows_in_parts() {
    let served = Served::start(|_| ());
    let mut client = Client::connect(served.address);
    let declare = "declare c cursor for select n_nationkey from nation order by n_nationkey";
    assert_eq!(client.ask(declare).error().0, "25P01");
    assert_eq!(client.ask("begin").tags(), ["BEGIN"]);
    assert_eq!(client.ask(declare).tags(), ["DECLARE CURSOR"]);
    assert_eq!(client.ask("fetch c").rows(), [["0"]]);
    let fetched = client.ask("fetch forward 3 from \"c\"");
    assert_eq!(fetched.rows(), [["1"], ["2"], ["3"]]);
    assert_eq!(fetched.tags(), ["FETCH 3"]);
    assert_eq!(client.ask("move 2 in C").tags(), ["MOVE 2"]);
    // By the extended protocol too, and in binary form.
    let fetched = client.prepared("fetch 2 from c", &[], true, 0);
    let cells: Vec<_> = fetched
        .0
        .iter()
        .filter(|message| message.0 == b'D')
        .map(Message::cells)
        .collect();
    let number = |number: i64| vec![Some(number.to_be_bytes().to_vec())];
    assert_eq!(cells, [number(6), number(7)]);
    assert_eq!(client.ask("fetch all from c").rows().len(), 17);
    assert_eq!(client.ask("fetch 5 from c").tags(), ["FETCH 0"]);
    assert_eq!(client.ask("close c").tags(), ["CLOSE CURSOR"]);
    assert_eq!(client.ask("fetch c").error().0, "34000");
    client.ask("rollback");
    // One that is held outlives its transaction, the other one does not.
    client.ask("begin");
    client.ask(declare);
    let held = "declare held cursor with hold for select r_name from region order by r_name";
    assert_eq!(client.ask(held).tags(), ["DECLARE CURSOR"]);
    assert_eq!(client.ask(held).error().0, "42P03");
    client.ask("rollback");
    client.ask(held);
    assert_eq!(client.ask("fetch held").rows(), [["AFRICA"]]);
    assert_eq!(client.ask("fetch c").error().0, "34000");
    assert_eq!(client.ask("fetch backward 1 from held").error().0, "55000");
    assert_eq!(client.ask("close all").tags(), ["CLOSE CURSOR ALL"]);
    assert_eq!(client.ask("fetch held").error().0, "34000");
    // Parameters of the query are those of the declaration.
    client.ask("begin");
    let declared = "declare p cursor for select n_name from nation where n_nationkey = $1";
    let declared = client.prepared(declared, &["7"], false, 0);
    assert_eq!(declared.tags(), ["DECLARE CURSOR"]);
    assert_eq!(client.ask("fetch all p").rows(), [["GERMANY"]]);
}

#[test]
fn a_prepared_statement_whose_columns_have_changed_is_refused() {
    let mut store = MemoryStore::new();
    for table in ["nation", "region"] {
        let rows = tpch::rows(table, 0.01);
        let rows: Vec<_> = rows
            .iter()
            .map(|batch| batch.project(&[1, 0]).unwrap())
            .collect();
        let rows = match table {
            "nation" => rows,
            _ => rows
                .iter()
                .map(|batch| batch.project(&[1, 0]).unwrap())
                .collect(),
        };
        store.add("t", &rows, PageSize::default(), &Groups::OneEach);
    }
    let store = Arc::new(Changing {
        store,
        changed: AtomicBool::new(false),
    });
    let served = Served::over(Arc::clone(&store) as _, |_| ());
    let mut client = Client::connect(served.address);
    parse(&mut client, "select * from t limit 1");
    let ask = |client: &mut Client| {
        bind(client, "");
        execute(client, "", 0);
        client.send(b'S', b"");
        client.until_ready()
    };
    assert_eq!(ask(&mut client).rows(), [["ALGERIA", "0"]]);
    store.changed.store(true, Ordering::Relaxed);
    let (state, what) = ask(&mut client).error();
    assert!(
        state == "0A000" && what.contains("prepared again"),
        "{what}"
    );
    assert_eq!(
        client.ask("select * from t limit 1").rows(),
        [["0", "AFRICA"]]
    );
}

#[test]
fn copies_are_of_what_was_asked_and_end_as_they_should() {
    let served = Served::start(|_| ());
    let mut client = Client::connect(served.address);
    let lines = |answer: &Answer| {
        let lines = answer.0.iter().filter(|message| message.0 == b'd');
        let text = |message: &Message| String::from_utf8(message.1.clone()).unwrap();
        lines.map(text).collect::<Vec<_>>()
    };
    // A quoted text may contain words and signs of SQL.
    let quoted = "copy (select r_name from region where r_comment = '\\'' union \
                  select n_name from nation --') to stdout";
    let answer = client.ask(quoted);
    assert_eq!(
        (lines(&answer), answer.tags()),
        (vec![], vec!["COPY 0".to_owned()])
    );
    let answer = client.ask("copy (select 'a''''b' as x) to stdout csv header");
    assert_eq!(
        (lines(&answer).concat(), answer.tags()),
        ("x\na''b\n".to_owned(), vec!["COPY 1".to_owned()])
    );
    let answer = client.ask("copy (select 1 as x where false) to stdout csv header");
    assert_eq!(
        (lines(&answer).concat(), answer.tags()),
        ("x\n".to_owned(), vec!["COPY 0".to_owned()])
    );
    // The binary form: a signature, each row with its number of columns, and -1.
    let bytes = |length: i32, value: &[u8]| [&length.to_be_bytes()[..], value].concat();
    let expected = [
        &b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0"[..],
        &[0, 3],
        &bytes(8, &7i64.to_be_bytes()),
        &bytes(-1, b""),
        &bytes(2, b"ab"),
        &[255, 255],
    ];
    for (extended, options) in [(false, "(format binary)"), (true, "binary")] {
        let sql = format!(
            "copy (select 7::bigint as n, null::varchar as x, 'ab' as s) to stdout {options}"
        );
        let answer = match extended {
            true => client.prepared(&sql, &[], false, 0),
            false => client.ask(&sql),
        };
        let begun = answer.0.iter().find(|message| message.0 == b'H').unwrap();
        assert_eq!(begun.1, [1, 0, 3, 0, 1, 0, 1, 0, 1]);
        let copied = answer.0.iter().filter(|message| message.0 == b'd');
        let copied: Vec<u8> = copied.flat_map(|message| message.1.clone()).collect();
        assert_eq!(copied, expected.concat());
        assert_eq!(answer.tags(), ["COPY 1"]);
    }
    let refused = client.ask("copy (select 1) to stdout (format binary, delimiter ';')");
    assert_eq!(refused.error().0, "22023");
    // After an error among its rows nothing comes but that.
    for extended in [false, true] {
        let sql = "copy (select 1 / (n_nationkey - 3) from nation) to stdout";
        let answer = match extended {
            true => client.prepared(sql, &[], false, 0),
            false => client.ask(sql),
        };
        assert_eq!(answer.error().0, "22012");
        let kinds = answer.0.iter().map(|message| message.0);
        assert!(!kinds.into_iter().any(|kind| matches!(kind, b'f' | b'c')));
    }
    assert_eq!(client.ask("select 1").rows(), [["1"]]);
}

#[test]
fn settings_end_when_it_is_said() {
    let served = Served::start(|_| ());
    let mut client = Client::connect(served.address);
    let show = |client: &mut Client, name: &str| {
        let shown = client.ask(&format!("show {name}"));
        let mut rows = shown.rows();
        rows.pop()
            .unwrap_or_else(|| panic!("{name}: {:?}", shown.0))
    };
    client.ask("set local statement_timeout = '7s'");
    assert_eq!(show(&mut client, "statement_timeout"), ["0"]);
    client.ask("begin; set local statement_timeout = '7s'");
    assert_eq!(show(&mut client, "statement_timeout"), ["7s"]);
    client.ask("commit");
    assert_eq!(show(&mut client, "statement_timeout"), ["0"]);
    const ZONE: &str = "datafusion.execution.time_zone";
    let changed = "set statement_timeout = 9000; set kumiki.placement = 'local'; \
                   set timezone = 'Asia/Tokyo'; set kumiki.push_down = false";
    for reset in ["reset all", "discard all"] {
        assert_eq!(client.ask(changed).tags(), ["SET"; 4]);
        assert_eq!(show(&mut client, ZONE)[1], "Asia/Tokyo");
        client.ask(reset);
        assert_eq!(show(&mut client, "statement_timeout"), ["0"]);
        assert_eq!(show(&mut client, "kumiki.placement")[1], "auto");
        assert_eq!(show(&mut client, "kumiki.push_down")[1], "true");
        assert_ne!(show(&mut client, ZONE)[1], "Asia/Tokyo");
    }
    client.ask("set kumiki.placement = 'local'; reset kumiki.placement");
    assert_eq!(show(&mut client, "kumiki.placement")[1], "auto");
    client.ask("set timezone = 'Asia/Tokyo'; reset timezone");
    assert_ne!(show(&mut client, ZONE)[1], "Asia/Tokyo");
    assert_eq!(client.ask("prepare one as select 1").tags(), ["PREPARE"]);
    assert_eq!(client.ask("execute one").rows(), [["1"]]);
    assert_eq!(client.ask("deallocate one").tags(), ["DEALLOCATE"]);
    assert!(!client.ask("execute one").error().1.is_empty());
}

#[test]
fn the_extended_protocol_takes_parameters_and_gives_binary_values() {
    let served = Served::start(|_| ());
    let mut client = Client::connect(served.address);
    let sql = "select n_nationkey, n_name from nation where n_nationkey = $1 and n_name like $2";
    let answer = client.prepared(sql, &["1", "A%"], true, 0);
    let row = answer.0.iter().find(|message| message.0 == b'D').unwrap();
    let key = 1i64.to_be_bytes().to_vec();
    assert_eq!(row.cells(), [Some(key), Some(b"ARGENTINA".to_vec())]);
    let described = answer.0.iter().find(|message| message.0 == b't').unwrap();
    // Two parameters: an int8 and a text.
    assert_eq!(described.1, [0, 2, 0, 0, 0, 20, 0, 0, 0, 25]);
    let answer = client.prepared("select n_nationkey from nation order by 1", &[], false, 3);
    assert_eq!(answer.rows(), [["0"], ["1"], ["2"]]);
    assert!(
        answer.0.iter().any(|message| message.0 == b's'),
        "there is more"
    );
    let all = client.prepared("select l_orderkey from lineitem", &[], false, 0);
    assert_eq!(all.tags(), [format!("SELECT {}", all.rows().len())]);
    let (state, _) = client.prepared(sql, &["one", "A%"], false, 0).error();
    assert_eq!(state, "22P02");
    assert_eq!(client.prepared("begin", &[], false, 0).tags(), ["BEGIN"]);
    // A parameter that is a column itself is described, and given, in the type that was declared: 21 is an
    // int2, 16 a bool, 701 a float8.
    for (oid, value, bytes) in [
        (21u32, "5", 5i16.to_be_bytes().to_vec()),
        (16, "t", vec![1]),
        (701, "1.5", 1.5f64.to_be_bytes().to_vec()),
    ] {
        let answer = client.declared("select $1", &[oid], &[value], true, 0);
        let row = answer.0.iter().find(|message| message.0 == b'D').unwrap();
        assert_eq!(row.cells(), [Some(bytes)]);
        let described = answer.0.iter().find(|message| message.0 == b'T').unwrap();
        // Behind the name: its table's oid, its number there, and its type's oid.
        let name = 2 + described.1[2..].iter().position(|byte| *byte == 0).unwrap();
        assert_eq!(described.1[name + 7..name + 11], oid.to_be_bytes());
    }
}

#[test]
fn errors_have_states_and_end_nothing() {
    let served = Served::start(|_| ());
    let mut client = Client::connect(served.address);
    for (sql, expected) in [
        ("selec 1", "42601"),
        ("set datafusion.runtime.memory_limit = '1T'", "42501"),
        ("set datafusion.runtime.temp_directory = '/tmp'", "42501"),
        (
            "set datafusion.execution.target_partitions = 1000000",
            "42501",
        ),
        ("reset datafusion.runtime.memory_limit", "42501"),
        (
            "prepare p as set datafusion.runtime.memory_limit = '1T'",
            "42501",
        ),
        ("select * from nowhere", "42P01"),
        ("select nothing from nation", "42703"),
        (
            "select 1 / (n_nationkey - n_nationkey) from nation",
            "22012",
        ),
        ("set kumiki.nothing = 1", "22023"),
        ("set statement_timeout = soon", "22023"),
        ("set client_encoding to 'LATIN1'", "22023"),
        ("copy nation to stdout (format csv, quote ',')", "22023"),
        (
            "create external table f stored as csv location '/etc/passwd'",
            "25006",
        ),
        ("copy nation to '/tmp/stolen.csv'", "25006"),
        ("copy nation to '/tmp/stolen'", "25006"),
        ("copy nation from stdin", "25006"),
        ("copy nation to stdout (encoding 'latin1')", "0A000"),
        ("create table copied as select 1", "25006"),
    ] {
        let (state, text) = client.ask(sql).error();
        assert_eq!(state, expected, "{sql}: {text}");
        let (state, text) = client.prepared(sql, &[], false, 0).error();
        assert_eq!(state, expected, "{sql}: {text}");
    }
    assert_eq!(client.ask("select 1").rows(), [["1"]]);
}

/// What psql says to some of its commands; `None` if it is not there, and need not be.
pub(crate) fn psql(served: &Served, password: &str, commands: &[&str]) -> Option<Output> {
    psql_by(served, "sslmode=disable", password, commands)
}

/// The same, with what is said of TLS.
pub(crate) fn psql_by(
    served: &Served,
    mode: &str,
    password: &str,
    commands: &[&str],
) -> Option<Output> {
    let program = peers::program(Group::Postgres, "psql")?;
    let port = served.address.port();
    let location = format!("host=127.0.0.1 port={port} user=tester dbname=kumiki {mode}");
    let mut psql = Command::new(program);
    psql.args([location.as_str(), "-X", "-A", "-t"]);
    for sql in commands {
        psql.args(["-c", sql]);
    }
    Some(psql.env("PGPASSWORD", password).output().unwrap())
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn psql_asks() {
    let served = Served::start(|options| options.password = Some("secret".to_owned()));
    let Some(given) = psql(&served, "secret", &[NATIONS]) else {
        return;
    };
    assert!(given.status.success(), "{}", text(&given.stderr));
    assert_eq!(text(&given.stdout), "0|ALGERIA\n1|ARGENTINA\n");
    let refused = psql(&served, "wrong", &[NATIONS]).expect("it is there");
    assert!(!refused.status.success());
}

#[test]
fn psql_copies_rows() {
    let served = Served::start(|_| ());
    let asked = [
        "\\copy (select r_regionkey, r_name from region order by 1 limit 2) to stdout csv header",
        "copy region (r_regionkey) to stdout",
        "copy (select 1 where false) to stdout (format csv, header)",
    ];
    let Some(given) = psql(&served, "", &asked) else {
        return;
    };
    let expected = "r_regionkey,r_name\n0,AFRICA\n1,AMERICA\n0\n1\n2\n3\n4\n?column?\n";
    assert_eq!(text(&given.stdout), expected, "{}", text(&given.stderr));
    for refused in [
        "copy region to stdout (encoding 'latin1')",
        "copy nowhere to stdout",
    ] {
        let refused = psql(&served, "", &[refused]).expect("it is there");
        assert!(!refused.status.success());
    }
}

#[test]
fn psql_describes_tables() {
    let served = Served::start(|_| ());
    let told = |command: &str| {
        let told = psql(&served, "", &[command])?;
        assert!(told.status.success(), "{command}: {}", text(&told.stderr));
        assert_eq!(text(&told.stderr), "", "{command}");
        Some(text(&told.stdout))
    };
    let Some(tables) = told("\\dt") else { return };
    assert!(tables.contains("public|lineitem|table|"), "{tables}");
    assert!(tables.contains("public|nation|table|"), "{tables}");
    for (command, line) in [
        ("\\d", "public|nation|table|"),
        ("\\d nation", "n_name|"),
        ("\\d nation", "n_nationkey|bigint|"),
        ("\\d lineitem", "l_shipdate|date|"),
        ("\\d lineitem", "l_extendedprice|numeric"),
        ("\\dt nat*", "nation"),
        ("\\l", "kumiki|"),
        ("\\dn", "public|"),
    ] {
        let told = told(command).expect("it is there");
        assert!(told.contains(line), "{command}: {told}");
    }
    let missing = psql(&served, "", &["\\d nowhere"]).expect("it is there");
    assert!(text(&missing.stderr).contains("nowhere"));
}

#[test]
fn tools_find_tables_and_columns() {
    let served = Served::start(|_| ());
    let mut client = Client::connect(served.address);
    let tables = "SELECT c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n \
                  ON n.oid = c.relnamespace WHERE n.nspname = 'public' AND c.relkind = 'r' ORDER BY 1";
    let names = client.ask(tables);
    assert!(
        names.rows().contains(&vec!["nation".to_owned()]),
        "{:?}",
        names.rows()
    );
    let columns = "SELECT attname FROM pg_attribute WHERE attrelid = 'nation'::regclass \
                   AND attnum > 0 ORDER BY attnum";
    let names = client.ask(columns);
    assert_eq!(names.rows()[..2], [["n_nationkey"], ["n_name"]]);
    assert_eq!(client.ask("select current_database()").rows(), [["kumiki"]]);
    // What does not exist is named in the same words as before.
    let (state, what) = client.ask("select pg_nothing()").error();
    assert!(
        state == "42883" && what.contains("pg_nothing"),
        "{state} {what}"
    );
    // Clients cannot write through it, nor access files.
    let (state, _) = client.ask("create table pg_new as select 1").error();
    assert_ne!(state, "00000");
    assert_eq!(client.ask("select 1").rows(), [["1"]]);
}
