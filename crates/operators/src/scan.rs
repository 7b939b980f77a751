//! From a table, a fragment and rows to the pages that are read, and to chunks.
//!
//! Rows are cut into *pieces* wherever a page begins of any column group that the fragment needs, so
//! that a piece lies in one page of each. The pages' bounds say whether a row of the piece may pass
//! the filter. Rows of pieces that cannot pass are left out, and so are the pages, of all groups,
//! that no other piece needs.
//!
//! Pages are read in the order in which pieces need them.

use std::collections::VecDeque;
use std::sync::Arc;

use pages::{Bounds, PageAddress, PageEntry, Segment, Table};

use crate::filter::{Filter, FilterPlan};
use crate::fragment::Fragment;
use crate::program::ExprProgram;
use crate::prune::ColumnBounds;
use crate::task::{RowRange, refused};
use pages::task::TaskError;

/// Rows of a piece of a fragment without columns, which has no pages at which rows are cut.
const UNCUT: u64 = 1 << 20;

/// Returns all rows of a table.
#[must_use]
pub fn all(table: &Table) -> Vec<RowRange> {
    let rows = |segment: &Arc<Segment>| RowRange {
        segment: segment.id,
        from: 0,
        to: segment.rows,
    };
    table.segments.iter().map(rows).collect()
}

/// Returns those of a table's rows that may pass a fragment's filter, by the pages' bounds.
///
/// # Errors
/// Returns [`TaskError::Refused`] if the fragment does not fit the table, or the table has no such
/// rows.
pub fn prune(
    table: &Table,
    fragment: &Fragment,
    rows: &[RowRange],
) -> Result<Vec<RowRange>, TaskError> {
    check(table, fragment)?;
    let types = fragment.column_types(&table.schema);
    let types = types.map_err(refused)?;
    let Some(condition) = &fragment.filter else {
        return RowPieces::<&Table>::check(table, rows).map(|()| rows.to_vec());
    };
    let mut program = ExprProgram::new(types);
    let filter = Filter::new(condition, &mut program).map_err(refused)?;
    // Only the bounds of columns that the filter reads matter.
    let used = program.columns_used();
    let needed = NeededGroups::of(table, fragment, |column| used[column]);
    let mut rows_left: Vec<RowRange> = Vec::new();
    for piece in RowPieces::new(table, &needed, rows)? {
        let piece = piece?;
        let known: Vec<ColumnBounds<'_>> = (0..used.len())
            .map(|column| {
                let bounds = needed.bounds(table, &piece, column);
                bounds.map_or(ColumnBounds::NOTHING, ColumnBounds::of)
            })
            .collect();
        if let FilterPlan::NoRow = filter.plan(&program, &known) {
            continue;
        }
        match rows_left.last_mut() {
            Some(last) if last.segment == piece.rows.segment && last.to == piece.rows.from => {
                last.to = piece.rows.to;
            }
            _ => rows_left.push(piece.rows),
        }
    }
    Ok(rows_left)
}

fn check(table: &Table, fragment: &Fragment) -> Result<(), TaskError> {
    let checked = fragment.check_table(table);
    checked.map_err(refused)
}

/// Returns the pages that a fragment needs for these rows, in the order in which it needs them.
///
/// # Errors
/// Returns [`TaskError::Refused`] if the fragment does not fit the table, or the table has no such
/// rows.
pub fn pages(
    table: &Table,
    fragment: &Fragment,
    rows: &[RowRange],
) -> Result<Vec<PageAddress>, TaskError> {
    check(table, fragment)?;
    let needed = NeededGroups::of(table, fragment, |_| true);
    let mut changes = PageChanges::new(needed.groups.len());
    let mut addresses = Vec::new();
    for piece in RowPieces::new(table, &needed, rows)? {
        let piece = piece?;
        for group in changes.of(&piece) {
            addresses.push(needed.address(table, &piece, group));
        }
    }
    Ok(addresses)
}

/// Returns those of a table's rows that may pass a fragment's filter, in at most `parts` parts of
/// about the same size. Parts end where pages do, so that few pages are needed by two of them.
///
/// # Errors
/// Returns [`TaskError::Refused`] if the fragment does not fit the table.
pub fn split(
    table: &Table,
    fragment: &Fragment,
    parts: usize,
) -> Result<Vec<Vec<RowRange>>, TaskError> {
    let rows = prune(table, fragment, &all(table))?;
    let total: u64 = rows.iter().map(|rows| rows.to - rows.from).sum();
    let needed = NeededGroups::of(table, fragment, |_| true);
    let part = total.div_ceil(parts.max(1) as u64).max(1);
    let mut split: Vec<Vec<RowRange>> = vec![Vec::new()];
    let mut left = part;
    for mut rows in rows {
        while rows.to - rows.from > left {
            let cut = needed.cut(table, rows, rows.from + left);
            split
                .last_mut()
                .expect("there is one")
                .push(RowRange { to: cut, ..rows });
            rows.from = cut;
            if rows.from == rows.to {
                break;
            }
            split.push(Vec::new());
            left = part;
        }
        if rows.from < rows.to {
            left = left.saturating_sub(rows.to - rows.from).max(1);
            split.last_mut().expect("there is one").push(rows);
        }
    }
    split.retain(|rows| !rows.is_empty());
    Ok(split)
}

/// The column groups that a fragment needs.
#[derive(Clone, Debug)]
pub(crate) struct NeededGroups {
    /// The groups, as places in the table's list.
    pub(crate) groups: Vec<usize>,
    /// For each of the fragment's columns that is needed, the place of its group among `groups`, and
    /// its own place in the group.
    pub(crate) columns: Vec<Option<(usize, usize)>>,
}

impl NeededGroups {
    /// Returns the groups of the fragment's columns for which `is_needed` is true.
    pub(crate) fn of(
        table: &Table,
        fragment: &Fragment,
        is_needed: impl Fn(usize) -> bool,
    ) -> NeededGroups {
        let mut groups = Vec::new();
        let mut columns = Vec::new();
        for (at, &column) in fragment.columns.iter().enumerate() {
            columns.push(is_needed(at).then(|| {
                // In the layout of rows there is one group, with the records after its columns.
                let (group, place) = match table.schema.fields().get(column) {
                    Some(_) => table.group_of(column),
                    None => (0, column),
                };
                let known = groups.iter().position(|&known| known == group);
                let group = known.unwrap_or_else(|| {
                    groups.push(group);
                    groups.len() - 1
                });
                (group, place)
            }));
        }
        NeededGroups { groups, columns }
    }

    /// Returns the page of one of the groups in which a piece lies.
    pub(crate) fn entry<'t>(
        &self,
        table: &'t Table,
        piece: &RowPiece,
        group: usize,
    ) -> &'t PageEntry {
        &table.segments[piece.segment].groups[self.groups[group]][piece.pages[group]]
    }

    pub(crate) fn address(&self, table: &Table, piece: &RowPiece, group: usize) -> PageAddress {
        PageAddress {
            segment: piece.rows.segment,
            page: self.entry(table, piece, group).page,
        }
    }

    /// Returns what is known of a column's values in a piece.
    pub(crate) fn bounds<'t>(
        &self,
        table: &'t Table,
        piece: &RowPiece,
        column: usize,
    ) -> Option<&'t Bounds> {
        let (group, place) = self.columns[column]?;
        self.entry(table, piece, group).bounds.get(place)
    }

    /// Returns the row near `near` at which rows are best cut: where a page ends, of the group with
    /// the largest pages of which a part still has several.
    fn cut(&self, table: &Table, rows: RowRange, near: u64) -> u64 {
        /// The most rows between the cut and `near`, as a part of those before it.
        const SLACK: u64 = 16;
        let Some(segment) = table
            .segments
            .iter()
            .find(|segment| segment.id == rows.segment)
        else {
            return near;
        };
        let slack = (near - rows.from) / SLACK;
        let ends = self.groups.iter().filter_map(|&group| {
            let entries = &segment.groups[group];
            let at =
                entries.partition_point(|entry| entry.first_row + u64::from(entry.rows) < near);
            let entry = entries.get(at)?;
            let end = entry.first_row + u64::from(entry.rows);
            (end <= near + slack && end <= rows.to).then_some((entry.rows, end))
        });
        ends.max().map_or(near, |(_, end)| end)
    }
}

/// Rows that lie in one page of each group.
#[derive(Clone, Debug)]
pub(crate) struct RowPiece {
    /// The place of their segment in the table.
    pub(crate) segment: usize,
    /// The rows.
    pub(crate) rows: RowRange,
    /// For each needed group, the place of the page in the segment's list.
    pub(crate) pages: Vec<usize>,
}

/// Rows, cut into pieces.
pub(crate) struct RowPieces<T> {
    table: T,
    groups: Vec<usize>,
    rows: VecDeque<RowRange>,
    /// The next piece, and the end of its range.
    next: Option<(RowPiece, u64)>,
}

impl<T: std::ops::Deref<Target = Table>> RowPieces<T> {
    /// Cuts rows of a table.
    ///
    /// # Errors
    /// Returns [`TaskError::Refused`] if the table has no such rows.
    pub(crate) fn new(
        table: T,
        needed: &NeededGroups,
        rows: &[RowRange],
    ) -> Result<RowPieces<T>, TaskError> {
        RowPieces::<T>::check(&table, rows)?;
        Ok(RowPieces {
            groups: needed.groups.clone(),
            rows: rows.iter().copied().collect(),
            next: None,
            table,
        })
    }

    /// Checks that a table has these rows.
    pub(crate) fn check(table: &Table, rows: &[RowRange]) -> Result<(), TaskError> {
        for rows in rows {
            let segment = table
                .segments
                .iter()
                .find(|segment| segment.id == rows.segment);
            if segment.is_none_or(|segment| rows.from > rows.to || rows.to > segment.rows) {
                let (name, version) = (&table.name, table.version.0);
                let what = format!("version {version} of table {name} has no rows {rows:?}");
                return Err(TaskError::Refused(what));
            }
        }
        Ok(())
    }

    /// Returns the first piece of a range.
    fn begin(&self, rows: RowRange) -> Option<(RowPiece, u64)> {
        let segment = self
            .table
            .segments
            .iter()
            .position(|s| s.id == rows.segment)?;
        let page = |&group: &usize| {
            let entries = &self.table.segments[segment].groups[group];
            entries.partition_point(|entry| entry.first_row + u64::from(entry.rows) <= rows.from)
        };
        let pages = self.groups.iter().map(page).collect();
        Some((
            RowPiece {
                segment,
                rows,
                pages,
            },
            rows.to,
        ))
    }
}

impl<T: std::ops::Deref<Target = Table>> Iterator for RowPieces<T> {
    type Item = Result<RowPiece, TaskError>;

    fn next(&mut self) -> Option<Result<RowPiece, TaskError>> {
        let (mut piece, end) = match self.next.take() {
            Some(next) => next,
            None => loop {
                let rows = self.rows.pop_front()?;
                if rows.from < rows.to {
                    break self.begin(rows)?;
                }
            },
        };
        let segment = &self.table.segments[piece.segment];
        let mut to = match self.groups.is_empty() {
            true => end.min(piece.rows.from + UNCUT),
            false => end,
        };
        for (&group, &page) in self.groups.iter().zip(&piece.pages) {
            let entry = segment.groups[group].get(page);
            let covers = |entry: &&PageEntry| {
                let last = entry.first_row + u64::from(entry.rows);
                (entry.first_row..last).contains(&piece.rows.from)
            };
            let Some(entry) = entry.filter(covers) else {
                let what = format!("row {} is in no page of its table", piece.rows.from);
                return Some(Err(TaskError::Refused(what)));
            };
            to = to.min(entry.first_row + u64::from(entry.rows));
        }
        piece.rows.to = to;
        if to < end {
            let mut next = piece.clone();
            next.rows.from = to;
            for (&group, page) in self.groups.iter().zip(&mut next.pages) {
                let entry = &segment.groups[group][*page];
                *page += usize::from(entry.first_row + u64::from(entry.rows) == to);
            }
            self.next = Some((next, end));
        }
        Some(Ok(piece))
    }
}

/// Finds the pages that are new from piece to piece.
#[derive(Debug)]
pub(crate) struct PageChanges {
    /// For each group the segment and the page of the last piece.
    last: Vec<Option<(usize, usize)>>,
}

impl PageChanges {
    /// Begins before the first piece, with so many groups.
    pub(crate) fn new(groups: usize) -> PageChanges {
        PageChanges {
            last: vec![None; groups],
        }
    }

    /// Returns the groups of which a piece needs another page than the piece before it.
    pub(crate) fn of(&mut self, piece: &RowPiece) -> Vec<usize> {
        let mut changed = Vec::new();
        for (group, last) in self.last.iter_mut().enumerate() {
            let now = Some((piece.segment, piece.pages[group]));
            if *last != now {
                *last = now;
                changed.push(group);
            }
        }
        changed
    }
}
