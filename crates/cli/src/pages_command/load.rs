//! Loads tables.

use std::sync::Arc;
use std::time::Instant;

use arrow_array::RecordBatch;
use base::size::Size;
use pages::{Error, Groups, LoadOptions, Mode, Progress, Table, TableStore, sort};
use tpch::TpchTable;

use super::options::{LoadTarget, TpchOptions};
use crate::output::say_line;
use crate::progress::ProgressLine;
use crate::signals::StopRequest;

pub(super) fn tpch(options: &TpchOptions, stop: &StopRequest) -> Result<(), String> {
    let wanted = wanted(&options.tables)?;
    have_columns(&wanted, &options.into)?;
    let depot = stop.of(options.into.place.open()?);
    // An early error is better than one after an hour of loading other tables.
    for table in &wanted {
        check_new(&*depot, table.name(), &options.into)?;
    }
    for table in wanted {
        let begun = Instant::now();
        let loaded = load(&*depot, table, options)?;
        tell(&loaded, begun);
    }
    Ok(())
}

/// Returns an error if a table exists that must be a new one.
pub(super) fn check_new(
    depot: &dyn TableStore,
    name: &str,
    into: &LoadTarget,
) -> Result<(), String> {
    if into.mode() != Mode::Create {
        return Ok(());
    }
    match depot.table(name).map_err(|error| error.to_string())? {
        None => Ok(()),
        Some(_) => {
            let exists = Error::Exists(name.to_owned());
            Err(format!("{exists} (--replace, --append)"))
        }
    }
}

/// Prints what was loaded.
pub(super) fn tell(loaded: &Table, begun: Instant) {
    let written = loaded.segments.last().map_or(0, |segment| {
        u64::from(segment.pages) * loaded.page_size.bytes() as u64
    });
    say_line!(
        "{}: {} rows in all, {} written, version {}, {:.1} s",
        loaded.name,
        loaded.rows(),
        Size(written),
        loaded.version.0,
        begun.elapsed().as_secs_f64()
    );
}

/// Returns tables in the order in which they were named; all, if none was.
fn wanted(names: &[String]) -> Result<Vec<TpchTable>, String> {
    if names.is_empty() {
        return Ok(TpchTable::ALL.to_vec());
    }
    let tables = names.iter().map(|name| {
        TpchTable::named(name).ok_or_else(|| {
            let all = TpchTable::ALL.map(TpchTable::name).join(", ");
            format!("TPC-H has no table {name:?}; it has: {all}")
        })
    });
    tables.collect()
}

/// Refuses columns that none of the tables has: they are misspelt.
fn have_columns(tables: &[TpchTable], into: &LoadTarget) -> Result<(), String> {
    let schemas: Vec<_> = tables.iter().map(|table| table.schema()).collect();
    let grouped: &[Vec<String>] = match &into.groups {
        Groups::Given(given) => given,
        Groups::OneEach | Groups::Together => &[],
    };
    let named = grouped.iter().flatten().chain(&into.sort_by);
    let is_unknown = |name: &&String| schemas.iter().all(|schema| schema.index_of(name).is_err());
    match named.into_iter().find(is_unknown) {
        None => Ok(()),
        Some(name) => {
            let tables: Vec<_> = tables.iter().map(|table| table.name()).collect();
            let tables = tables.join(", ");
            Err(format!(
                "there is no column {name:?} in {tables}: correct --groups or --sort-by"
            ))
        }
    }
}

fn load(
    depot: &dyn TableStore,
    table: TpchTable,
    options: &TpchOptions,
) -> Result<Arc<Table>, String> {
    let (into, schema) = (&options.into, table.schema());
    let names = schema.fields().iter().map(|field| field.name().clone());
    let widths = names.filter_map(|name| Some((name.clone(), table.text_width(&name)?)));
    let shape = LoadOptions {
        groups: of_table(&into.groups, table),
        text_widths: widths.collect(),
        forms: table.forms(),
        ..into.options()
    };
    let says = |error: Error| error.to_string();
    let mode = match into.mode() {
        Mode::Append if depot.table(table.name()).map_err(says)?.is_none() => Mode::Create,
        mode => mode,
    };
    let load = depot.load(table.name(), &schema, &shape, mode);
    let mut load = load.map_err(says)?;
    let mut told = ProgressLine::new(format!("{}: rows", table.name()));
    let total = table.rows(options.sf);
    let rows = table.batches(options.sf, options.threads.into());
    let by = into
        .sort_by
        .as_ref()
        .and_then(|column| schema.index_of(column).ok());
    let rows: Box<dyn Iterator<Item = RecordBatch>> = match by {
        None => Box::new(rows),
        Some(column) => Box::new(sort::sorted(rows.collect(), column)),
    };
    for batch in rows {
        let pushed = load.push(&batch);
        let name = table.name();
        pushed.map_err(|error| format!("{error}; nothing of this load of {name} is kept"))?;
        told.done(load.rows(), Some(total));
    }
    load.commit().map_err(says)
}

/// Groups on the command line may have columns of any of the tables; each table takes its own.
fn of_table(groups: &Groups, table: TpchTable) -> Groups {
    let Groups::Given(given) = groups else {
        return groups.clone();
    };
    let schema = table.schema();
    let own = given.iter().map(|names| {
        let names = names.iter().filter(|name| schema.index_of(name).is_ok());
        names.cloned().collect::<Vec<String>>()
    });
    Groups::Given(own.filter(|names| !names.is_empty()).collect())
}
