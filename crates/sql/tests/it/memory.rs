//! Statements that need unbounded memory are refused, and the server continues to serve.

use std::fmt::Write;

use crate::serve::Served;
use crate::support::wire::Client;

#[test]
fn values_that_are_too_large_are_refused() {
    let served = Served::start(|_| ());
    let mut client = Client::connect(served.address);
    for sql in [
        "select array_repeat(1, 2000000000)",
        "select array_repeat(array_repeat('x', 10000), 100000)",
        "select range(0, 5000000000)",
        "select range(5000000000)",
        "select generate_series(0, 5000000000)",
        "select generate_series(0, -5000000000, -1)",
        "select array_resize(array[1], 2000000000, 0)",
        "select repeat('x', 2147483647)",
        "select length(repeat('x', 2147483647))",
        "select lpad('x', 2147483647)",
        "select rpad('x', 2147483647, 'yz')",
        "select replace(repeat('x', 100000), 'x', repeat('y', 100000))",
        "select regexp_replace(repeat('x', 100000), 'x', repeat('y', 100000), 'g')",
        "select array_to_string(range(0, 100000), repeat('y', 100000))",
        // A row takes little, and a batch much.
        "select repeat('x', 100000000) from orders",
        "select o_orderkey, range(0, 1000000) from orders",
        "select o_comment || repeat('x', 1000000) from orders order by 1",
        "select max(o_orderkey), repeat('x', 1000000) from orders group by o_orderkey, 2",
        "select length(repeat(o_comment, 1000000)) from orders",
        "select length(o_comment || repeat('x', 1000000)) from orders",
        "select length(concat(o_comment, repeat('x', 1000000))) from orders",
    ] {
        let answer = client.ask(sql);
        assert_eq!(answer.error().0, "53200", "{sql}: {}", answer.error().1);
    }
    // Each one doubles the one before.
    let mut doubled = "with t0 as (select repeat('x', 1000000) as x)".to_owned();
    for at in 1..20 {
        let _ = write!(doubled, ", t{at} as (select x || x as x from t{})", at - 1);
    }
    let answer = client.ask(&format!("{doubled} select length(x) from t19"));
    assert_eq!(answer.error().0, "53200", "{}", answer.error().1);
    for (sql, expected) in [
        ("select length(repeat('x', 1000000))", "1000000"),
        (
            "select length(replace(repeat('xy', 100000), 'x', 'zz'))",
            "300000",
        ),
        ("select cardinality(range(0, 1000000))", "1000000"),
        ("select cardinality(array_repeat('x', 100000))", "100000"),
        ("select length(lpad('x', 1000))", "1000"),
        (
            "select sum(length(repeat('x', 1000000))) from nation",
            "25000000",
        ),
        (
            "select count(*) from nation where n_name < repeat('x', 100000)",
            "25",
        ),
        ("select 'a' || 'b' || 1", "ab1"),
        ("select 'a' || null", "NULL"),
        (
            "select count(*) from (select o_comment || 'x' as c from orders) s where length(c) > 1",
            "15000",
        ),
        (
            "select max(length(replace(o_comment, 'e', repeat('e', 1000)))) > 1000 from orders",
            "t",
        ),
        ("select count(*) from generate_series(1, 100000)", "100000"),
        (
            "select cardinality(generate_series(date '2020-01-01', date '2020-12-31', interval '1 day'))",
            "366",
        ),
    ] {
        assert_eq!(client.ask(sql).rows(), [[expected]], "{sql}");
    }
}

#[test]
fn plans_without_bound_are_refused() {
    let served = Served::start(|_| ());
    let mut client = Client::connect(served.address);
    let doubled = |levels: usize| {
        let mut sql = "with t0 as (select 1 as x)".to_owned();
        for at in 1..=levels {
            let before = at - 1;
            let _ = write!(
                sql,
                ", t{at} as (select * from t{before} union all select * from t{before})"
            );
        }
        format!("{sql} select count(*) from t{levels}")
    };
    let answer = client.ask(&doubled(24));
    assert_eq!(answer.error().0, "54001", "{}", answer.error().1);
    assert_eq!(
        client.ask(&format!("explain {}", doubled(24))).error().0,
        "54001"
    );
    assert_eq!(
        client
            .ask(&format!("prepare p as {}", doubled(24)))
            .error()
            .0,
        "54001"
    );
    assert_eq!(client.ask(&doubled(5)).rows(), [["32"]]);
}
