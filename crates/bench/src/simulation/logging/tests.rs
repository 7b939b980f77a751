use std::num::NonZeroU64;
use std::time::Duration;

use super::*;

const MS: Duration = Duration::from_millis(1);

/// A worker executes a hundred thousand transactions a second, which log 100 bytes each; a logger
/// writes 1 GB/s.
const COSTS: LoggingCosts = LoggingCosts {
    worker: 10_000.0,
    bytes: 100.0,
    cycle: Line([20_000.0, 1.0, 0.0, 0.0]),
    device: Line([20_000.0, 1.0, 0.0, 0.0]),
    wakes: [5_000.0; WAKES],
};

fn config(workers: usize, loggers: usize) -> LoggingConfig {
    LoggingConfig {
        workers,
        loggers,
        buffers: 4,
        buffer_size: 512 * 1024,
        epoch: 10 * MS,
        max_epoch_diff: None,
        shares_device: false,
        machines: Machines::Apart,
        costs: COSTS,
        warm_up: 50 * MS,
        time: 400 * MS,
        seed: 1,
    }
}

/// Returns costs of a device that writes so many bytes a second.
fn device(bytes_per_second: f64) -> LoggingCosts {
    LoggingCosts {
        device: Line([200_000.0, 1e9 / bytes_per_second, 0.0, 0.0]),
        ..COSTS
    }
}

fn is_near(value: f64, wanted: f64, part: f64) -> bool {
    (value / wanted - 1.0).abs() < part
}

#[test]
fn one_worker_is_durable_at_the_end_of_its_epochs() {
    let result = run(&config(1, 1));
    assert!(is_near(result.throughput, 1e5, 0.02), "{result:?}");
    assert!(is_near(result.log_rate, 1e7, 0.05), "{result:?}");
    // Each cycle, of which there are a hundred a second, takes 0.12 ms.
    let service = result.service.as_secs_f64() * 1e6;
    assert!((10.0..10.3).contains(&service), "{result:?}");
    // Half an epoch in the mean, and a cycle of 100 KB: 0.12 ms.
    let latency = result.latency.as_secs_f64() * 1e3;
    assert!((5.0..5.6).contains(&latency), "{result:?}");
}

#[test]
fn workers_add_up_and_all_loggers_close_each_epoch() {
    let result = run(&config(64, 8));
    assert!(is_near(result.throughput, 64e5, 0.02), "{result:?}");
    // Eight workers' bytes of an epoch take 0.8 ms.
    let latency = result.latency.as_secs_f64() * 1e3;
    assert!((5.5..7.0).contains(&latency), "{result:?}");
}

#[test]
fn a_device_bounds_the_throughput_and_more_buffers_the_latency() {
    let disk = LoggingConfig {
        shares_device: true,
        costs: device(50e6),
        warm_up: 400 * MS,
        time: 1600 * MS,
        ..config(16, 2)
    };
    let few = run(&disk);
    // 50 MB/s are half a million transactions.
    assert!(is_near(few.throughput, 5e5, 0.1), "{few:?}");
    let many = run(&LoggingConfig { buffers: 8, ..disk });
    assert!(many.latency > few.latency * 3 / 2, "{few:?} {many:?}");
    let faster = run(&LoggingConfig {
        costs: device(500e6),
        ..disk
    });
    assert!(faster.throughput > 1.5e6, "{faster:?}");
    assert!(faster.latency < few.latency / 4, "{faster:?}");
}

#[test]
fn workers_that_are_held_lower_the_latency_and_the_throughput() {
    let slow = LoggingConfig {
        epoch: MS,
        shares_device: true,
        costs: device(50e6),
        warm_up: 400 * MS,
        ..config(16, 2)
    };
    let free = run(&slow);
    let held = run(&LoggingConfig {
        max_epoch_diff: NonZeroU64::new(2),
        ..slow
    });
    let tight = run(&LoggingConfig {
        max_epoch_diff: NonZeroU64::new(1),
        ..slow
    });
    assert!(held.latency < free.latency / 10, "{free:?} {held:?}");
    assert!(tight.latency <= held.latency, "{held:?} {tight:?}");
    assert!(
        tight.throughput <= held.throughput * 1.01,
        "{held:?} {tight:?}"
    );
}

#[test]
fn threads_of_one_machine_share_its_processors() {
    let apart = run(&config(2, 1));
    let shared = run(&LoggingConfig {
        machines: Machines::Shared(1),
        ..config(2, 1)
    });
    assert!(is_near(apart.throughput, 2e5, 0.02), "{apart:?}");
    // The logger takes some of the processor, too.
    assert!((0.8e5..1e5).contains(&shared.throughput), "{shared:?}");
    assert!(shared.latency > apart.latency, "{shared:?}");
}

#[test]
fn the_same_seed_gives_the_same_result() {
    assert_eq!(run(&config(8, 2)), run(&config(8, 2)));
}
