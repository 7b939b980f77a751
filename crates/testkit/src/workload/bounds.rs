//! The bounds of a number of whose changes some have an unknown outcome.

use history::Value;

use super::Ended;

/// See the [module](self).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    least: Value,
    most: Value,
}

impl Bounds {
    /// Returns bounds that allow exactly this value.
    #[must_use]
    pub fn exactly(value: Value) -> Bounds {
        Bounds {
            least: value,
            most: value,
        }
    }

    /// Takes the outcome of a transaction that changes the number by `delta`.
    pub fn change(&mut self, delta: Value, ended: &Ended) {
        let (is_done, is_possible) = match ended {
            Ended::Committed(_) => (true, true),
            Ended::Unknown => (false, true),
            Ended::Aborted => (false, false),
        };
        if is_done || is_possible && delta < 0 {
            self.least += delta;
        }
        if is_done || is_possible && delta > 0 {
            self.most += delta;
        }
    }

    /// Adds the changes that another client made.
    pub fn merge(&mut self, changes: Bounds) {
        self.least += changes.least;
        self.most += changes.most;
    }

    /// Returns a complaint if the number `name` cannot be `value`.
    #[must_use]
    pub fn judge(self, name: &str, value: Value) -> Option<String> {
        let Bounds { least, most } = self;
        let lies = (least..=most).contains(&value);
        (!lies).then(|| format!("{name} is {value}, and should lie between {least} and {most}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_lie_between_acknowledged_changes_and_those_that_were_sent() {
        let mut bounds = Bounds::exactly(10);
        bounds.change(5, &Ended::Committed(Vec::new()));
        bounds.change(2, &Ended::Unknown);
        bounds.change(-1, &Ended::Unknown);
        bounds.change(100, &Ended::Aborted);
        let is_right = |value| bounds.judge("it", value).is_none();
        assert_eq!([13, 14, 17, 18].map(is_right), [false, true, true, false]);
        assert_eq!(
            bounds.judge("it", 18).as_deref(),
            Some("it is 18, and should lie between 14 and 17")
        );
    }
}
