use super::*;
use crate::disk_access::DeviceAccess;
use crate::run_context::StorageMedium;
use crate::target::{DeviceJob, TargetJob};

fn point(name: &str) -> SweepPoint {
    let job = DeviceJob {
        place: StorageMedium::Disk,
        device: DeviceAccess::File,
        piece: 4096,
        sync_size: 4096,
        threads: 1,
        warm_up: false,
    };
    SweepPoint::new([("name", name.into())], TargetJob::Device(job))
}

#[test]
fn baselines_stand_around_what_is_compared_with_them() {
    let (a, b) = (point("a"), point("b"));
    let variants = ["1", "2", "3", "4"].map(|name| point(name).against(&a));
    let points: Vec<SweepPoint> = [a.clone()].into_iter().chain(variants).chain([b]).collect();
    assert_eq!(schedule(&points, 0), [0, 1, 2, 3, 0, 4, 0, 5]);
    assert_eq!(schedule(&points, 1), [5, 0, 4, 0, 3, 2, 1, 0]);
}

#[test]
fn what_breaks_because_the_user_stops_is_no_failure() {
    let bad = || RunSample {
        checks: vec![Check::new(
            "every reply is right",
            Err(RunError::Failed("none came".into())),
        )],
        ..RunSample::default()
    };
    let failed = || Err(RunError::Failed("a server is gone".into()));
    assert!(matches!(evaluate(Ok(bad()), true), RunOutcome::Nothing));
    assert!(matches!(evaluate(failed(), true), RunOutcome::Nothing));
    assert!(matches!(
        evaluate(Ok(RunSample::default()), true),
        RunOutcome::RunSample(_)
    ));
    for run in [Ok(bad()), failed()] {
        let RunOutcome::RunSample(sample) = evaluate(run, false) else {
            panic!("the failure is missing");
        };
        assert!(sample.failure().is_some());
    }
    assert!(matches!(
        evaluate(Err(RunError::Interrupted), false),
        RunOutcome::Nothing
    ));
}
