//! Service times of the work that client, coordinator and participant do in a transaction.
//!
//! Each is a sum of a few terms, whose coefficients are fitted to the processor time that real
//! processes used for transactions of known shapes.
//!
//! | who | terms |
//! |---|---|
//! | client | once; for each server that it asks; for each key |
//! | coordinator | once; for each other participant; for each key of its own; for each key of others |
//! | participant | once; for each of its keys |
//! | only server | once; for each key |
//!
//! A read of RAMP has no coordinator: its client asks every participant. The work of a role in
//! several steps is one service time; its division into steps is not measured, and assumed to be
//! even.

use serde::{Deserialize, Serialize};

/// Terms of a [`Line`].
const TERMS: usize = 4;

/// A sum of terms, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Line(pub [f64; TERMS]);

impl Line {
    /// Returns the sum; `terms` says how often each term counts.
    #[must_use]
    pub fn of(&self, terms: [usize; TERMS]) -> f64 {
        let pairs = self.0.iter().zip(terms);
        pairs.map(|(cost, count)| cost * count as f64).sum()
    }

    /// Returns the line multiplied by a factor.
    #[must_use]
    pub fn times(&self, factor: f64) -> Line {
        Line(self.0.map(|cost| cost * factor))
    }

    /// Returns the coefficients that come closest to the measurements, in relation to them (least
    /// squares). None is negative: no work takes less time because there is more of it.
    #[must_use]
    pub fn fit(measured: &[([usize; TERMS], f64)]) -> Line {
        let mut used: Vec<usize> = (0..TERMS)
            .filter(|&term| measured.iter().any(|(terms, _)| terms[term] > 0))
            .collect();
        loop {
            let solved = solve(measured, &used);
            let worst = solved.iter().copied().enumerate();
            let worst = worst.min_by(|a, b| a.1.total_cmp(&b.1));
            match worst {
                Some((place, value)) if value < 0.0 => {
                    used.remove(place);
                }
                _ => {
                    let mut line = Line::default();
                    used.iter()
                        .zip(solved)
                        .for_each(|(&term, value)| line.0[term] = value);
                    return line;
                }
            }
        }
    }
}

/// Computes least squares over some of the terms: the normal equations, by elimination.
fn solve(measured: &[([usize; TERMS], f64)], used: &[usize]) -> Vec<f64> {
    let n = used.len();
    let mut rows = vec![vec![0.0; n + 1]; n];
    for (terms, time) in measured.iter().filter(|(_, time)| *time > 0.0) {
        for (row, &a) in rows.iter_mut().zip(used) {
            let weight = terms[a] as f64 / (time * time);
            for (cell, &b) in row.iter_mut().zip(used) {
                *cell += weight * terms[b] as f64;
            }
            row[n] += weight * time;
        }
    }
    for at in 0..n {
        let pivot = (at..n).max_by(|&a, &b| rows[a][at].abs().total_cmp(&rows[b][at].abs()));
        rows.swap(at, pivot.expect("there is a row"));
        let pivot = rows[at].clone();
        if pivot[at] == 0.0 {
            continue;
        }
        for (place, row) in rows.iter_mut().enumerate() {
            if place != at {
                let share = row[at] / pivot[at];
                let cells = row.iter_mut().zip(&pivot);
                cells.for_each(|(cell, above)| *cell -= share * above);
            }
        }
    }
    let value = |(at, row): (usize, &Vec<f64>)| match row[at] {
        0.0 => 0.0,
        scale => row[n] / scale,
    };
    rows.iter().enumerate().map(value).collect()
}

/// The service times of a kind of transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// The client's.
    pub client: Line,
    /// The coordinator's.
    pub coordinator: Line,
    /// Each other participant's.
    pub participant: Line,
    /// The server's if all keys are its own.
    pub single: Line,
}

impl Cost {
    /// Returns the client's time, which asks so many servers for so many keys.
    pub(super) fn client(&self, servers: usize, keys: usize) -> f64 {
        self.client.of([1, servers, keys, 0])
    }

    /// Returns the coordinator's time.
    pub(super) fn coordinator(&self, others: usize, own: usize, far: usize) -> f64 {
        self.coordinator.of([1, others, own, far])
    }

    /// Returns a participant's time.
    pub(super) fn participant(&self, keys: usize) -> f64 {
        self.participant.of([1, keys, 0, 0])
    }

    /// Returns the only server's time.
    pub(super) fn single(&self, keys: usize) -> f64 {
        self.single.of([1, keys, 0, 0])
    }
}

/// The service times of reads and writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServiceTimes {
    /// The costs of reads.
    pub read: Cost,
    /// The costs of writes.
    pub write: Cost,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coefficients_are_found_again() {
        let right = Line([20_000.0, 5_000.0, 700.0, 300.0]);
        let shapes = [
            [1, 1, 2, 1],
            [1, 3, 2, 3],
            [1, 1, 6, 5],
            [1, 2, 6, 2],
            [1, 3, 1, 9],
        ];
        let measured = shapes.map(|terms| (terms, right.of(terms)));
        let found = Line::fit(&measured);
        for (a, b) in found.0.iter().zip(right.0) {
            assert!((a - b).abs() < 1e-3 * b, "{found:?}");
        }
    }

    #[test]
    fn nothing_is_negative_and_what_never_counts_is_nothing() {
        // More keys seem to take less time: noise.
        let measured = [([1, 1, 0, 0], 1000.0), ([1, 5, 0, 0], 900.0)];
        let found = Line::fit(&measured);
        assert_eq!(found.0[1..], [0.0; 3]);
        assert!((900.0..1000.0).contains(&found.0[0]), "{found:?}");
        assert_eq!(Line::fit(&[]), Line::default());
    }
}
