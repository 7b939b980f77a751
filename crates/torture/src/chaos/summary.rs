//! Sums over the rounds of a run, and their times.

use std::time::Duration;

use super::partition_run::ChaosReport;
use crate::percentiles::Percentiles;

/// A client that is answered so soon was being served already.
const AT_ONCE: Duration = Duration::from_millis(50);

/// See the module's description.
#[derive(Debug, Default)]
pub struct ChaosSummary {
    served: [u64; 3],
    transactions: usize,
    faults: usize,
    added: usize,
    serving: Vec<Duration>,
    catching_up: Vec<Duration>,
}

impl ChaosSummary {
    /// Takes in a round.
    pub fn add(&mut self, report: &ChaosReport) {
        for (sum, one) in self.served.iter_mut().zip(report.served) {
            *sum += one;
        }
        self.transactions += report.transactions;
        self.faults += report.faults;
        self.added += report.added;
        self.serving.push(report.serving);
        self.catching_up.push(report.catching_up);
    }

    /// Prints the measurements.
    pub fn print(&self) {
        let [served, refused, unknown] = self.served;
        println!(
            "chaos: {} faults, {} lost disks; {served} requests served, {refused} refused, \
             {unknown} unknown; {} transactions in histories",
            self.faults, self.added, self.transactions
        );
        let rounds = self.serving.len();
        let serving = of(&self.serving);
        println!("chaos: faults' end to first acknowledged write: {serving}");
        let down = || self.serving.iter().copied().filter(|time| *time > AT_ONCE);
        println!(
            "chaos: the same in the {} of {rounds} rounds that ended with no node serving: {}",
            down().count(),
            Percentiles::of(down())
        );
        let catching_up = of(&self.catching_up);
        println!("chaos: load's end to equal state: {catching_up}");
    }
}

fn of(times: &[Duration]) -> Percentiles {
    Percentiles::of(times.iter().copied())
}
