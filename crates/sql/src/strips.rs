//! Divides a table's rows among a scan's partitions.
//!
//! The rows are cut into *strips*, each of which begins where a page begins, and strips are dealt to
//! partitions in turn. So a filter that lets through one part of a sorted table leaves work for all
//! partitions, while each of them reads runs of neighbouring pages.

use operators::RowRange;
use pages::{Segment, Table};

/// The number of rows below which another partition costs more than it saves.
const WORTH_A_PARTITION: u64 = 16_384;
/// Strips for each partition, unless they would become too short.
const STRIPS: u64 = 8;

/// Returns the rows of each partition: at most `partitions`, and at least one.
pub(crate) fn strips(
    table: &Table,
    column: Option<usize>,
    partitions: usize,
) -> Vec<Vec<RowRange>> {
    let rows = table.rows();
    let most = usize::try_from(rows / WORTH_A_PARTITION).unwrap_or(usize::MAX);
    let partitions = partitions.min(most).max(1);
    let mut dealt = vec![Vec::new(); partitions];
    let wanted = (rows / (partitions as u64 * STRIPS)).max(WORTH_A_PARTITION);
    let group = column.map_or(0, |column| table.group_of(column).0);
    let mut next = 0;
    for segment in &table.segments {
        for strip in cut(segment, group, wanted) {
            dealt[next % partitions].push(strip);
            next += 1;
        }
    }
    dealt
}

/// Cuts a segment at the beginnings of a group's pages, into strips of at least `wanted` rows,
/// except the last one.
fn cut(segment: &Segment, group: usize, wanted: u64) -> Vec<RowRange> {
    let mut strips = Vec::new();
    let mut from = 0;
    let pages = segment.groups.get(group).map_or(&[][..], Vec::as_slice);
    let ends = pages.iter().map(|page| page.first_row);
    for to in ends.chain([segment.rows]) {
        let is_last = to == segment.rows;
        if to > from && (is_last || to - from >= wanted) {
            strips.push(RowRange {
                segment: segment.id,
                from,
                to,
            });
            from = to;
        }
    }
    strips
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::paged;

    #[test]
    fn strips_are_all_rows_once_and_begin_with_pages() {
        for (rows, page, partitions) in [
            (0, 10, 4),
            (9, 10, 4),
            (100_000, 700, 1),
            (1_000_003, 999, 3),
        ] {
            let table = paged(rows, page);
            let dealt = strips(&table, Some(0), partitions);
            let mut all: Vec<_> = dealt.iter().flatten().copied().collect();
            all.sort_by_key(|strip| strip.from);
            let mut at = 0;
            for strip in all {
                assert_eq!(strip.from, at);
                assert_eq!(strip.from % u64::from(page), 0);
                assert!(strip.to > strip.from);
                at = strip.to;
            }
            assert_eq!(at, rows);
            assert!((1..=partitions).contains(&dealt.len()));
        }
    }

    #[test]
    fn a_part_of_the_table_is_work_for_all() {
        let dealt = strips(&paged(1_000_000, 1_000), Some(0), 4);
        assert_eq!(dealt.len(), 4);
        let within = |rows: &RowRange| rows.to.min(600_000).saturating_sub(rows.from.max(400_000));
        for partition in dealt {
            assert!(partition.iter().map(within).sum::<u64>() > 10_000);
        }
    }
}
