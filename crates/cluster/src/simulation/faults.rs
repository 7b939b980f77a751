//! Faults that come by themselves, until faults stop.

use std::time::Duration;

use fabric::sim::NetworkHost;

use super::clients::SimulatedClients;
use super::coverage::Point;
use super::environment::{Environment, Event};
use super::machines::SimulatedMachines;
use super::plan::TICK;

/// Draws the faults of this moment.
pub(super) fn draw_faults(
    env: &mut Environment,
    machines: &mut SimulatedMachines,
    clients: &mut SimulatedClients,
) {
    if env.have_faults_stopped() {
        return;
    }
    let faults = env.plan.faults;
    env.after(TICK, Event::Tick);
    let node = env.random.usize(..machines.machines.len());
    let other = env.random.usize(..machines.machines.len());
    if draw(env, faults.crash) {
        machines.crash(env, node);
    }
    if draw(env, faults.depose) && !machines.groups.is_empty() {
        let group = env.random.usize(..machines.groups.len());
        machines.depose(env, group);
    }
    if draw(env, faults.separate) && node != other {
        separate(env, machines, node, other);
    }
    if draw(env, faults.break_links) && node != other {
        let (a, b) = (machines.machines[node].id, machines.machines[other].id);
        env.trace
            .note(env.now, format_args!("links between {a} and {b} break"));
        env.network.break_links(a, b);
    }
    if draw(env, faults.slow_disk) {
        let time = env.while_up_to(Duration::from_millis(100));
        env.trace
            .note(env.now, format_args!("the disk of {} is slow", node + 1));
        machines.machines[node].slow_disk = true;
        env.after(time, Event::FastDisk(node));
    }
    if draw(env, faults.slow_link) && node != other {
        let (a, b) = (machines.machines[node].id, machines.machines[other].id);
        let time = env.while_up_to(Duration::from_millis(100));
        env.network.slow(a, b, Some(20_000));
        env.after(time, Event::FastLink(node, other));
    }
    if draw(env, faults.clock_step) {
        let limit = faults.clock_step_ms;
        let ahead = env.random.i64(-limit..=limit);
        env.trace.note(
            env.now,
            format_args!("the clock of {} is {ahead} ms ahead", node + 1),
        );
        machines.machines[node].ahead_ms = ahead;
    }
    if draw(env, faults.client) {
        let client = env.random.usize(..clients.clients.len());
        if clients.clients[client].is_busy() {
            clients.replace_client(env, client);
        }
    }
}

fn draw(env: &mut Environment, share: u32) -> bool {
    ::simulation::draw::chance(&mut env.random, share)
}

fn separate(env: &mut Environment, machines: &SimulatedMachines, node: usize, other: usize) {
    let (a, b): (NetworkHost, NetworkHost) = (
        machines.machines[node].id.into(),
        machines.machines[other].id.into(),
    );
    let is_one_way = env.random.u8(..3) == 0;
    env.trace.note(
        env.now,
        format_args!("{a:?} and {b:?} are separated; one way: {is_one_way}"),
    );
    if is_one_way {
        env.network.partition_one_way(a, b);
    } else {
        env.network.partition(a, b);
    }
    env.reached.add(Point::Separated, 1);
    let time = env.while_up_to(Duration::from_millis(300));
    env.after(time, Event::Heal(node, other));
}

pub(super) fn heal(env: &mut Environment, machines: &SimulatedMachines, node: usize, other: usize) {
    let (a, b) = (machines.machines[node].id, machines.machines[other].id);
    env.network.heal_between(a, b);
}

pub(super) fn fast_link(
    env: &mut Environment,
    machines: &SimulatedMachines,
    node: usize,
    other: usize,
) {
    let (a, b) = (machines.machines[node].id, machines.machines[other].id);
    env.network.slow(a, b, None);
}

/// Stops the faults: all nodes and links work again, and clocks are set right.
pub(super) fn faults_stop(env: &mut Environment, machines: &mut SimulatedMachines) {
    env.trace.note(env.now, format_args!("faults stop"));
    env.network.heal();
    for node in 0..machines.machines.len() {
        let machine = &mut machines.machines[node];
        machine.slow_disk = false;
        machine.ahead_ms = 0;
        (0..machines.machines.len()).for_each(|other| fast_link(env, machines, node, other));
    }
    env.after(Duration::ZERO, Event::FinalCheck);
}
