//! The estimate of a number of different elements, by the method of Otmar Ertl, "New cardinality estimation
//! algorithms for HyperLogLog sketches" (2017), algorithm 6.

use super::registers::{REGISTER_BITS, REGISTERS, Registers};

/// The greatest rank, without that of a hash whose other bits are all zero.
const RANKS: usize = 64 - REGISTER_BITS as usize;
/// 1 / (2 ln 2).
const ALPHA: f64 = 0.721_347_520_444_481_7;

/// Returns the estimate.
pub(super) fn estimate(registers: &Registers) -> u64 {
    let mut counts = [0u32; 1 << 6];
    registers
        .iter()
        .for_each(|value| counts[usize::from(*value)] += 1);
    let all = REGISTERS as f64;
    let mut sum = all * tau((all - f64::from(counts[RANKS + 1])) / all);
    for count in counts[1..=RANKS].iter().rev() {
        sum = (sum + f64::from(*count)) * 0.5;
    }
    sum += all * sigma(f64::from(counts[0]) / all);
    (ALPHA * all * all / sum).round() as u64
}

/// Corrects for registers with the value 0; `part` of all registers have it.
fn sigma(part: f64) -> f64 {
    if part == 1.0 {
        return f64::INFINITY;
    }
    let (mut power, mut weight, mut sum) = (part, 1.0, part);
    loop {
        power *= power;
        let before = sum;
        sum += power * weight;
        weight += weight;
        if sum == before {
            return sum;
        }
    }
}

/// Corrects for registers with the greatest value; `part` of all registers have a lower one.
fn tau(part: f64) -> f64 {
    if part == 0.0 || part == 1.0 {
        return 0.0;
    }
    let (mut root, mut weight, mut sum) = (part, 1.0, 1.0 - part);
    loop {
        root = root.sqrt();
        let before = sum;
        weight *= 0.5;
        sum -= (1.0 - root).powi(2) * weight;
        if sum == before {
            return sum / 3.0;
        }
    }
}
