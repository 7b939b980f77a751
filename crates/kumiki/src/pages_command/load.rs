//! Loads tables.

use std::time::Instant;

use arrow_array::RecordBatch;
use base::size::Size;
use pages::tpch::TpchTable;
use pages::{Groups, Layout, LoadOptions, Mode, Progress, Table, TablesError, sort};

use super::place::Depot;
use super::progress::Told;
use super::{Into, LayoutArg, Tpch};

pub(super) fn tpch(options: &Tpch) -> Result<(), String> {
    let wanted = wanted(&options.tables)?;
    if let Some(column) = &options.into.sort_by {
        let known = |table: &TpchTable| table.schema().index_of(column).is_ok();
        if !wanted.iter().any(known) {
            return Err(format!(
                "no table that is loaded has a column {column:?} to sort by"
            ));
        }
    }
    let tables = options.into.place.open()?;
    if mode(&options.into) == Mode::Create {
        // Better now than after an hour of loading others.
        let there = tables.list()?;
        let is_there = |name| there.iter().any(|table| table.name == name);
        let there = wanted.iter().find(|table| is_there(table.name()));
        if let Some(there) = there {
            let exists = TablesError::Exists(there.name().to_owned());
            return Err(format!("{exists} (--replace, --append)"));
        }
    }
    for table in wanted {
        let begun = Instant::now();
        let (loaded, bytes) = load(&tables, table, options)?;
        println!(
            "{}: {} rows in all, {} written, version {}, {:.1} s",
            loaded.name,
            loaded.rows(),
            Size(bytes),
            loaded.version.0,
            begun.elapsed().as_secs_f64()
        );
    }
    Ok(())
}

/// Tables in the order in which they were named; all, if none was.
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

fn mode(into: &Into) -> Mode {
    match into {
        Into { replace: true, .. } => Mode::Replace,
        Into { append: true, .. } => Mode::Append,
        _ => Mode::Create,
    }
}

fn load(
    tables: &Depot,
    table: TpchTable,
    options: &Tpch,
) -> Result<(std::sync::Arc<Table>, u64), String> {
    let (into, schema) = (&options.into, table.schema());
    let names = schema.fields().iter().map(|field| field.name().clone());
    let widths = names.filter_map(|name| Some((name.clone(), table.text_width(&name)?)));
    let shape = LoadOptions {
        page_size: into.page_size,
        layout: match into.layout {
            LayoutArg::Columns => Layout::Columns,
            LayoutArg::Rows => Layout::Rows,
        },
        groups: of_table(&into.groups, table),
        text_widths: widths.collect(),
        forms: table.forms(),
    };
    let mode = match mode(into) {
        Mode::Append if tables.table(table.name()).is_err() => Mode::Create,
        mode => mode,
    };
    let mut load = tables.load(table.name(), &schema, &shape, mode)?;
    let mut told = Told::new(format!("{}: rows", table.name()));
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
    let loaded = load.commit()?;
    let bytes = loaded.segments.last().map_or(0, |segment| {
        u64::from(segment.pages) * loaded.page_size.bytes() as u64
    });
    Ok((loaded, bytes))
}

/// Groups that are named have columns of any of the tables; each table takes its own.
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

/// `each`, `all`, or names.
pub(super) fn parse_groups(text: &str) -> Result<Groups, String> {
    match text {
        "each" => return Ok(Groups::OneEach),
        "all" => return Ok(Groups::Together),
        _ => {}
    }
    let groups = text.split('/').map(|names| {
        let names = names.split(',').map(|name| name.trim().to_owned());
        names.collect::<Vec<String>>()
    });
    let groups: Vec<Vec<String>> = groups.collect();
    if groups.iter().flatten().any(String::is_empty) {
        return Err("a name is empty: write names such as a,b/c,d, or each, or all".to_owned());
    }
    Ok(Groups::Given(groups))
}
