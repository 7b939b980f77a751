//! The checks that all experiments share.

use bench::result::Results;
use bench::{report, table};

use crate::support::{experiment, left, options, run};

/// Runs an experiment, and makes the checks that all share.
pub(crate) fn whole(name: &str) -> Results {
    let dir = tempfile::tempdir().unwrap();
    let options = options(dir.path());
    let outcome = run(name, &options);
    assert_eq!(outcome.failure(), None);
    let results = Results::read(&outcome.path).unwrap();
    assert!(results == outcome.results, "read as they were written");
    assert!(results.complete && !results.points.is_empty());
    for point in &results.points {
        if point.skipped.is_some() {
            continue;
        }
        assert!(!point.repetitions.is_empty(), "{}", point.id);
        assert!(point.repetitions.iter().all(|run| !run.checks.is_empty()));
        assert!(!point.summary.is_empty(), "{}", point.id);
        if point.baseline.is_some() {
            let share = point.summary.values().find_map(|summary| summary.share);
            assert!(share.is_some_and(|share| share > 0.0), "{}", point.id);
        }
    }
    assert_eq!((left(&options.disk), left(&options.memory)), (0, 0));
    let text = table::show(experiment(name), &results);
    assert!(text.contains(&results.title), "{text}");
    let page = report::page(std::slice::from_ref(&results));
    assert!(page.contains(&results.title) && page.ends_with("</html>\n"));
    assert!(page.contains("<svg") && page.contains("<figcaption>"));
    for foreign in ["NaN", "inf\"", "<script", "http:", "https:", "url("] {
        assert!(!page.contains(foreign), "{name}: {foreign}");
    }
    results
}
