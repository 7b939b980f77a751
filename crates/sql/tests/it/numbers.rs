//! Numbers follow PostgreSQL wherever a literal meets a column, with push-down and without.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, Decimal128Array, Float32Array, Float64Array, Int64Array, RecordBatch,
};
use kumiki_sql::{Session, Store};
use pages::{Groups, PageSize};

use crate::support::{MemoryStore, Rows, ask, session};

/// A NaN as processors make it, whose sign is set.
const NEGATIVE_NAN: f64 = f64::from_bits(0xfff8_0000_0000_0001);

/// Sessions over one table of numbers: one that pushes work to the data, and one that does not.
fn sessions() -> [Session; 2] {
    let x = [
        Some(1e-16),
        Some(f64::NAN),
        Some(NEGATIVE_NAN),
        Some(5e15),
        Some(-0.0),
        Some(0.0),
        Some(0.1),
        Some(f64::INFINITY),
        Some(123_456_789.123_456_79),
        None,
    ];
    let rows = x.len();
    let number = |row: usize| i64::try_from(row).unwrap();
    let id = Int64Array::from_iter_values((0..rows).map(number));
    let single = Float32Array::from_iter_values((0..rows).map(|row| 0.1 * number(row) as f32));
    let price =
        Decimal128Array::from_iter_values((0..rows).map(|row| i128::from(number(row)) * 25));
    let price = price.with_precision_and_scale(15, 2).unwrap();
    let wide = Decimal128Array::from_iter_values(
        (0..rows).map(|row| 10i128.pow(37) + number(row) as i128),
    );
    let wide = wide.with_precision_and_scale(38, 2).unwrap();
    let columns: [(&str, ArrayRef); 5] = [
        ("id", Arc::new(id)),
        ("x", Arc::new(Float64Array::from(x.to_vec()))),
        ("single", Arc::new(single)),
        ("price", Arc::new(price)),
        ("wide", Arc::new(wide)),
    ];
    assert!(columns.iter().all(|(_, column)| column.len() == rows));
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let mut store = MemoryStore::new();
    store.add("n", &[batch], PageSize::default(), &Groups::OneEach);
    let store: Arc<dyn Store> = Arc::new(store);
    [true, false].map(|push_down| session(vec![Arc::clone(&store)], 2, push_down))
}

fn texts(rows: &Rows) -> Vec<String> {
    let cell = |cell: &Option<String>| cell.clone().unwrap_or_else(|| "NULL".to_owned());
    let row = |row: &Vec<Option<String>>| row.iter().map(cell).collect::<Vec<_>>().join("|");
    rows.iter().map(row).collect()
}

/// Checks the result of a statement, with push-down and without.
async fn check(sessions: &[Session; 2], sql: &str, expected: &[&str]) {
    for (session, how) in sessions.iter().zip(["with", "without"]) {
        let found = ask(session, sql).await;
        let found = found.unwrap_or_else(|error| panic!("{sql}: {error}"));
        assert_eq!(texts(&found), expected, "{sql}, {how} push-down");
    }
}

#[tokio::test]
async fn floats_compare_with_fractions_as_doubles() {
    let sessions = sessions();
    for (condition, expected) in [
        // NaN is greater than everything.
        ("x > 0.0", &["0", "1", "2", "3", "6", "7", "8"][..]),
        ("0.0 < x", &["0", "1", "2", "3", "6", "7", "8"]),
        ("x < 0.1", &["0", "4", "5"]),
        ("x = 0.1", &["6"]),
        ("x = 123456789.12345679", &["8"]),
        ("x = 5e15", &["3"]),
        ("x > 1e300", &["1", "2", "7"]),
        ("x < 1e-300", &["4", "5"]),
        ("x <> 0.5 and x < 1.5", &["0", "4", "5", "6"]),
        ("x between 0.05 and 0.15", &["6"]),
        ("x between 0.0 and 1e-10", &["0", "4", "5"]),
        ("x in (0.1, 5e15)", &["3", "6"]),
        ("x not in (0.1, 0.0)", &["0", "1", "2", "3", "7", "8"]),
        ("case x when 0.1 then true end", &["6"]),
        ("x in (select 0.1)", &["6"]),
        ("x = (select 0.1)", &["6"]),
        ("coalesce(x, 0.5) = 0.5", &["9"]),
        ("x + 0.5 = 0.6", &["6"]),
        ("x * 2.0 = 1e16", &["3"]),
        // A single is compared as a double.
        ("single = 0.1", &[]),
        ("single = 0.1::real", &["1"]),
        ("single > 0.1 and id = 1", &["1"]),
    ] {
        let sql = format!("select id from n where {condition} order by id");
        check(&sessions, &sql, expected).await;
    }
}

#[tokio::test]
async fn zeros_are_equal_and_so_are_nans() {
    let sessions = sessions();
    for (condition, expected) in [
        ("x = 0", &["4", "5"][..]),
        ("x = 0.0", &["4", "5"]),
        ("x = -0.0::double precision", &["4", "5"]),
        ("x >= 0 and x <= 0", &["4", "5"]),
        ("x < 0", &[]),
        ("x in (0)", &["4", "5"]),
        ("x in (0, 7, 8, 9, 10, 11, 12, 13, 14, 15)", &["4", "5"]),
        ("case x when 0 then true when 1 then false end", &["4", "5"]),
        ("x is not distinct from 0", &["4", "5"]),
        ("nullif(x, 0) is null", &["4", "5", "9"]),
        ("x = 'NaN'::double precision", &["1", "2"]),
        ("x >= 'NaN'::double precision", &["1", "2"]),
        ("x > 'Infinity'::double precision", &["1", "2"]),
        ("x in ('NaN'::double precision)", &["1", "2"]),
        ("x < 'NaN'::double precision and id > 5", &["6", "7", "8"]),
        ("x = x", &["0", "1", "2", "3", "4", "5", "6", "7", "8"]),
    ] {
        let sql = format!("select id from n where {condition} order by id");
        check(&sessions, &sql, expected).await;
    }
    check(
        &sessions,
        "select x = 0, x > 1e300 from n where id in (2, 4) order by id",
        &["false|true", "true|false"],
    )
    .await;
    check(
        &sessions,
        "select id from n order by x desc, id limit 3",
        &["9", "1", "2"],
    )
    .await;
    check(
        &sessions,
        "select id from n order by x nulls first, id limit 3",
        &["9", "4", "5"],
    )
    .await;
    // Zeros, and NaNs, join.
    let joined = "select count(*) from n a join n b on a.x = b.x";
    check(&sessions, joined, &["13"]).await;
    check(
        &sessions,
        "select count(*) from n a join n b using (x)",
        &["13"],
    )
    .await;
}

/// Both zeros are one group. (Row 2 is a second NaN.)
#[tokio::test]
async fn zeros_are_grouped() {
    let sessions = sessions();
    let n = "(select * from n where id <> 2) n";
    let groups = ["0|1", "1|1", "3|1", "4|2", "6|1", "7|1", "8|1", "9|1"];
    let grouped = format!("select min(id), count(*) from {n} group by x order by 1");
    check(&sessions, &grouped, &groups).await;
    for (sql, expected) in [
        ("select count(distinct x) from N", "7"),
        ("select count(distinct x) from n where x = 0", "1"),
        ("select count(*) from (select distinct x from N) d", "8"),
        ("select count(*) from n group by x having x = 0", "2"),
        ("select sum(distinct x) from n where id in (4, 5, 6)", "0.1"),
        (
            "select count(*) from (select x from N union select x from N) u",
            "8",
        ),
        (
            "select count(*) from (select x from N intersect select x from N) i",
            "8",
        ),
        (
            "select count(*) from (select x from N except select x from n where id in (1, 4)) e",
            "6",
        ),
    ] {
        check(&sessions, &sql.replace('N', n), &[expected]).await;
    }
}

#[tokio::test]
async fn decimals_divide_as_in_postgresql() {
    let sessions = sessions();
    for (value, expected) in [
        ("2/3.0", "0.66666666666666666667"),
        ("3/1000000.0", "0.000003000000000000000000"),
        ("1/3.0", "0.33333333333333333333"),
        ("-2/3.0", "-0.66666666666666666667"),
        ("null/3.0", "NULL"),
        ("7 / 2", "3"),
        ("1e3/7 > 142.85 and 1e3/7 < 142.86", "true"),
        ("2.0/3.0*3 > 1.99 and round(2.0/3.0*3, 10) = 2", "true"),
        ("1e30", "1000000000000000000000000000000"),
        ("-1.5e-3", "-0.0015"),
        ("1e300 > 1", "true"),
    ] {
        check(&sessions, &format!("select {value}"), &[expected]).await;
    }
    for (value, expected) in [
        ("price / 3 = 0.08333333333333333333", "true"),
        ("round(price / price, 5)", "1.00000"),
        ("round(id / 3.0, 10)", "0.3333333333"),
        ("3 / (id * 1000000.0) = 0.000003", "true"),
        (
            "round(100.0 * sum(price) / sum(wide) * 1000000, 3) >= 0",
            "true",
        ),
        ("round(sum(price) / sum(price) * 100.0, 2)", "100.00"),
    ] {
        let sql = format!("select {value} from n where id = 1");
        let first = ask(&sessions[0], &sql)
            .await
            .unwrap_or_else(|error| panic!("{value}: {error}"));
        let found = texts(&first).remove(0);
        let same = match (found.parse::<f64>(), expected.parse::<f64>()) {
            (Ok(found), Ok(expected)) => found == expected,
            _ => found == expected,
        };
        assert!(same, "{value}: {found}, not {expected}");
        check(&sessions, &sql, &[&found]).await;
    }
    let zero = ask(&sessions[0], "select price / 0.0 from n")
        .await
        .unwrap_err();
    assert!(zero.to_lowercase().contains("divide by zero"), "{zero}");
    let error = ask(&sessions[0], "select 1e400").await.unwrap_err();
    assert!(error.contains("out of range"), "{error}");
}

#[tokio::test]
async fn decimals_compare_exactly_with_literals_of_many_digits() {
    let sessions = sessions();
    for (condition, expected) in [
        ("wide > 0.00000000000000000001 and id < 2", &["0", "1"][..]),
        (
            "wide = 100000000000000000000000000000000000.0300000000000000000001",
            &[],
        ),
        (
            "wide < 100000000000000000000000000000000000.0300000000000000000001",
            &["0", "1", "2", "3"],
        ),
        ("wide < 1e300 and id = 4", &["4"]),
        ("price > 1e-300 and id < 2", &["1"]),
        ("id > 0.5 and id < 1.5", &["1"]),
    ] {
        let sql = format!("select id from n where {condition} order by id");
        check(&sessions, &sql, expected).await;
    }
}

#[tokio::test]
async fn floats_and_decimals_unite_as_floats() {
    let sessions = sessions();
    for sql in [
        "select count(*) from (select x from n where id in (1, 3) union all select 0.5) s",
        "select count(*) from (select 0.5 as x union all select x from n where id in (1, 3)) s where x > 0.1",
        "select count(*) from (select case when id = 0 then 0.5 else x end as x from n where id in (0, 1, 3)) s \
         where x > 0.1",
        "select count(*) from (select greatest(x, 0.5) as x from n where id in (0, 3, 4)) s",
    ] {
        check(&sessions, sql, &["3"]).await;
    }
}

#[tokio::test]
async fn parameters_meet_columns_as_literals_do() {
    let sessions = sessions();
    for session in &sessions {
        let prepare = "prepare above as select id from n where x > $1 order by id limit 2";
        session
            .plan(prepare)
            .await
            .unwrap()
            .collect()
            .await
            .unwrap();
    }
    check(&sessions, "execute above(0.0)", &["0", "1"]).await;
}
