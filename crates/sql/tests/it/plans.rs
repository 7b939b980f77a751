//! Plans show which operators move into scans. Other tests check the results.

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use kumiki_sql::Session;
use pages::{Groups, PageSize};

use crate::support::{answers, plan, session, shown, tpch};

fn sessions(partitions: usize) -> Session {
    let store = tpch::store(0.01, PageSize::default(), &Groups::OneEach);
    session(vec![store as _], partitions, true)
}

/// Returns the plan's lines about scans, without their placement.
fn scans(text: &str) -> Vec<&str> {
    let lines = text.lines().filter(|line| line.contains("PagesScan"));
    lines
        .map(|line| line.trim().split(", partitions=").next().unwrap())
        .collect()
}

async fn explained(session: &Session, sql: &str) -> String {
    shown(&plan(session, sql).await)
}

#[tokio::test]
async fn the_aggregate_of_q1_runs_beside_the_data_in_one_partition_and_in_several() {
    for partitions in [1, 2, 3] {
        let session = sessions(partitions);
        let text = explained(&session, &answers::query(1)).await;
        let scans = scans(&text);
        assert_eq!(scans.len(), 1, "{text}");
        assert!(
            scans[0].contains("partial aggregate=[sum(l_quantity)"),
            "{text}"
        );
        assert!(
            scans[0].contains("by=[l_returnflag, l_linestatus]"),
            "{text}"
        );
        assert!(
            scans[0].contains("filter=(l_shipdate <= 1998-09-02)"),
            "{text}"
        );
        assert!(
            !text.contains("mode=Partial") && !text.contains("FilterExec"),
            "{text}"
        );
        assert!(text.contains("mode=Final"), "{text}");
        assert!(text.contains("placement=local on [memory]"), "{text}");
    }
}

#[tokio::test]
async fn q6_and_the_sub_query_of_q15_are_one_scan_and_a_final_aggregate() {
    let session = sessions(2);
    let sub_query = "select l_suppkey, sum(l_extendedprice * (1 - l_discount)) from lineitem \
                     where l_shipdate >= date '1996-01-01' and l_shipdate < date '1996-04-01' \
                     group by l_suppkey";
    for sql in [answers::query(6), sub_query.to_owned()] {
        let text = explained(&session, &sql).await;
        assert!(
            scans(&text)[0].contains("partial aggregate=[sum("),
            "{text}"
        );
        assert!(
            !text.contains("FilterExec") && !text.contains("mode=Partial"),
            "{text}"
        );
    }
}

#[tokio::test]
async fn groups_of_few_rows_are_datafusions() {
    let session = sessions(2);
    let sql = "select l_orderkey, sum(l_quantity) from lineitem group by l_orderkey";
    let text = explained(&session, sql).await;
    assert!(
        scans(&text)[0].contains("rows=[l_orderkey, l_quantity]"),
        "{text}"
    );
    assert!(text.contains("mode=Partial"), "{text}");
}

#[tokio::test]
async fn aggregates_that_are_not_ours_stay() {
    let session = sessions(2);
    for aggregate in [
        "count(distinct l_suppkey), count(distinct l_partkey)",
        "stddev(l_quantity)",
        "array_agg(l_shipmode)",
        "sum(l_quantity) filter (where l_comment like '%a%' or random() > 2)",
        "first_value(l_comment order by l_orderkey)",
    ] {
        let sql = format!("select {aggregate} from lineitem");
        let text = explained(&session, &sql).await;
        assert!(!text.contains("partial aggregate"), "{aggregate}: {text}");
    }
    let sql = "select l_linestatus, count(*) filter (where l_tax > 0.05) from lineitem \
               group by l_linestatus";
    let text = explained(&session, sql).await;
    assert!(text.contains("count(*) FILTER ((l_tax > 0.05))"), "{text}");
}

#[tokio::test]
async fn filters_that_are_not_ours_stay_above_and_the_others_move() {
    let session = sessions(2);
    let sql = "select l_orderkey from lineitem \
               where l_quantity < 3 and upper(l_shipmode) = 'AIR' and l_comment like '%ly%'";
    let text = explained(&session, sql).await;
    assert!(text.contains("FilterExec: upper("), "{text}");
    let scan = scans(&text)[0];
    assert!(scan.contains("(l_quantity < 3.00)"), "{text}");
    assert!(scan.contains("l_comment LIKE '%ly%'"), "{text}");
}

#[tokio::test]
async fn computed_columns_limits_and_first_rows_move() {
    let session = sessions(2);
    let text = explained(
        &session,
        "select l_quantity * l_tax as x from lineitem limit 7",
    )
    .await;
    let scan = scans(&text)[0];
    assert!(
        scan.contains("rows=[(l_quantity * l_tax)], limit=7"),
        "{text}"
    );
    let sql =
        "select l_orderkey, l_tax from lineitem order by l_extendedprice desc, l_orderkey limit 5";
    let text = explained(&session, sql).await;
    let scan = scans(&text)[0];
    assert!(
        scan.contains(
            "order=[l_extendedprice DESC NULLS FIRST, l_orderkey ASC NULLS LAST], limit=5"
        ),
        "{text}"
    );
    assert!(text.contains("SortExec: TopK(fetch=5)"), "{text}");
}

#[tokio::test]
async fn counts_come_from_the_manifest() {
    let session = sessions(2);
    let text = explained(&session, "select count(*) from lineitem").await;
    assert!(!text.contains("PagesScan"), "{text}");
}

#[tokio::test]
async fn without_push_down_scans_yield_columns() {
    let store = tpch::store(0.01, PageSize::default(), &Groups::OneEach);
    let session = session(vec![store as _], 2, false);
    let text = explained(&session, &answers::query(6)).await;
    let scan = scans(&text)[0];
    assert!(
        !scan.contains("filter=") && !scan.contains("aggregate"),
        "{text}"
    );
    assert!(text.contains("FilterExec"), "{text}");
    // The same by a setting, for the rest of the session.
    let other = sessions(2);
    other.plan("set kumiki.push_down = false").await.unwrap();
    assert!(
        explained(&other, &answers::query(6))
            .await
            .contains("FilterExec")
    );
    let sql = "select n_nationkey + 1 as more from nation limit 3";
    let text = explained(&session, sql).await;
    let scan = scans(&text)[0];
    assert!(
        scan.contains("rows=[n_nationkey]") && !scan.contains("limit="),
        "{text}"
    );
    assert!(text.contains("ProjectionExec"), "{text}");
}

#[tokio::test]
async fn conditions_that_are_too_many_for_a_scan_are_left_above_it() {
    let session = sessions(2);
    let like = |number: usize| format!("n_name not like '%{number}%'");
    let all = |count: usize| (0..count).map(like).collect::<Vec<_>>().join(" and ");
    for count in [100, 300] {
        let sql = format!("select n_name from nation where {}", all(count));
        let text = explained(&session, &sql).await;
        assert!(!text.contains("FilterExec"), "{count}: {text}");
        assert!(
            text.contains("(n_name NOT LIKE '%0%' AND n_name NOT LIKE '%1%' AND"),
            "{text}"
        );
    }
    let lists = (0..5).map(|list| {
        let numbers = (0..1000).map(|number| (2 * number + list).to_string());
        let numbers: Vec<_> = numbers.collect();
        format!("n_nationkey + {list} in ({})", numbers.join(", "))
    });
    let lists: Vec<_> = lists.collect();
    let sql = format!("select count(*) from nation where {}", lists.join(" and "));
    let text = explained(&session, &sql).await;
    assert!(
        text.contains("filter=") && text.contains("FilterExec"),
        "{text}"
    );
    let counted = session.plan(&sql).await.unwrap().collect().await.unwrap();
    let count = counted[0].column(0).as_primitive::<Int64Type>().value(0);
    assert_eq!(count, 13);
}

#[tokio::test]
async fn a_placement_that_cannot_be_had_is_an_error_that_says_so() {
    let session = sessions(2);
    session
        .plan("set kumiki.placement = 'remote-remote'")
        .await
        .unwrap();
    let planned = session.plan("select l_tax from lineitem").await.unwrap();
    let error = planned
        .create_physical_plan()
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("cannot be read with placement remote-remote"),
        "{error}"
    );
    session
        .plan("set kumiki.placement = 'nowhere'")
        .await
        .unwrap();
    let planned = session.plan("select l_tax from lineitem").await.unwrap();
    let error = planned
        .create_physical_plan()
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("there is no placement \"nowhere\""),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_analyze_counts_pages() {
    let session = sessions(1);
    let sql = "explain analyze select sum(l_tax) from lineitem where l_orderkey <= 100";
    let rows = crate::support::ask(&session, sql).await.unwrap();
    let text = rows[0][1].clone().unwrap();
    let figure = |name: &str| -> u64 {
        let (_, behind) = text
            .split_once(name)
            .unwrap_or_else(|| panic!("no {name} in {text}"));
        let digits: String = behind.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap()
    };
    assert!(figure("pages_read=") >= 2, "{text}");
    assert!(figure("pages_skipped=") >= 1, "{text}");
}

#[tokio::test]
async fn types_of_columns_are_those_of_tables() {
    let session = sessions(1);
    let planned = session
        .plan("select l_tax, l_comment, l_shipdate from lineitem")
        .await
        .unwrap();
    let types: Vec<_> = planned
        .schema()
        .fields()
        .iter()
        .map(|f| f.data_type().clone())
        .collect();
    let expected = [
        DataType::Decimal128(15, 2),
        DataType::Utf8,
        DataType::Date32,
    ];
    assert_eq!(types, expected);
}
