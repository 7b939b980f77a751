//! Times and texts follow PostgreSQL, or are refused: they are never silently something else.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, TimestampMicrosecondArray};
use kumiki_sql::{Session, Store};
use pages::{Groups, PageSize};

use crate::support::{MemoryStore, ask, session};

/// Returns sessions over timestamps beyond the range of nanoseconds, and one within.
fn sessions() -> [Session; 2] {
    let at = [
        -14_831_768_700_000_000i64,
        1_704_067_200_000_000,
        253_402_300_799_000_000,
    ];
    let at: ArrayRef = Arc::new(TimestampMicrosecondArray::from(at.to_vec()));
    let batch = RecordBatch::try_from_iter([("at", at)]).unwrap();
    let mut store = MemoryStore::new();
    store.add("times", &[batch], PageSize::default(), &Groups::OneEach);
    let store: Arc<dyn Store> = Arc::new(store);
    [true, false].map(|push_down| session(vec![Arc::clone(&store)], 2, push_down))
}

/// Returns the only value of a statement's result, with push-down and without.
async fn one(sessions: &[Session; 2], sql: &str) -> String {
    let mut all = Vec::new();
    for session in sessions {
        let rows = ask(session, sql).await;
        let rows = rows.unwrap_or_else(|error| panic!("{sql}: {error}"));
        assert_eq!((rows.len(), rows[0].len()), (1, 1), "{sql}: {rows:?}");
        all.push(rows[0][0].clone().unwrap_or_else(|| "NULL".to_owned()));
    }
    assert_eq!(all[0], all[1], "{sql}");
    all.swap_remove(0)
}

#[tokio::test]
async fn timestamps_reach_beyond_nanoseconds() {
    let sessions = sessions();
    for (value, expected) in [
        ("timestamp '9999-12-31 23:59:59'", "9999-12-31T23:59:59"),
        ("timestamp '1500-01-01 00:00:00'", "1500-01-01T00:00:00"),
        ("'0001-01-01'::timestamp", "0001-01-01T00:00:00"),
        (
            "cast('9999-12-31' as date)::timestamp",
            "9999-12-31T00:00:00",
        ),
        (
            "timestamp '2300-01-01' + interval '1 day'",
            "2300-01-02T00:00:00",
        ),
        ("timestamp '9999-12-31' > now()", "true"),
        ("extract(year from timestamp '9999-12-31')", "9999"),
        (
            "timestamp '2024-01-01 00:00:00.123456'",
            "2024-01-01T00:00:00.123456",
        ),
    ] {
        assert_eq!(
            one(&sessions, &format!("select {value}")).await,
            expected,
            "{value}"
        );
    }
    for (condition, expected) in [
        ("at < '9999-12-31'", "2"),
        ("at = '9999-12-31 23:59:59'", "1"),
        ("at > timestamp '1677-01-01'", "2"),
        ("at < timestamp '1600-01-01'", "1"),
        ("at between '1000-01-01' and '3000-01-01'", "2"),
        ("at in ('2024-01-01')", "1"),
        ("at < date '9999-12-31'", "2"),
        ("at > now()", "1"),
        ("at < current_date", "2"),
    ] {
        let sql = format!("select count(*) from times where {condition}");
        assert_eq!(one(&sessions, &sql).await, expected, "{condition}");
    }
}

#[tokio::test]
async fn texts_are_similar_to_patterns_as_a_whole() {
    let sessions = sessions();
    for (condition, expected) in [
        ("'abc' similar to 'abc'", "true"),
        ("'abc' similar to 'a'", "false"),
        ("'abc' similar to '%(b|d)%'", "true"),
        ("'abc' similar to '(b|c)%'", "false"),
        ("'abc' similar to 'a_c'", "true"),
        ("'a.c' similar to 'a.c'", "true"),
        ("'abc' similar to 'a.c'", "false"),
        ("'abc' not similar to 'a%'", "false"),
        ("'a%' similar to 'a#%' escape '#'", "true"),
        ("'ab' similar to 'a#%' escape '#'", "false"),
        ("not 'abc' similar to 'a' and 1 = 1", "true"),
        ("'abcabc' similar to '(abc){2}'", "true"),
    ] {
        assert_eq!(
            one(&sessions, &format!("select {condition}")).await,
            expected,
            "{condition}"
        );
    }
    let refused = ask(&sessions[0], "select 'a' similar to lower('A')")
        .await
        .unwrap_err();
    assert!(refused.contains("SIMILAR TO"), "{refused}");
}

#[tokio::test]
async fn times_are_shown_in_postgresql_s_formats() {
    let sessions = sessions();
    for (format, expected) in [
        ("YYYY-MM-DD HH24:MI:SS", "2024-03-05 14:07:09"),
        ("Dy, DD Mon YY, HH12:MI am", "Tue, 05 Mar 24, 02:07 pm"),
        ("FMMonth", "March"),
    ] {
        let sql = format!("select to_char(timestamp '2024-03-05 14:07:09', '{format}')");
        assert_eq!(one(&sessions, &sql).await, expected, "{format}");
    }
    assert_eq!(
        one(&sessions, "select to_date('05 Dec 2000', 'DD Mon YYYY')").await,
        "2000-12-05"
    );
    for refused in ["Month", "%Y-%m-%d", "Q"] {
        let sql = format!("select to_char(timestamp '2024-03-05', '{refused}')");
        let error = ask(&sessions[0], &sql).await.unwrap_err();
        assert!(
            error.contains("is not supported here"),
            "{refused}: {error}"
        );
    }
}

#[tokio::test]
async fn times_change_between_zones_as_in_postgresql() {
    let sessions = sessions();
    for (value, expected) in [
        // A local time becomes a point in time.
        (
            "timestamp '2024-01-01 12:00:00' at time zone 'America/New_York'",
            "2024-01-01T17:00:00Z",
        ),
        // And a point in time becomes a local time.
        (
            "(timestamp '2024-01-01 12:00:00' at time zone 'UTC') at time zone 'America/New_York'",
            "2024-01-01T07:00:00",
        ),
        (
            "(timestamp '2024-07-01 12:00:00' at time zone 'UTC') at time zone 'Europe/Rome'",
            "2024-07-01T14:00:00",
        ),
        (
            "timezone('Europe/Rome', timestamp '2024-01-01 12:00:00')",
            "2024-01-01T11:00:00Z",
        ),
    ] {
        assert_eq!(
            one(&sessions, &format!("select {value}")).await,
            expected,
            "{value}"
        );
    }
    for zone in ["+05:00", "UTC+5", "Nowhere/Nothing"] {
        let sql = format!("select timestamp '2024-01-01 12:00:00' at time zone '{zone}'");
        let error = ask(&sessions[0], &sql).await.unwrap_err();
        assert!(error.contains("not recognized"), "{zone}: {error}");
    }
}

#[tokio::test]
async fn samples_are_refused() {
    let sessions = sessions();
    for sql in [
        "select * from times tablesample bernoulli (10)",
        "select * from (select * from times tablesample system (1)) s",
    ] {
        let error = ask(&sessions[0], sql).await.unwrap_err();
        assert!(error.contains("TABLESAMPLE"), "{error}");
    }
}
