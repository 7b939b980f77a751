//! `query-placement` at the smallest scale, with the storage node in this process: all placements
//! give the right answers.

use bench::runner::Options;

use crate::checks::whole;
use crate::support::{left, options, run};

#[test]
fn all_placements_give_the_right_answers() {
    let results = whole("query-placement");
    let mut ways = std::collections::BTreeSet::new();
    for point in &results.points {
        let Some(way) = point.params.get("way") else {
            let near = point.summary["near-best"].median;
            assert!((0.0..=1.0).contains(&near), "{near}");
            continue;
        };
        assert_eq!(point.skipped, None, "{}", point.id);
        assert!(point.summary["query-time"].median > 0.0, "{}", point.id);
        let runs = &point.repetitions;
        assert!(runs.iter().all(|run| run.checks.len() == 1), "{}", point.id);
        ways.insert(way.to_string());
    }
    let all = [
        "auto",
        "auto-away",
        "local",
        "remote-local",
        "remote-remote",
    ];
    assert!(ways.iter().eq(all), "{ways:?}");
}

#[test]
fn a_wrong_answer_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        plant: true,
        only: Some("query=Q6 page-size=16 threads=2".to_owned()),
        ..options(dir.path())
    };
    let outcome = run("query-placement", &options);
    let failure = outcome.failure().expect("the wrong answer is found");
    assert!(failure.contains("plain loop"), "{failure}");
    let told = outcome.results.points.iter().map(|point| &point.summary);
    assert!(told.clone().count() > 4 && told.clone().all(|summary| summary.is_empty()));
    assert_eq!(left(&options.disk), 0);
}
