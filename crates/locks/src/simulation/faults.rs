//! Faults.

use std::time::Duration;

use super::proxy::Table;
use super::reached::CoveragePoint;
use super::world::{Event, World};
use crate::moment::MonotonicTime;

impl World {
    /// Causes one fault, and plans the next.
    pub(super) fn fault(&mut self) {
        if !self.is_faulty() {
            return;
        }
        let proxy = self.rng.usize(0..self.proxies.len());
        let length = Duration::from_millis(self.rng.u64(1..5_000));
        match self.rng.u8(0..7) {
            0 => self.kill(proxy),
            1 => self.pause(proxy, length),
            2 => {
                self.note("is cut off", proxy);
                self.reached.add(CoveragePoint::CutOff, 1);
                self.proxies[proxy].cut_until = self.now + length;
            }
            3 => {
                self.reached.add(CoveragePoint::Elected, 1);
                self.leaderless_until = self.now + length / 4;
                self.skew_ms += self.rng.i64(-300..300);
                self.trace.note(self.now, format_args!("no member leads"));
            }
            4 => {
                self.reached.add(CoveragePoint::ClockSet, 1);
                self.skew_ms = self.draw_skew();
                self.trace
                    .note(self.now, format_args!("the leader's clock is set"));
            }
            5 => {
                self.reached.add(CoveragePoint::ClockSet, 1);
                self.proxies[proxy].skew_ms = self.draw_skew();
                self.note("has its clock set", proxy);
            }
            _ => self.stop(proxy),
        }
        if let Some(mean) = self.plan.faults_ms {
            self.soon(Duration::from_millis(2 * mean), Event::Fault);
        }
    }

    /// Draws the error of a wall clock: seconds, or years.
    fn draw_skew(&mut self) -> i64 {
        let most = match self.rng.u8(0..4) {
            0 => 20 * 365 * 86_400_000,
            _ => 10_000,
        };
        self.rng.i64(-most..most)
    }

    fn note(&mut self, what: &str, proxy: usize) {
        self.trace
            .note(self.now, format_args!("proxy {proxy} {what}"));
    }

    fn kill(&mut self, proxy: usize) {
        if self.proxies[proxy].table.is_none() {
            return;
        }
        self.note("is killed", proxy);
        let holds = self.judge.is_any_held(self.now);
        self.reached.add(CoveragePoint::Killed, u64::from(holds));
        self.count(proxy);
        self.proxies[proxy].table = None;
        if self.rng.bool() {
            self.note("loses its machine, which starts anew", proxy);
            self.reached.add(CoveragePoint::Rebooted, u64::from(holds));
            self.proxies[proxy].reboot(self.now);
        }
        self.soon(Duration::from_secs(2), Event::Starts(proxy));
    }

    /// Stops a table in memory in order: the commands that it gives are carried out before it ends.
    fn stop(&mut self, proxy: usize) {
        let local = self.proxies[proxy].local(self.now);
        let Some(Table::Authority(table)) = &self.proxies[proxy].table else {
            return self.kill(proxy);
        };
        if self.proxies[proxy].paused {
            return;
        }
        let mut out = Vec::new();
        table.stop(local, &mut out);
        self.note("is stopped", proxy);
        for command in &out {
            if let crate::authority::AuthorityCommand::KeepLedger(ledger) = command {
                self.reached
                    .add(CoveragePoint::CleanStop, u64::from(ledger.clean));
            }
        }
        let doings = out.into_iter().map(super::proxy::of_authority).collect();
        self.does(proxy, doings);
        self.soon(Duration::from_millis(300), Event::Starts(proxy));
        let life = self.proxies[proxy].life;
        let end = self.now + Duration::from_millis(50);
        self.push(end, Event::Ends(proxy, life));
    }

    /// Ends a life that was stopped.
    pub(super) fn ends(&mut self, proxy: usize, life: u64) {
        if self.proxies[proxy].life == life && self.proxies[proxy].table.is_some() {
            self.kill(proxy);
        }
    }

    pub(super) fn pause(&mut self, number: usize, length: Duration) {
        let now = self.now;
        let proxy = &mut self.proxies[number];
        if proxy.table.is_none() || proxy.paused {
            return;
        }
        proxy.paused = true;
        proxy.paused_at = now;
        let life = proxy.life;
        self.reached.add(CoveragePoint::Paused, 1);
        self.note("is paused", number);
        self.push(now + length, Event::Resumes(number, life));
    }

    pub(super) fn resume(&mut self, number: usize, life: u64) {
        let now = self.now;
        let proxy = &mut self.proxies[number];
        if proxy.life != life || !proxy.paused {
            return;
        }
        proxy.paused = false;
        proxy.lost += now.since(proxy.paused_at);
        let doings = std::mem::take(&mut proxy.held_back);
        self.note("goes on", number);
        self.does(number, doings);
        let mailbox = std::mem::take(&mut self.proxies[number].mailbox);
        for mail in mailbox {
            self.push(now, Event::Mail(number, life, mail));
        }
        self.push(now, Event::Mail(number, life, super::proxy::Mail::Wake));
    }

    /// Stops the faults.
    pub(super) fn heal(&mut self) {
        self.trace.note(self.now, format_args!("the faults stop"));
        self.leaderless_until = self.now;
        for number in 0..self.proxies.len() {
            self.proxies[number].cut_until = MonotonicTime::default();
            let life = self.proxies[number].life;
            self.resume(number, life);
            if self.proxies[number].table.is_none() {
                self.start(number);
            }
        }
    }
}
