//! What the measurements of two binaries have in common: the sides, their turns, and the result.

/// One value for each binary.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sides<T> {
    pub(super) old: T,
    pub(super) new: T,
}

impl<T> Sides<T> {
    /// Returns the value of one side.
    pub(super) fn of(&mut self, side: Side) -> &mut T {
        match side {
            Side::Old => &mut self.old,
            Side::New => &mut self.new,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Old,
    New,
}

/// Returns the order of turns in a block. Blocks of even and odd numbers begin with different
/// sides.
pub(super) fn turns(block: u32) -> [Side; 4] {
    match block % 2 {
        0 => [Side::Old, Side::New, Side::New, Side::Old],
        _ => [Side::New, Side::Old, Side::Old, Side::New],
    }
}

/// The result of a round for a figure.
#[derive(Clone, Copy, Debug)]
pub(super) struct Observation {
    pub(super) value: Sides<f64>,
    /// The new value by the old one.
    pub(super) ratio: f64,
    /// Microseconds of processor time of all servers for one operation; not for commands.
    pub(super) cpu_us: Option<Sides<f64>>,
}

/// Returns the median; of an even number of values, the mean of the two in the middle.
pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[n / 2],
        n => f64::midpoint(values[n / 2 - 1], values[n / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_gives_both_sides_the_same_mean_moment() {
        for block in 0..2 {
            let moments = |side| -> usize { (0..4).filter(|at| turns(block)[*at] == side).sum() };
            assert_eq!(moments(Side::Old), moments(Side::New));
        }
        assert_ne!(turns(0), turns(1));
    }

    #[test]
    fn the_median_of_an_even_number_is_in_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
    }
}
