//! The points that runs have reached. A protocol that passed without crashes, lost messages or
//! changes of leaders has not been tested, so that simulations require that such points are
//! reached.

use std::fmt;
use std::marker::PhantomData;

/// The points of a simulation that are worth reaching. [`points!`](crate::points) makes such a
/// type.
pub trait Point: Copy + PartialEq + fmt::Debug + 'static {
    /// All points, in the order of the enumeration, with their descriptions.
    const ALL: &'static [(Self, &'static str)];

    /// Returns the point's place in [`Point::ALL`].
    fn index(self) -> usize;
}

/// Makes an enumeration of points, each with a description: `points!(pub enum Point { Crashed => "a
/// node crashed" })`.
#[macro_export]
macro_rules! points {
    ($(#[$attribute:meta])* $visible:vis enum $name:ident { $($point:ident => $says:literal,)+ }) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        $visible enum $name {
            $(#[doc = $says] $point,)+
        }

        impl $crate::Point for $name {
            const ALL: &'static [(Self, &'static str)] = &[$((Self::$point, $says),)+];

            fn index(self) -> usize {
                self as usize
            }
        }
    };
}

/// The number of times that each point was reached by one run, or the number of runs that reached
/// it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coverage<P> {
    times: Vec<u64>,
    points: PhantomData<P>,
}

impl<P: Point> Coverage<P> {
    /// Counts a point once.
    pub fn hit(&mut self, point: P) {
        self.add(point, 1);
    }

    /// Counts a point `times` times.
    pub fn add(&mut self, point: P, times: u64) {
        self.times[point.index()] += times;
    }

    /// Returns the number of times that a point was reached.
    #[must_use]
    pub fn times(&self, point: P) -> u64 {
        self.times[point.index()]
    }

    /// Adds another run: each point that it has reached counts once.
    pub fn count(&mut self, run: &Coverage<P>) {
        for (sum, times) in self.times.iter_mut().zip(&run.times) {
            *sum += u64::from(*times > 0);
        }
    }

    /// Returns the points that were reached less often than this.
    pub fn rarer_than(&self, times: u64) -> impl Iterator<Item = P> + '_ {
        let all = P::ALL.iter().map(|(point, _)| *point);
        all.filter(move |point| self.times(*point) < times)
    }
}

impl<P: Point> Default for Coverage<P> {
    fn default() -> Coverage<P> {
        Coverage {
            times: vec![0; P::ALL.len()],
            points: PhantomData,
        }
    }
}

impl<P: Point> fmt::Display for Coverage<P> {
    /// Writes a line for each point.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (point, says) in P::ALL {
            writeln!(f, "{:>8}  {says}", self.times(*point))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    points!(
        /// Events of this test.
        enum Seen {
            Crash => "a node crashed",
            Loss => "a message was lost",
        }
    );

    #[test]
    fn many_runs_count_each_point_once_per_run() {
        let mut sum = Coverage::default();
        for crashes in [0, 1, 5] {
            let mut run = Coverage::default();
            run.add(Seen::Crash, crashes);
            sum.count(&run);
        }
        assert_eq!((sum.times(Seen::Crash), sum.times(Seen::Loss)), (2, 0));
        assert_eq!(sum.rarer_than(1).collect::<Vec<_>>(), [Seen::Loss]);
        assert_eq!(sum.rarer_than(3).count(), 2);
        sum.hit(Seen::Loss);
        assert_eq!(sum.rarer_than(1).count(), 0);
        let lines = "       2  a node crashed\n       1  a message was lost\n";
        assert_eq!(sum.to_string(), lines);
    }
}
