//! What clients of PostgreSQL expect: its names, its words, its commands.

use std::num::NonZeroUsize;
use std::time::Duration;

use testkit::eventually;

use crate::serve::{Served, psql, text};
use crate::support::wire::{Answer, Client};

/// The names of the columns of a result.
fn columns(answer: &Answer) -> Vec<String> {
    let described = answer.0.iter().find(|message| message.0 == b'T');
    let described = described.unwrap_or_else(|| panic!("no columns: {:?}", answer.0));
    let mut rest = &described.1[2..];
    let mut names = Vec::new();
    while let Some(end) = rest.iter().position(|byte| *byte == 0) {
        names.push(String::from_utf8(rest[..end].to_vec()).unwrap());
        rest = &rest[end + 1 + 18..];
    }
    names
}

#[test]
fn the_version_is_told_in_postgresql_s_words() {
    let served = Served::start(|_| ());
    let mut client = Client::connect(served.address);
    for sql in ["select version()", "select pg_catalog.version()"] {
        let version = client.ask(sql).rows()[0][0].clone();
        assert!(version.starts_with("PostgreSQL 16.6 ("), "{version}");
        assert!(
            version.contains("Kumiki") && version.contains("DataFusion"),
            "{version}"
        );
    }
    assert_eq!(client.ask("show server_version").rows(), [["16.6"]]);
}

#[test]
fn columns_have_postgresql_s_names() {
    let served = Served::start(|_| ());
    let mut client = Client::connect(served.address);
    for (sql, expected) in [
        (
            "select count(*), sum(n_regionkey) from nation",
            &["count", "sum"][..],
        ),
        (
            "select count(*), count(*), count(*) from nation",
            &["count", "count", "count"],
        ),
        (
            "select n_name, n_name from nation limit 1",
            &["n_name", "n_name"],
        ),
        ("select 1, 1, 'x'", &["?column?", "?column?", "?column?"]),
        (
            "select n_nationkey + 1, n_nationkey::text, upper(n_name) as u from nation limit 1",
            &["?column?", "n_nationkey", "u"],
        ),
        (
            "select max(n_name) from nation group by n_regionkey having max(n_name) > 'A' order by max(n_name)",
            &["max"],
        ),
        (
            "select n_regionkey, count(*) from nation group by 1 order by count desc, 1",
            &["n_regionkey", "count"],
        ),
        (
            "select count(*) from nation union all select count(*) from region",
            &["count"],
        ),
        (
            "select s.count from (select count(*) from nation) s",
            &["count"],
        ),
        (
            "select * from (select count(*), count(*) from nation) s",
            &["count", "count"],
        ),
        (
            "select *, r_name from region limit 1",
            &["r_regionkey", "r_name", "r_comment", "r_name"],
        ),
        (
            "select case when true then 1 end, coalesce(1, 2), current_date",
            &["case", "coalesce", "current_date"],
        ),
    ] {
        let answer = client.ask(sql);
        assert!(
            !answer.0.iter().any(|message| message.0 == b'E'),
            "{sql}: {}",
            answer.error().1
        );
        assert_eq!(columns(&answer), expected, "{sql}");
    }
    assert_eq!(
        client.ask("select count(*), count(*) from nation").rows(),
        [["25", "25"]]
    );
    assert_eq!(
        client
            .ask("select n_nationkey, n_nationkey from nation where n_nationkey = 3")
            .rows(),
        [["3", "3"]]
    );
    let distinct = "select distinct lower(r_name), length(r_name) from region order by lower(r_name) desc limit 2";
    assert_eq!(
        client.ask(distinct).rows(),
        [["middle east", "11"], ["europe", "6"]]
    );
    let grouped = "select count(*), upper(n_name) from nation group by upper(n_name) order by upper(n_name) limit 1";
    assert_eq!(client.ask(grouped).rows(), [["1", "ALGERIA"]]);
    // The extended protocol describes the same.
    client.send(b'P', b"\0select count(*), count(*) from nation\0\0\0");
    client.send(b'D', b"S\0");
    client.send(b'S', b"");
    assert_eq!(columns(&client.until_ready()), ["count", "count"]);
}

#[test]
fn savepoints_are_accepted_within_transactions() {
    let served = Served::start(|_| ());
    let mut client = Client::connect(served.address);
    assert_eq!(client.ask("savepoint a").error().0, "25P01");
    let done = client.ask("begin; savepoint a; select 1; release savepoint a; savepoint b");
    assert_eq!(
        done.tags(),
        ["BEGIN", "SAVEPOINT", "SELECT 1", "RELEASE", "SAVEPOINT"]
    );
    let failed = client.ask("select nothing");
    assert_eq!(failed.0.last().unwrap().1, b"E");
    let back = client.ask("rollback to savepoint b");
    assert_eq!(back.tags(), ["ROLLBACK"]);
    assert_eq!(back.0.last().unwrap().1, b"T", "the transaction goes on");
    assert_eq!(client.ask("rollback").0.last().unwrap().1, b"I");
}

#[test]
fn parameters_may_be_arrays() {
    let served = Served::start(|_| ());
    let mut client = Client::connect(served.address);
    let sql = b"\0select n_name from nation where n_nationkey = any($1) order by 1\0";
    let mut ask = |declared: &[u8], format: u8, value: &[u8]| {
        client.send(b'P', &[&sql[..], declared].concat());
        let length = u32::try_from(value.len()).unwrap().to_be_bytes();
        let bind = [&[0, 0, 0, 1, 0, format, 0, 1][..], &length, value, &[0, 0]].concat();
        client.send(b'B', &bind);
        client.send(b'D', b"S\0");
        client.send(b'E', b"\0\0\0\0\0");
        client.send(b'S', b"");
        client.until_ready()
    };
    // The type is found from the column (int8[]), or declared (int4[]).
    let found = ask(b"\0\0", 0, b"{1,3,NULL}");
    assert_eq!(found.rows(), [["ARGENTINA"], ["CANADA"]]);
    let described = found.0.iter().find(|message| message.0 == b't').unwrap();
    assert_eq!(described.1, [&[0, 1][..], &1016u32.to_be_bytes()].concat());
    let declared = [&[0, 1][..], &1007u32.to_be_bytes()].concat();
    let words = |words: &[i32]| {
        words
            .iter()
            .flat_map(|word| word.to_be_bytes())
            .collect::<Vec<u8>>()
    };
    let binary = words(&[1, 0, 23, 2, 1, 4, 1, 4, 3]);
    assert_eq!(
        ask(&declared, 1, &binary).rows(),
        [["ARGENTINA"], ["CANADA"]]
    );
    assert!(ask(&declared, 0, b"{}").rows().is_empty());
    assert_eq!(ask(&declared, 0, b"{{1}}").error().0, "22P02");
}

#[test]
fn arrays_and_literals_are_postgresql_s() {
    let served = Served::start(|_| ());
    let mut client = Client::connect(served.address);
    let modifier = "select atttypmod from pg_attribute a join pg_class c on c.oid = a.attrelid \
                    where relname = 'lineitem' and attname = 'l_extendedprice'";
    for (sql, expected) in [
        ("select array[1, null, 3]", "{1,NULL,3}"),
        (
            "select array['a b', '', 'NULL', null]",
            "{\"a b\",\"\",\"NULL\",NULL}",
        ),
        ("select array[array[1, 2], array[3, 4]]", "{{1,2},{3,4}}"),
        ("select '{PERU,CANADA}'::text[]", "{PERU,CANADA}"),
        ("select ('{3,NULL}')::bigint[]", "{3,NULL}"),
        (
            "select count(*) from nation where n_nationkey = any('{3,1}')",
            "2",
        ),
        (
            "select count(*) from nation where n_name <> all('{PERU,CANADA}')",
            "23",
        ),
        (
            "select count(*) from nation where n_nationkey = any('{}')",
            "0",
        ),
        ("select '\\x00ff'::bytea", "\\x00ff"),
        ("select 'a_c' like 'a/_' || '%' escape '/'", "t"),
        ("select 'abc' like 'a/_' || '%' escape '/'", "f"),
        (
            "select count(*) from region where r_name like substr('XMID/%', 2) || '%' escape '/'",
            "0",
        ),
        (
            "select count(*) from region where r_name like substr('XMID', 2) || '%' escape '/'",
            "1",
        ),
        (
            "select '2001-02-03 04:05:06+02'::timestamptz",
            "2001-02-03 02:05:06+00",
        ),
        ("select current_setting('max_index_keys')", "32"),
        ("select set_config('application_name', 'x', false)", "x"),
        ("select to_regtype('bigint')", "20"),
        (modifier, "983046"),
    ] {
        let answer = client.ask(sql);
        assert!(
            !answer.0.iter().any(|message| message.0 == b'E'),
            "{sql}: {}",
            answer.error().1
        );
        assert_eq!(answer.rows(), [[expected]], "{sql}");
    }
    for sql in ["select '{{1},{2}}'::int[]", "select current_setting('no')"] {
        assert!(!client.ask(sql).error().1.is_empty(), "{sql}");
    }
    // Numbers of objects are the same for all connections.
    let number = "select oid from pg_class where relname = 'nation'";
    let mut other = Client::connect(served.address);
    other.ask("select oid from pg_database");
    assert_eq!(client.ask(number).rows(), other.ask(number).rows());
}

#[test]
fn psql_s_commands_for_details_work() {
    let served = Served::start(|_| ());
    for (command, part) in [
        ("\\d+", "public|nation|table|"),
        ("\\d+ nation", "n_name|"),
        ("\\dt+", "public|nation|table|"),
        ("\\du", ""),
        ("\\df", ""),
        ("\\dv", ""),
        ("\\dn+", "public|"),
    ] {
        let Some(told) = psql(&served, "", &[command]) else {
            return;
        };
        let (out, error) = (text(&told.stdout), text(&told.stderr));
        assert!(told.status.success(), "{command}: {error}");
        assert!(out.contains(part), "{command}: {out}{error}");
        assert!(!error.contains("ERROR"), "{command}: {error}");
    }
}

#[test]
fn a_client_that_goes_away_leaves_no_query_behind() {
    let served = Served::start(|options| options.queries = NonZeroUsize::MIN);
    let mut gone = Client::connect(served.address);
    gone.send(
        b'Q',
        b"select l_orderkey from lineitem, orders where l_tax + o_totalprice < 0\0",
    );
    std::thread::sleep(Duration::from_millis(200));
    drop(gone);
    // Its place is given to others, long before the query would have come to its end.
    let mut client = Client::connect(served.address);
    eventually("the query's place is free", || {
        client
            .ask("select 1")
            .0
            .iter()
            .any(|message| message.0 == b'D')
    });
}
