//! The controller on models of devices.

use super::*;

/// A device: the seconds of a sync, and the bytes that it takes in a second.
#[derive(Clone, Copy)]
pub(super) struct Drive {
    pub(super) sync: f64,
    pub(super) rate: f64,
}

/// A logger with its controller, on a device, and workers that log at a constant rate, or as fast
/// as the limit lets them.
pub(super) struct Model {
    pub(super) pacer: Pacer,
    demand: f64,
    start: Instant,
    now: f64,
    last_began: f64,
}

/// One cycle of the model. Seconds and bytes.
#[derive(Clone, Copy)]
pub(super) struct Step {
    pub(super) began: f64,
    /// The time since the last one began.
    pub(super) open: f64,
    pub(super) bytes: f64,
    pub(super) latency: f64,
}

impl Model {
    pub(super) fn new(target: f64, demand: f64) -> Model {
        Model {
            pacer: Pacer::new(Duration::from_secs_f64(target)),
            demand,
            start: Instant::now(),
            now: 0.0,
            last_began: 0.0,
        }
    }

    pub(super) fn step(&mut self, drive: Drive) -> Step {
        let due = self.last_began + self.pacer.period;
        let began = f64::max(self.now, due);
        let open = began - self.last_began;
        // The workers stop when they hold the limit.
        let bytes = (self.demand * open).min(self.pacer.limit);
        let filling = bytes / self.demand;
        let took = drive.sync + bytes / drive.rate;
        // The transactions came evenly in `filling` from the beginning of the last cycle on.
        let latency = open - filling / 2.0 + took;
        self.now = began + took;
        self.pacer.observe(
            &Cycle {
                began: self.start + Duration::from_secs_f64(began),
                took: Duration::from_secs_f64(took),
                bytes: bytes as u64,
                latency: Duration::from_secs_f64(latency),
                notification: Duration::ZERO,
                joined: true,
            },
            true,
        );
        self.last_began = began;
        Step {
            began,
            open,
            bytes,
            latency,
        }
    }
}

/// Returns the latency and the bytes per second at which the model settles.
fn settle(target: f64, sync: f64, rate: f64, demand: f64) -> (f64, f64) {
    let mut model = Model::new(target, demand);
    let drive = Drive { sync, rate };
    let steps: Vec<Step> = (0..4000).map(|_| model.step(drive)).skip(2000).collect();
    let sum = |of: fn(&Step) -> f64| steps.iter().map(of).sum::<f64>();
    let written = sum(|step| step.bytes) / sum(|step| step.open);
    (sum(|step| step.latency) / steps.len() as f64, written)
}

#[test]
fn under_load_the_mean_latency_is_the_target() {
    for sync in [200e-6, 1e-3] {
        let (latency, written) = settle(3e-3, sync, 1e9, 50e6);
        assert!((latency / 3e-3 - 1.0).abs() < 0.1, "{sync}: {latency}");
        assert!((written / 50e6 - 1.0).abs() < 0.01, "{sync}: {written}");
    }
}

#[test]
fn a_fast_device_is_used_as_often_as_it_is_worth() {
    let (latency, written) = settle(3e-3, 10e-6, 2e9, 50e6);
    assert!(latency < 0.7e-3, "{latency}");
    assert!((written / 50e6 - 1.0).abs() < 0.01, "{written}");
}

#[test]
fn a_slow_device_is_used_to_the_full_and_its_queue_kept_short() {
    // The device takes a fifth of what the workers could write.
    let (latency, written) = settle(3e-3, 100e-6, 20e6, 100e6);
    assert!(latency < 1.25 * 3e-3, "{latency}");
    assert!(written > 0.85 * 20e6, "{written}");
}

#[test]
fn a_target_below_the_sync_time_does_not_starve_the_device() {
    let (latency, written) = settle(1e-3, 4e-3, 100e6, 500e6);
    assert!(written > 0.35 * 100e6, "{written}");
    assert!(latency < 30e-3, "{latency}");
}

/// Two clients wait for each other's cycles, on a device that is slower than the target:
/// all cycles are of one size, and none is fast enough.
#[test]
fn small_cycles_of_one_size_do_not_take_the_workers_room_away() {
    let mut pacer = Pacer::new(Duration::from_millis(3));
    for i in 0..1000 {
        let took = Duration::from_millis(if i == 0 { 12 } else { 10 });
        let cycle = Cycle {
            began: Instant::now(),
            took,
            bytes: 200,
            latency: took * 2,
            notification: Duration::ZERO,
            joined: true,
        };
        pacer.observe(&cycle, true);
    }
    assert!(pacer.limit() >= LEAST as usize, "{}", pacer.limit());
}

#[test]
fn a_lone_client_does_not_wait() {
    let mut pacer = Pacer::new(Duration::from_millis(3));
    let alone = Cycle {
        began: Instant::now(),
        took: Duration::from_micros(100),
        bytes: 200,
        latency: Duration::from_micros(100),
        notification: Duration::ZERO,
        joined: false,
    };
    assert_eq!(pacer.next(), None);
    pacer.observe(&alone, false);
    assert_eq!(pacer.next(), None);
    let joined = Cycle {
        joined: true,
        ..alone
    };
    pacer.observe(&joined, false);
    assert!(pacer.next().is_some_and(|next| next > alone.began));
    // A logger that transactions kept joining gets another chance, but not for ever.
    for _ in 1..ALONE {
        pacer.observe(&alone, false);
        assert!(pacer.next().is_some());
    }
    pacer.observe(&alone, false);
    assert_eq!(pacer.next(), None);
    assert_eq!(pacer.limit(), usize::MAX);
}
