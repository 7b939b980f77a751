//! Verifies that a table is complete.

use std::sync::Arc;

use arrow_array::ArrayRef;

use super::files::SegmentFiles;
use super::state::OpenVersion;
use crate::bounds::Bounds;
use crate::format_error::FormatError;
use crate::page::Page;
use crate::table::{PageEntry, Segment, Table};
use crate::widen::widen;

/// The result of a check.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Pages that are right.
    pub pages: u64,
    /// Errors, and their places.
    pub wrong: Vec<String>,
}

/// Verifies every page of a version; see [`Tables::check`](super::Tables::check).
pub(super) fn check(version: &OpenVersion, progress: &mut dyn FnMut(u64)) -> Report {
    let OpenVersion { table, files } = version;
    let mut report = Report::default();
    let mut read = 0;
    for (segment, files) in table.segments.iter().zip(files) {
        for (group, entries) in segment.groups.iter().enumerate() {
            for entry in entries {
                match check_page(table, segment, files, group, entry) {
                    Ok(()) => report.pages += 1,
                    Err(FormatError(what)) => report.wrong.push(what),
                }
                read += 1;
                progress(read);
            }
        }
    }
    report
}

fn check_page(
    table: &Arc<Table>,
    segment: &Segment,
    files: &SegmentFiles,
    group: usize,
    entry: &PageEntry,
) -> Result<(), FormatError> {
    let location = files.location(entry.page);
    let address = files.address(entry.page);
    let place = || {
        let path = files.paths()[location.stripe].display();
        format!("{path}, at byte {}", location.offset)
    };
    let mut bytes = vec![0; table.page_size.bytes()];
    let read = files.read(entry.page, &mut bytes);
    read.map_err(|error| format!("{}: page {address} cannot be read: {error}", place()))?;
    let page = Page::of(table, bytes.into(), address);
    let page = page.map_err(|error| format!("{}: {error}", place()))?;
    let wrong = |what: String| Err(FormatError(format!("{}: page {address}: {what}", place())));
    let found = (page.group(), page.first_row(), page.rows());
    if found != (group, entry.first_row, entry.rows as usize) {
        let (rows, first, total) = (page.rows(), page.first_row(), segment.rows);
        return wrong(format!(
            "it has {rows} rows from {first} on, of {total}, of another group"
        ));
    }
    for (at, &column) in table.groups[group].iter().enumerate() {
        let field = table.schema.field(column);
        let array = page
            .column(at)
            .map_err(|error| format!("{}: {error}", place()))?;
        if let Err(what) = check_column(&array, &entry.bounds[at], table, column) {
            return wrong(format!("column {:?}: {what}", field.name()));
        }
    }
    Ok(())
}

fn check_column(
    array: &ArrayRef,
    bounds: &Bounds,
    table: &Table,
    column: usize,
) -> Result<(), FormatError> {
    let field = table.schema.field(column);
    let values = widen(array, field.data_type());
    let found = Bounds::of(&[values]);
    if found.nulls != bounds.nulls {
        return Err(format!("{} nulls, and not {}", found.nulls, bounds.nulls).into());
    }
    if found.nulls > 0 && !field.is_nullable() {
        return Err(format!("{} nulls, where none may be", found.nulls).into());
    }
    if !bounds.range.covers(&found.range) {
        return Err(format!("values {:?} are not within {:?}", found.range, bounds.range).into());
    }
    Ok(())
}
