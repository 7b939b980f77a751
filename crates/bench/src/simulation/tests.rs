//! Compares the simulation with results that are computed by hand, and with known properties of the
//! protocols.

use std::time::Duration;

use super::costs::{Cost, Line, ServiceTimes};
use super::{Machines, SimulationConfig, SimulationResult, run};
use crate::keys::Distribution;
use crate::systems::AtomicityProtocol;

/// Returns costs with which every role takes so many microseconds, for any work.
fn costs(client: f64, server: f64) -> ServiceTimes {
    let line = |us: f64| Line([us * 1e3, 0.0, 0.0, 0.0]);
    let cost = Cost {
        client: line(client),
        coordinator: line(server),
        participant: line(server),
        single: line(server),
    };
    ServiceTimes {
        read: cost,
        write: cost,
    }
}

fn config(protocol: AtomicityProtocol, partitions: usize) -> SimulationConfig {
    SimulationConfig {
        protocol,
        partitions,
        clients: 16 * partitions,
        keys: 100_000,
        draws: Distribution::Uniform,
        width: 4,
        value: 100,
        reads: 0.95,
        machines: Machines::Apart,
        delay: Duration::from_micros(20),
        costs: costs(10.0, 20.0),
        transactions: 20_000,
        seed: 3,
        plant: false,
    }
}

fn outcome(config: &SimulationConfig) -> SimulationResult {
    run(config).unwrap()
}

fn close(value: f64, right: f64) -> bool {
    (value / right - 1.0).abs() < 0.03
}

#[test]
fn one_server_is_as_fast_as_its_service_time() {
    for protocol in [
        AtomicityProtocol::S2pl,
        AtomicityProtocol::RampF,
        AtomicityProtocol::RampH,
    ] {
        let found = outcome(&config(protocol, 1));
        assert!(close(found.throughput, 50_000.0), "{protocol:?}: {found:?}");
        assert!(close(found.messages, 2.0), "{protocol:?}: {found:?}");
    }
    // Little's law: so many clients, each with one transaction under way.
    let found = outcome(&config(AtomicityProtocol::RampF, 1));
    let under_way = found.throughput * found.latency.as_secs_f64();
    assert!(close(under_way, 16.0), "{found:?}");
}

#[test]
fn a_shared_processor_serves_clients_and_servers() {
    let shared = SimulationConfig {
        machines: Machines::Shared(1),
        ..config(AtomicityProtocol::RampF, 1)
    };
    let found = outcome(&shared);
    assert!(close(found.throughput, 1e6 / 30.0), "{found:?}");
    assert!(close(found.service.as_secs_f64(), 30e-6), "{found:?}");
}

#[test]
fn messages_are_those_of_the_protocols() {
    let reads = |protocol| {
        let only = SimulationConfig {
            reads: 1.0,
            width: 2,
            keys: 1_000_000,
            ..config(protocol, 128)
        };
        outcome(&only).messages
    };
    // Of two keys nearly all are of two partitions: ask and answer with each, …
    assert!(
        close(reads(AtomicityProtocol::RampF), 4.0),
        "{}",
        reads(AtomicityProtocol::RampF)
    );
    // … twice, …
    assert!(close(reads(AtomicityProtocol::RampS), 8.0));
    // … or client and coordinator, then prepare, vote, commit, done, forget.
    assert!(close(reads(AtomicityProtocol::S2pl), 7.0));
    let writes = SimulationConfig {
        reads: 0.0,
        width: 2,
        keys: 1_000_000,
        ..config(AtomicityProtocol::RampF, 128)
    };
    assert!(close(outcome(&writes).messages, 7.0));
}

#[test]
fn partitions_add_up_without_holds_and_less_with_them() {
    let of = |protocol, partitions, draws| {
        let many = SimulationConfig {
            draws,
            keys: 1000,
            reads: 0.5,
            ..config(protocol, partitions)
        };
        outcome(&many)
    };
    let uniform = Distribution::Uniform;
    let (four, sixteen) = (
        of(AtomicityProtocol::RampF, 4, uniform).throughput,
        of(AtomicityProtocol::RampF, 16, uniform).throughput,
    );
    assert!(sixteen > 2.5 * four, "{four} {sixteen}");
    let hot = of(AtomicityProtocol::S2pl, 8, Distribution::YCSB);
    let cold = of(AtomicityProtocol::S2pl, 8, uniform);
    assert!(hot.throughput < cold.throughput / 2.0, "{hot:?} {cold:?}");
    assert!(hot.retries > cold.retries, "{hot:?} {cold:?}");
    let ramp = of(AtomicityProtocol::RampF, 8, Distribution::YCSB);
    assert!(ramp.throughput > 1.5 * hot.throughput, "{ramp:?} {hot:?}");
}

#[test]
fn readers_meet_writers_as_often_as_there_are_writers() {
    let of = |protocol, reads| {
        let hot = SimulationConfig {
            keys: 200,
            reads,
            ..config(protocol, 8)
        };
        outcome(&hot).one_round.unwrap()
    };
    let (many, few) = (
        of(AtomicityProtocol::RampF, 0.5),
        of(AtomicityProtocol::RampF, 0.99),
    );
    assert!(many < few && few > 0.95 && many > 0.0, "{many} {few}");
    assert_eq!(of(AtomicityProtocol::RampS, 0.9), 0.0);
    let (hybrid, fast) = (
        of(AtomicityProtocol::RampH, 0.9),
        of(AtomicityProtocol::RampF, 0.9),
    );
    assert!((hybrid - fast).abs() < 0.05, "{hybrid} {fast}");
}

#[test]
fn without_the_second_round_reads_are_fractured() {
    let planted = SimulationConfig {
        keys: 200,
        reads: 0.5,
        plant: true,
        ..config(AtomicityProtocol::RampF, 8)
    };
    let found = run(&planted).unwrap_err().to_string();
    assert!(found.contains("saw write"), "{found}");
}

#[test]
fn a_seed_is_a_run() {
    let one = config(AtomicityProtocol::S2pl, 4);
    let (a, b) = (outcome(&one), outcome(&one));
    assert_eq!(a.throughput.to_bits(), b.throughput.to_bits());
    let other = outcome(&SimulationConfig { seed: 4, ..one });
    assert_ne!(a.throughput.to_bits(), other.throughput.to_bits());
}
