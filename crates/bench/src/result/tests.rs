use super::*;
use crate::disk_access::DeviceAccess;
use crate::error::RunError;
use crate::parameters::Effort;
use crate::run_context::StorageMedium;
use crate::target::DeviceJob;

fn job() -> TargetJob {
    TargetJob::Device(DeviceJob {
        place: StorageMedium::Disk,
        device: DeviceAccess::File,
        piece: 4096,
        sync_size: 4096,
        threads: 1,
        warm_up: false,
    })
}

fn run(round: usize, order: usize, rate: f64, noisy: bool) -> RunResult {
    let mut values = MetricValues::default();
    values.set("rate", rate);
    RunResult {
        round,
        order,
        seconds: 0.5,
        values,
        checks: vec![Check::new("it holds", Ok(()))],
        noise: Noise {
            noisy,
            ..Noise::default()
        },
        timeline: Vec::new(),
    }
}

fn point(name: &str, baseline: Option<&PointResult>, runs: Vec<RunResult>) -> PointResult {
    let point = SweepPoint::new([("name", name.into())], job());
    PointResult {
        baseline: baseline.map(|point| point.id.clone()),
        repetitions: runs,
        ..PointResult::new(&point)
    }
}

/// Returns results of a made-up experiment with these points.
pub(crate) fn results(points: Vec<PointResult>) -> Results {
    let mut results = Results {
        schema: SCHEMA,
        experiment: "made-up".to_owned(),
        title: "Made up".to_owned(),
        commit: "unknown".to_owned(),
        version: "0".to_owned(),
        profile: "debug".to_owned(),
        programs: MeasurementPrograms::default(),
        started: 1,
        complete: true,
        rounds: 1,
        recorded: false,
        host: HostInfo::default(),
        load: LoadAround::default(),
        scale: Scale::of(Effort::Tiny),
        settings: None,
        points,
    };
    results.summarise();
    results
}

fn rate(results: &Results, point: usize) -> MetricSummary {
    results.points[point].summary["rate"]
}

#[test]
fn a_share_is_of_the_neighbouring_runs_of_the_baseline() {
    // The machine gets slower: by the medians of all runs the share would be another.
    let runs = |all: &[(usize, usize, f64)]| {
        let run = |&(round, order, rate): &_| run(round, order, rate, false);
        all.iter().map(run).collect::<Vec<_>>()
    };
    let baseline = point(
        "a",
        None,
        runs(&[(0, 1, 100.0), (0, 3, 80.0), (1, 4, 50.0), (1, 6, 50.0)]),
    );
    let variant = point("b", Some(&baseline), runs(&[(0, 2, 45.0), (1, 5, 25.0)]));
    let results = results(vec![baseline, variant]);
    assert_eq!(rate(&results, 1).share, Some(0.5));
    assert_eq!(rate(&results, 1).median, 35.0);
    assert_eq!(
        (rate(&results, 0).min, rate(&results, 0).max),
        (50.0, 100.0)
    );
    assert_eq!(rate(&results, 0).share, None);
}

#[test]
fn noisy_runs_count_only_when_there_are_no_others() {
    let mixed = point(
        "a",
        None,
        vec![run(0, 1, 10.0, true), run(1, 2, 30.0, false)],
    );
    let noisy = point(
        "b",
        None,
        vec![run(0, 1, 10.0, true), run(1, 2, 30.0, true)],
    );
    let results = results(vec![mixed, noisy]);
    assert_eq!(
        (rate(&results, 0).median, results.points[0].noisy),
        (30.0, false)
    );
    assert_eq!(
        (rate(&results, 1).median, results.points[1].noisy),
        (20.0, true)
    );
}

#[test]
fn a_point_with_a_failed_check_has_no_figures() {
    let mut broken = run(1, 2, 30.0, false);
    broken.checks.push(Check::new(
        "every key is right",
        Err(RunError::Failed("key 7 is missing".to_owned())),
    ));
    let results = results(vec![point("a", None, vec![run(0, 1, 10.0, false), broken])]);
    assert!(results.points[0].summary.is_empty());
    let (_, check) = results.failures().next().unwrap();
    assert_eq!(check.failure.as_deref(), Some("key 7 is missing"));
}

#[test]
fn results_are_read_as_they_were_written() {
    let dir = tempfile::tempdir().unwrap();
    let mut skipped = point("b", None, vec![]);
    skipped.skipped = Some("there is no such device".to_owned());
    let mut noted = point("a", None, vec![run(0, 1, 1.5, true)]);
    noted.note = Some("the device is software".to_owned());
    let results = results(vec![noted, skipped]);
    let path = results.write(dir.path()).unwrap();
    assert_eq!(path, dir.path().join("made-up.json"));
    assert_eq!(Results::read(&path).unwrap(), results);
}

#[test]
fn a_machine_is_busy_when_others_use_it() {
    let quiet = |place| run(place, place, 10.0, false);
    let noisy = |place| run(place, place, 10.0, true);
    let one_in_five = vec![quiet(0), quiet(1), quiet(2), quiet(3), noisy(4)];
    let mut few = results(vec![point("a", None, one_in_five)]);
    few.load.before = Some(Noise {
        foreign: 0.1,
        ..Noise::default()
    });
    assert_eq!(few.busy(), None);
    few.load.after = Some(Noise {
        foreign: 0.8,
        noisy: true,
        ..Noise::default()
    });
    let reason = few.busy().unwrap();
    assert_eq!(reason, "others used 0.80 cores after the last run");
    let one_in_four = vec![quiet(0), quiet(1), quiet(2), noisy(3)];
    let many = results(vec![point("a", None, one_in_four)]);
    assert_eq!(many.busy().unwrap(), "1 of 4 runs were disturbed");
    assert_eq!(results(vec![point("a", None, vec![])]).busy(), None);
}

/// A file as releases wrote it before results held programs, loads and settings.
#[test]
fn an_older_file_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let mut results = results(vec![point("a", None, vec![run(0, 1, 1.5, false)])]);
    results.points[0].repetitions[0].seconds = 0.0;
    let mut json = serde_json::to_value(&results).unwrap();
    for name in ["programs", "load", "profile", "rounds"] {
        json.as_object_mut().unwrap().remove(name).unwrap();
    }
    json["host"]
        .as_object_mut()
        .unwrap()
        .remove("name")
        .unwrap();
    let run = &mut json["points"][0]["repetitions"][0];
    run.as_object_mut().unwrap().remove("seconds").unwrap();
    let path = dir.path().join("x.json");
    fs::write(&path, json.to_string()).unwrap();
    results.profile.clear();
    results.rounds = 0;
    assert_eq!(Results::read(&path).unwrap(), results);
}

#[test]
fn another_schema_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.json");
    for (text, says) in [
        (r#"{"schema": 99}"#, "it is of schema 99"),
        (r#"{"schema": 1}"#, "missing field"),
        ("{", "EOF"),
    ] {
        fs::write(&path, text).unwrap();
        let error = Results::read(&path).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
    let missing = Results::read(&dir.path().join("y.json")).unwrap_err();
    assert!(missing.to_string().starts_with("cannot read"));
}

#[test]
fn medians_are_in_the_middle() {
    assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
    assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
    assert_eq!(median(vec![]), None);
}
