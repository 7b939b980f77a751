//! Sums over the rounds of a run, and how long things took.

use std::time::Duration;

use super::life::Report;

/// Who is answered so soon was served already.
const AT_ONCE: Duration = Duration::from_millis(50);

/// See the module's description.
#[derive(Debug, Default)]
pub struct Sum {
    served: [u64; 3],
    transactions: usize,
    faults: usize,
    added: usize,
    serving: Vec<Duration>,
    catching_up: Vec<Duration>,
}

impl Sum {
    /// Takes in a round.
    pub fn add(&mut self, report: &Report) {
        for (sum, one) in self.served.iter_mut().zip(report.served) {
            *sum += one;
        }
        self.transactions += report.transactions;
        self.faults += report.faults;
        self.added += report.added;
        self.serving.push(report.serving);
        self.catching_up.push(report.catching_up);
    }

    /// Prints what was measured.
    pub fn tell(&mut self) {
        let [served, refused, unknown] = self.served;
        println!(
            "chaos: {} faults, {} lost disks; {served} requests served, {refused} refused, \
             {unknown} unknown; {} transactions in histories",
            self.faults, self.added, self.transactions
        );
        let rounds = self.serving.len();
        let serving = spread(&mut self.serving);
        println!("chaos: faults' end to first acknowledged write: {serving}");
        self.serving.retain(|time| *time > AT_ONCE);
        let (down, serving) = (self.serving.len(), spread(&mut self.serving));
        println!(
            "chaos: the same in the {down} of {rounds} rounds that ended with nobody serving: {serving}"
        );
        println!(
            "chaos: load's end to equal state: {}",
            spread(&mut self.catching_up)
        );
    }
}

/// Median, 99th percentile and maximum.
fn spread(times: &mut [Duration]) -> String {
    times.sort_unstable();
    let at = |share: f64| {
        let place = (times.len() as f64 * share).ceil() as usize;
        let time = times.get(place.saturating_sub(1)).copied();
        time.unwrap_or_default().as_millis()
    };
    let (median, p99, most) = (at(0.5), at(0.99), at(1.0));
    format!("median {median} ms, p99 {p99} ms, max {most} ms")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_what_was_measured() {
        let mut times: Vec<_> = (1..=100).rev().map(Duration::from_millis).collect();
        assert_eq!(spread(&mut times), "median 50 ms, p99 99 ms, max 100 ms");
        assert_eq!(spread(&mut []), "median 0 ms, p99 0 ms, max 0 ms");
    }
}
