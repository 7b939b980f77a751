use std::time::Duration;

use super::*;
use crate::disk_access::DeviceAccess;
use crate::experiment::SweepPoint;
use crate::machine::Noise;
use crate::result::RunResult;
use crate::result::tests::results;
use crate::run_context::StorageMedium;
use crate::sample::{Check, MetricValues};
use crate::target::{DeviceJob, TargetJob};

fn point(name: &str, threads: usize, rates: &[f64]) -> PointResult {
    let job = TargetJob::Device(DeviceJob {
        place: StorageMedium::Disk,
        device: DeviceAccess::File,
        piece: 4096,
        sync_size: 4096,
        threads,
        warm_up: false,
    });
    let run = |(round, &rate): (usize, &f64)| {
        let mut values = MetricValues::default();
        values.set("rate", rate);
        RunResult {
            round,
            order: round,
            seconds: 0.1,
            values,
            checks: vec![Check::new("it holds", Ok(()))],
            noise: Noise::default(),
            timeline: Vec::new(),
        }
    };
    PointResult {
        repetitions: rates.iter().enumerate().map(run).collect(),
        ..PointResult::new(&SweepPoint::new([("name", name.into())], job))
    }
}

const FOUR: [f64; 4] = [10.0, 11.0, 12.0, 13.0];

#[test]
fn ranges_are_apart_when_chance_hardly_makes_them_so() {
    // Of n + m values, C(n + m, n) choices are equally likely.
    for (n, m, expected) in [
        (1, 1, 1.0),
        (3, 3, 0.1),
        (4, 4, 2.0 / 70.0),
        (5, 5, 2.0 / 252.0),
    ] {
        assert!((chance(n, m) - expected).abs() < 1e-12, "{n} {m}");
    }
    let verdict = |a: &[f64], b: &[f64]| of_values("rate", a, b).unwrap().ranges;
    let above = FOUR.map(|value| value + 3.5);
    assert_eq!(verdict(&FOUR, &above), RangeVerdict::Apart);
    assert_eq!(verdict(&above, &FOUR), RangeVerdict::Apart);
    assert_eq!(verdict(&FOUR[..3], &above[..3]), RangeVerdict::TooFewRuns);
    let touching = FOUR.map(|value| value + 3.0);
    assert_eq!(verdict(&FOUR, &touching), RangeVerdict::Overlap);
    assert_eq!(of_values("rate", &FOUR, &[]), None);
}

#[test]
fn ranges_of_one_distribution_are_apart_as_often_as_it_says() {
    let mut rng = fastrand::Rng::with_seed(5);
    let mut apart = 0;
    for _ in 0..4000 {
        let mut values = || -> Vec<f64> { (0..4).map(|_| rng.f64().powi(2)).collect() };
        let (a, b) = (values(), values());
        let verdict = of_values("rate", &a, &b).unwrap().ranges;
        apart += usize::from(verdict == RangeVerdict::Apart);
    }
    // 2 / 70 of 4000 are 114; three standard deviations are 32.
    assert!((80..=150).contains(&apart), "{apart}");
}

#[test]
fn medians_and_quotients_stand_beside_each_other() {
    let mut a = results(vec![
        point("both", 1, &FOUR),
        point("other job", 1, &FOUR),
        point("gone", 1, &FOUR),
    ]);
    let mut b = results(vec![
        point("both", 1, &FOUR.map(|value| value * 2.0)),
        point("other job", 2, &FOUR),
        point("new", 1, &FOUR),
    ]);
    a.commit = "1111".to_owned();
    b.commit = "2222".to_owned();
    b.host.cores = 64;
    b.load.before = Some(Noise {
        foreign: 0.5,
        noisy: true,
        ..Noise::default()
    });
    let difference = of_results(&a, &b).unwrap();
    let whats: Vec<&str> = difference.conditions.iter().map(|one| one.what).collect();
    assert_eq!(whats, ["commit", "cores"]);
    let metric = &difference.points[0].metrics[0];
    assert_eq!((metric.a.median, metric.b.median), (11.5, 23.0));
    assert_eq!(metric.quotient, Some(2.0));
    assert_eq!(metric.ranges, RangeVerdict::Apart);
    assert_eq!(difference.only_in_a, ["name=gone"]);
    assert_eq!(difference.only_in_b, ["name=new"]);
    assert_eq!(difference.refused[0].name, "name=other job");
    let all = Differences {
        a: "1".into(),
        b: "2".into(),
        results: vec![difference],
        refused: Vec::new(),
        only_in_a: Vec::new(),
        only_in_b: Vec::new(),
    };
    let text = all.to_string();
    for part in [
        "commit   1111  2222",
        "B was measured on a busy machine: others used 0.50 cores before the first run",
        "2.000  apart",
        "points in A alone:\n  name=gone",
        "not compared: name=other job",
        "1 of 1 metrics are apart",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn what_cannot_be_compared_is_refused() {
    let a = results(vec![point("both", 1, &FOUR)]);
    let mut b = a.clone();
    b.scale.records = 7;
    b.scale.time = Duration::from_secs(9);
    let incomparable = of_results(&a, &b).unwrap_err();
    assert!(
        incomparable
            .why
            .contains("records 2000 and 7, seconds 0.04 s and 9 s"),
        "{incomparable:?}"
    );
    let mut recorded = a.clone();
    recorded.recorded = true;
    assert!(of_results(&a, &recorded).is_err());
    let mut more = a.clone();
    more.scale.repetitions = 9;
    assert!(
        of_results(&a, &more).is_ok(),
        "more repetitions are no other scale"
    );
}

#[test]
fn a_failed_or_skipped_point_is_not_compared() {
    let whole = point("a", 1, &FOUR);
    let mut failed = whole.clone();
    failed.repetitions[0].checks[0].failure = Some("key 7 is missing".to_owned());
    let mut skipped = point("a", 1, &[]);
    skipped.skipped = Some("there is no such device".to_owned());
    for (other, says) in [
        (failed, "failed in the second: it holds"),
        (skipped, "skipped in the second: there is no such device"),
        (point("a", 1, &[]), "not measured in the second"),
    ] {
        assert_eq!(of_points(&whole, &other).unwrap_err(), says);
    }
}
