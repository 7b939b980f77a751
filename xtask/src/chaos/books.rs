//! Books of counters and accounts, which a history cannot hold: what an increment of unknown outcome
//! wrote is not known.
//!
//! Of each counter must hold:
//! 1. Its value lies between the increments that were acknowledged and these with those of unknown
//!    outcome.
//! 2. No two increments were answered with the same value.
//! 3. An increment, or a read, that began after another one had been answered shows no less; an
//!    increment shows more.
//!
//! Of accounts must hold:
//! 1. Their sum is zero whenever all are read in one transaction.
//! 2. Each one's balance is what acknowledged transfers made of it, and some of unknown outcome.
//!
//! What is unknown may take effect in a later round still, so that values are judged over all rounds
//! of a partition, and answers over one.

use std::collections::BTreeMap;

/// What a client did to a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// Which counter.
    pub counter: usize,
    /// When it was sent, on the clock of all clients.
    pub start: u64,
    /// When the answer was there.
    pub end: u64,
    /// What is known.
    pub known: Known,
}

/// What is known of something that was done to a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// It was incremented to this.
    Incremented(i64),
    /// It may have been incremented.
    Perhaps,
    /// It was read.
    Read(i64),
}

/// A transfer between accounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Who gives.
    pub from: usize,
    /// Who gets.
    pub to: usize,
    /// How much.
    pub amount: i64,
    /// Whether it was acknowledged; else it is not known.
    pub is_known: bool,
}

/// What one client, or all of a round, saw.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// Counters.
    pub counts: Vec<Count>,
    /// Transfers that were not refused.
    pub transfers: Vec<Transfer>,
    /// All accounts, read in one transaction.
    pub audits: Vec<Vec<i64>>,
}

/// The books of a partition.
#[derive(Clone, Debug, Default)]
pub struct Books {
    counters: BTreeMap<usize, Bounds>,
    accounts: BTreeMap<usize, Bounds>,
}

/// Between which values something lies.
#[derive(Clone, Copy, Debug, Default)]
struct Bounds {
    least: i64,
    most: i64,
}

impl Bounds {
    fn add(&mut self, delta: i64, is_known: bool) {
        if is_known || delta < 0 {
            self.least += delta;
        }
        if is_known || delta > 0 {
            self.most += delta;
        }
    }

    fn judge(self, name: &str, value: i64) -> Option<String> {
        let Bounds { least, most } = self;
        let lies = (least..=most).contains(&value);
        (!lies).then(|| format!("{name} is {value}, and should lie between {least} and {most}"))
    }
}

impl Page {
    /// Takes in what another client saw.
    pub fn merge(&mut self, mut other: Page) {
        self.counts.append(&mut other.counts);
        self.transfers.append(&mut other.transfers);
        self.audits.append(&mut other.audits);
    }
}

impl Books {
    /// Enters a round, and complains about its answers.
    pub fn enter(&mut self, page: &Page) -> Vec<String> {
        for count in &page.counts {
            let bounds = self.counters.entry(count.counter).or_default();
            match count.known {
                Known::Incremented(_) => bounds.add(1, true),
                Known::Perhaps => bounds.add(1, false),
                Known::Read(_) => {}
            }
        }
        for transfer in &page.transfers {
            let Transfer {
                from, to, amount, ..
            } = *transfer;
            let mut add = |account, delta| {
                let bounds = self.accounts.entry(account).or_default();
                bounds.add(delta, transfer.is_known);
            };
            add(from, -amount);
            add(to, amount);
        }
        let mut complaints = answers(&page.counts);
        let sums = page.audits.iter().map(|all| (all.iter().sum::<i64>(), all));
        let odd = sums.filter(|(sum, _)| *sum != 0);
        complaints.extend(odd.map(|(sum, all)| format!("the accounts' sum was {sum}: {all:?}")));
        complaints
    }

    /// Complains about the values that were found in the end.
    #[must_use]
    pub fn judge(&self, counters: &[i64], accounts: &[i64]) -> Vec<String> {
        let of = |books: &BTreeMap<usize, Bounds>, index| books.get(&index).copied();
        let count = |(index, value): (usize, &i64)| {
            let bounds = of(&self.counters, index).unwrap_or_default();
            bounds.judge(&format!("counter {index}"), *value)
        };
        let account = |(index, value): (usize, &i64)| {
            let bounds = of(&self.accounts, index).unwrap_or_default();
            bounds.judge(&format!("account {index}"), *value)
        };
        let mut complaints: Vec<String> = counters.iter().enumerate().filter_map(count).collect();
        complaints.extend(accounts.iter().enumerate().filter_map(account));
        let sum: i64 = accounts.iter().sum();
        if sum != 0 {
            complaints.push(format!("the accounts' sum is {sum}: {accounts:?}"));
        }
        complaints
    }
}

/// Rules 2 and 3 of counters.
fn answers(counts: &[Count]) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut by_counter: BTreeMap<usize, Vec<&Count>> = BTreeMap::new();
    for count in counts.iter().filter(|count| count.known != Known::Perhaps) {
        by_counter.entry(count.counter).or_default().push(count);
    }
    for (counter, mut counts) in by_counter {
        let mut taken = std::collections::HashSet::new();
        for count in &counts {
            if let Known::Incremented(value) = count.known
                && !taken.insert(value)
            {
                complaints.push(format!(
                    "counter {counter} was incremented to {value} twice"
                ));
            }
        }
        counts.sort_by_key(|count| count.start);
        complaints.extend(backwards(counter, &counts));
    }
    complaints
}

/// The first answer of each kind that shows less than one before it did. `counts` are by start.
fn backwards(counter: usize, counts: &[&Count]) -> Option<String> {
    let mut ended: Vec<(u64, i64)> = counts.iter().map(|one| (one.end, shown(one))).collect();
    ended.sort_unstable();
    let mut ended = ended.into_iter().peekable();
    let mut most = i64::MIN;
    for count in counts {
        while let Some((_, value)) = ended.next_if(|(end, _)| *end < count.start) {
            most = most.max(value);
        }
        let least = match count.known {
            Known::Incremented(_) => most.saturating_add(1),
            _ => most,
        };
        if shown(count) < least && most > i64::MIN {
            return Some(format!(
                "counter {counter} had been {most} before {:?} began at {} ns",
                count.known, count.start
            ));
        }
    }
    None
}

fn shown(count: &Count) -> i64 {
    match count.known {
        Known::Incremented(value) | Known::Read(value) => value,
        Known::Perhaps => i64::MIN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Known::{Incremented, Perhaps, Read};

    fn count(start: u64, end: u64, known: Known) -> Count {
        Count {
            counter: 0,
            start,
            end,
            known,
        }
    }

    fn transfer(amount: i64, is_known: bool) -> Transfer {
        Transfer {
            from: 0,
            to: 1,
            amount,
            is_known,
        }
    }

    fn said(counts: &[Count]) -> String {
        answers(counts).join("; ")
    }

    #[test]
    fn counters_that_never_go_back_are_right() {
        let fine = [
            count(0, 10, Incremented(1)),
            count(5, 20, Incremented(3)),
            count(6, 12, Incremented(2)),
            count(11, 13, Read(2)),
            count(12, 90, Perhaps),
            count(21, 30, Read(3)),
            count(31, 40, Incremented(5)),
        ];
        assert_eq!(said(&fine), "");
    }

    #[test]
    fn a_stale_read_a_lost_increment_and_one_that_was_made_twice_are_found() {
        let stale = [count(0, 10, Incremented(7)), count(11, 12, Read(6))];
        assert!(said(&stale).contains("had been 7"), "{}", said(&stale));
        let lost = [count(0, 10, Incremented(7)), count(11, 12, Incremented(7))];
        assert!(said(&lost).contains("to 7 twice"), "{}", said(&lost));
        let after_read = [count(0, 10, Read(7)), count(11, 12, Incremented(7))];
        assert!(said(&after_read).contains("had been 7"));
        let together = [count(0, 11, Incremented(7)), count(11, 12, Read(6))];
        assert_eq!(
            said(&together),
            "",
            "neither ended before the other one began"
        );
    }

    #[test]
    fn values_lie_between_what_was_acknowledged_and_what_was_sent() {
        let mut books = Books::default();
        let page = Page {
            counts: vec![count(0, 1, Incremented(1)), count(0, 1, Perhaps)],
            transfers: vec![transfer(5, true), transfer(2, false)],
            audits: vec![vec![0, 0], vec![-5, 5]],
        };
        assert!(books.enter(&page).is_empty());
        for (value, balance) in [(1, 5), (2, 7)] {
            assert!(books.judge(&[value], &[-balance, balance]).is_empty());
        }
        let complaints = |value, one, other| books.judge(&[value], &[one, other]).join("; ");
        assert!(complaints(0, -5, 5).contains("counter 0 is 0"));
        assert!(complaints(3, -5, 5).contains("counter 0 is 3"));
        assert!(complaints(1, -4, 4).contains("account 0 is -4"));
        assert!(complaints(1, -8, 8).contains("account 1 is 8"));
        assert!(complaints(1, -5, 7).contains("sum is 2"));
        // What was unknown may take effect in the next round.
        assert!(books.enter(&Page::default()).is_empty());
        assert!(books.judge(&[2], &[-7, 7]).is_empty());
        let torn = Page {
            audits: vec![vec![-5, 0]],
            ..Page::default()
        };
        assert!(books.enter(&torn)[0].contains("sum was -5"));
    }
}
