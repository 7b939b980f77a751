//! Causes faults, and ends them.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use parking_lot::Mutex;
use rustix::process::Signal;

use super::fault::{ChaosFault, PlannedFault, Whom, behind};
use super::network::ChaosNetwork;
use super::nodes::PartitionNodes;
use super::session::World;
use xtask::interrupt;

/// How long a transfer of leadership is waited for, in seconds: under faults it often fails.
const TRANSFER_S: u64 = 3;
/// How often a full disk is filled again: the node may have removed something.
const REFILL: Duration = Duration::from_millis(25);

/// The system that faults strike.
pub struct FaultInjector<'a> {
    /// Cables and routes.
    pub network: &'a ChaosNetwork,
    /// Processes and disks.
    pub nodes: &'a PartitionNodes,
    /// Knows the leader.
    pub world: &'a World,
    /// The actions, with their times.
    pub events: &'a Mutex<Vec<String>>,
}

impl FaultInjector<'_> {
    /// Causes all faults, each at its time, and waits until all have ended.
    ///
    /// # Errors
    /// Returns the first failure of an action that should work under any fault.
    pub fn suffer(&self, plan: &[PlannedFault]) -> Result<()> {
        let begun = Instant::now();
        thread::scope(|scope| {
            let strike = |planned| scope.spawn(move || self.strike(begun, planned));
            let faults: Vec<_> = plan.iter().map(strike).collect();
            let mut ended = faults.into_iter().map(|one| one.join().expect("no panic"));
            ended.try_for_each(|ended| ended)
        })
    }

    fn strike(&self, begun: Instant, planned: &PlannedFault) -> Result<()> {
        wait(begun + planned.at)?;
        let leader = self.world.leader.load(Ordering::Relaxed);
        let at = begun.elapsed().as_millis();
        let line = format!("{at} ms: {planned}; node {leader} has served last");
        self.events.lock().push(line);
        let until = Instant::now() + planned.lasts;
        let who = |whom: Whom| match whom {
            Whom::Leader => leader,
            Whom::Node(id) => id,
        };
        match &planned.fault {
            ChaosFault::Unplug(whom) => {
                self.network.plug(who(*whom), false)?;
                wait(until)?;
                self.network.plug(who(*whom), true)
            }
            ChaosFault::Isolate(whom) => self.lose(&self.between(&[who(*whom)]), until),
            ChaosFault::Split { minority } => self.lose(&self.between(minority), until),
            ChaosFault::Cut { one, behind: by } => {
                let one = who(*one);
                let other = behind(one, *by, self.nodes.count());
                self.lose(&[(one, other), (other, one)], until)
            }
            ChaosFault::Mute { from, behind: by } => {
                let from = who(*from);
                self.lose(&[(from, behind(from, *by, self.nodes.count()))], until)
            }
            ChaosFault::Kill(whom) => {
                self.nodes.kill(who(*whom))?;
                self.revive(&[who(*whom)], until)
            }
            ChaosFault::KillAll => {
                self.nodes.kill_all()?;
                self.revive(&self.nodes.ids().collect::<Vec<_>>(), until)
            }
            ChaosFault::Pause(whom) => {
                self.nodes.signal(who(*whom), Signal::STOP);
                wait(until)?;
                self.nodes.signal(who(*whom), Signal::CONT);
                Ok(())
            }
            ChaosFault::Fill(whom) => self.fill(who(*whom), until),
            ChaosFault::Wipe(whom) => {
                self.nodes.wipe(who(*whom))?;
                self.revive(&[who(*whom)], until)
            }
            ChaosFault::Restart(whom) => {
                let stopping = Instant::now();
                self.nodes.stop(who(*whom))?;
                let took = stopping.elapsed().as_millis();
                let line = format!("node {} stopped within {took} ms", who(*whom));
                self.events.lock().push(line);
                self.nodes.start(self.network, who(*whom))
            }
            ChaosFault::Transfer(to) => {
                // There may be no node that can lead.
                let ended = self.nodes.command("transfer", "--to", *to, TRANSFER_S);
                let ended = ended.map_err(|error| format!("{error:#}"));
                self.events
                    .lock()
                    .push(format!("transfer to {to}: {ended:?}"));
                Ok(())
            }
        }
    }

    /// Returns the directions between some nodes and all others, in both ways.
    fn between(&self, some: &[u16]) -> Vec<(u16, u16)> {
        let others = self.nodes.ids().filter(|id| !some.contains(id));
        let pairs = others.flat_map(|other| some.iter().map(move |one| (*one, other)));
        pairs.flat_map(|(a, b)| [(a, b), (b, a)]).collect()
    }

    fn lose(&self, ways: &[(u16, u16)], until: Instant) -> Result<()> {
        ways.iter()
            .try_for_each(|(from, to)| self.network.block(*from, *to))?;
        wait(until)?;
        ways.iter()
            .for_each(|(from, to)| self.network.unblock(*from, *to));
        Ok(())
    }

    fn revive(&self, ids: &[u16], until: Instant) -> Result<()> {
        wait(until)?;
        let mut ids = ids.iter();
        ids.try_for_each(|id| self.nodes.start(self.network, *id))
    }

    fn fill(&self, id: u16, until: Instant) -> Result<()> {
        while Instant::now() < until {
            self.nodes.fill(id, true)?;
            wait(until.min(Instant::now() + REFILL))?;
        }
        self.nodes.fill(id, false)
    }

    /// Ends all faults that may be left.
    ///
    /// # Errors
    /// Returns an error if something cannot be ended.
    pub fn heal(&self) -> Result<()> {
        self.network.heal()?;
        for id in self.nodes.ids() {
            self.nodes.fill(id, false)?;
            self.nodes.signal(id, Signal::CONT);
            self.nodes.start(self.network, id)?;
        }
        Ok(())
    }
}

/// Waits, listening for Ctrl-C.
fn wait(until: Instant) -> Result<()> {
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        interrupt::check()?;
        thread::sleep(left.min(Duration::from_millis(20)));
    }
    Ok(())
}
