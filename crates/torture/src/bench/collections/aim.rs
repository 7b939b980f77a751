//! The aims of the figures.

/// What a figure should be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Aim {
    AtLeast(f64),
    AtMost(f64),
}

impl Aim {
    /// Returns the aim in words, and whether `value` meets it.
    pub(super) fn of(self, value: f64) -> String {
        let (sign, bound, met) = match self {
            Aim::AtLeast(bound) => (">=", bound, value >= bound),
            Aim::AtMost(bound) => ("<=", bound, value <= bound),
        };
        format!("{sign} {bound} {}", if met { "met" } else { "missed" })
    }
}
