//! Rows by their groups, in the form in which they are added up fastest.

/// The most groups by which rows are sorted.
const FEW: usize = 32;

/// Which rows of a vector belong to which groups.
#[derive(Debug)]
pub(crate) enum GroupAssignment {
    /// All rows belong to the only group; holds their number.
    One(usize),
    /// Rows sorted by group, and the place at which each group's rows end.
    Few {
        /// The rows' places in the vector.
        order: Vec<u32>,
        /// For each group, the place at which its rows end.
        ends: Vec<usize>,
    },
    /// Each row's group.
    Many(Vec<u32>),
}

impl GroupAssignment {
    /// Makes an assignment of rows to these groups, of which there are `groups`.
    pub(crate) fn new(of: Vec<u32>, groups: usize) -> GroupAssignment {
        if groups == 1 {
            return GroupAssignment::One(of.len());
        }
        if groups > FEW || of.len() < 4 * groups {
            return GroupAssignment::Many(of);
        }
        let (order, ends) = sort(&of, groups);
        GroupAssignment::Few { order, ends }
    }

    /// Returns the number of rows.
    pub(crate) fn len(&self) -> usize {
        match self {
            GroupAssignment::One(rows) => *rows,
            GroupAssignment::Few { order, .. } => order.len(),
            GroupAssignment::Many(groups) => groups.len(),
        }
    }

    /// Returns the assignment of the rows at these places alone, which are numbered anew.
    pub(crate) fn at(&self, places: &[u32]) -> GroupAssignment {
        match self {
            GroupAssignment::One(_) => GroupAssignment::One(places.len()),
            GroupAssignment::Few { order, ends } => {
                let mut of = vec![0; order.len()];
                let mut from = 0;
                for (group, &end) in ends.iter().enumerate() {
                    order[from..end]
                        .iter()
                        .for_each(|&row| of[row as usize] = group as u32);
                    from = end;
                }
                GroupAssignment::new(
                    places.iter().map(|&at| of[at as usize]).collect(),
                    ends.len(),
                )
            }
            GroupAssignment::Many(of) => {
                GroupAssignment::Many(places.iter().map(|&at| of[at as usize]).collect())
            }
        }
    }

    /// Folds the values of each group's rows into the group's state: begins with what `start` makes
    /// of the state, takes a `step` for each value, and stores the result with `end`.
    #[inline]
    pub(crate) fn fold<T, S, A>(
        &self,
        values: &[T],
        states: &mut [S],
        start: impl Fn(&S) -> A,
        step: impl Fn(A, &T) -> A,
        end: impl Fn(&mut S, A),
    ) {
        match self {
            GroupAssignment::One(rows) => {
                let sum = values[..*rows].iter().fold(start(&states[0]), &step);
                end(&mut states[0], sum);
            }
            GroupAssignment::Few { order, ends } => {
                let mut from = 0;
                for (state, &end_at) in states.iter_mut().zip(ends) {
                    if from < end_at {
                        let rows = &order[from..end_at];
                        let sum = rows
                            .iter()
                            .fold(start(state), |sum, &row| step(sum, &values[row as usize]));
                        end(state, sum);
                    }
                    from = end_at;
                }
            }
            GroupAssignment::Many(of) => {
                for (value, &group) in values.iter().zip(of) {
                    let state = &mut states[group as usize];
                    let sum = step(start(state), value);
                    end(state, sum);
                }
            }
        }
    }
}

/// Sorts rows by group. It counts both halves at a time, because a counter that was just increased
/// takes a while until it can be read again.
fn sort(of: &[u32], groups: usize) -> (Vec<u32>, Vec<usize>) {
    let half = of.len() / 2;
    let (front, back) = of.split_at(half);
    let mut counts = [[0u32; FEW]; 2];
    for (&a, &b) in front.iter().zip(back) {
        counts[0][a as usize % FEW] += 1;
        counts[1][b as usize % FEW] += 1;
    }
    if back.len() > half {
        counts[1][back[half] as usize % FEW] += 1;
    }
    let mut ends = Vec::with_capacity(groups);
    let mut next = [[0u32; FEW]; 2];
    let mut end = 0;
    for group in 0..groups {
        next[0][group] = end;
        next[1][group] = end + counts[0][group];
        end += counts[0][group] + counts[1][group];
        ends.push(end as usize);
    }
    let mut order = vec![0u32; of.len()];
    let mut put = |which: usize, group: u32, row: usize| {
        let at = &mut next[which][group as usize % FEW];
        order[*at as usize] = row as u32;
        *at += 1;
    };
    for (at, (&a, &b)) in front.iter().zip(back).enumerate() {
        put(0, a, at);
        put(1, b, half + at);
    }
    if back.len() > half {
        put(1, back[half], of.len() - 1);
    }
    (order, ends)
}

#[cfg(test)]
mod tests {
    use super::{FEW, GroupAssignment};

    #[test]
    fn sorted_rows_are_those_of_their_groups() {
        let mut random = fastrand::Rng::with_seed(1);
        for rows in [0, 1, 2, 7, 200, 2048] {
            for groups in [1, 2, 5, FEW, FEW + 1] {
                let of: Vec<u32> = (0..rows).map(|_| random.u32(0..groups as u32)).collect();
                let assignment = GroupAssignment::new(of.clone(), groups);
                assert_eq!(assignment.len(), rows);
                let values: Vec<usize> = (0..rows).collect();
                let mut found = vec![Vec::new(); groups];
                let push = |mut rows: Vec<usize>, &row: &usize| {
                    rows.push(row);
                    rows
                };
                assignment.fold(&values, &mut found, Vec::clone, push, |all, rows| {
                    *all = rows
                });
                for (group, mut rows) in found.into_iter().enumerate() {
                    rows.sort_unstable();
                    let expect: Vec<usize> = (0..of.len())
                        .filter(|&row| of[row] as usize == group)
                        .collect();
                    assert_eq!(rows, expect);
                }
            }
        }
    }
}
