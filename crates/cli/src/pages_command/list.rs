//! Lists tables.

use base::size::Size;
use pages::{Error, Layout, Table};
use serde_json::{Value, json};

use super::options::ListOptions;
use crate::output::{say, say_line};

pub(super) fn list(options: &ListOptions) -> Result<(), String> {
    let (list, damaged) = if options.place.nodes.is_empty() {
        let tables = options.place.open_read_only()?;
        (tables.list(), tables.damaged())
    } else {
        let depot = options.place.open()?;
        let says = |error: Error| error.to_string();
        (depot.list().map_err(says)?, depot.damaged().map_err(says)?)
    };
    if let Some(name) = &options.table {
        let table = find(&list, &damaged, name)?;
        if options.json {
            print_json(&json_of(table))?;
        } else {
            say!("{}", details(table));
        }
        return Ok(());
    }
    if options.json {
        let damaged = damaged
            .iter()
            .map(|(name, what)| json!({"name": name, "damage": what}));
        let list: Vec<Value> = list
            .iter()
            .map(|table| json_of(table))
            .chain(damaged)
            .collect();
        return print_json(&Value::Array(list));
    }
    say_line!(
        "{:<24} {:>12} {:>9} {:>10} {:>9} {:>7} {:>8} {:>7}",
        "table",
        "rows",
        "pages",
        "bytes",
        "page",
        "groups",
        "segments",
        "version"
    );
    for table in list {
        say_line!(
            "{:<24} {:>12} {:>9} {:>10} {:>9} {:>7} {:>8} {:>7}",
            table.name,
            table.rows(),
            table.pages(),
            Size(bytes(&table)).to_string(),
            Size(table.page_size.bytes() as u64).to_string(),
            table.groups.len(),
            table.segments.len(),
            table.version.0
        );
    }
    for (name, what) in damaged {
        say_line!("{name:<24} damaged: {what}; load it again, or remove it");
    }
    Ok(())
}

/// Returns the table with this name.
fn find<'l>(
    list: &'l [std::sync::Arc<Table>],
    damaged: &[(String, String)],
    name: &str,
) -> Result<&'l Table, String> {
    if let Some(table) = list.iter().find(|table| table.name == name) {
        return Ok(table);
    }
    let error = match damaged.iter().find(|(damaged, _)| damaged == name) {
        Some((name, what)) => Error::Damaged {
            name: name.clone(),
            what: what.clone(),
        },
        None => Error::Unknown {
            name: name.to_owned(),
            tables: list.iter().map(|table| table.name.clone()).collect(),
        },
    };
    Err(error.to_string())
}

fn print_json(value: &Value) -> Result<(), String> {
    let text = serde_json::to_string_pretty(value).map_err(|error| error.to_string())?;
    say_line!("{text}");
    Ok(())
}

fn bytes(table: &Table) -> u64 {
    table.pages() * table.page_size.bytes() as u64
}

fn layout(table: &Table) -> &'static str {
    match table.layout {
        Layout::Columns => "columns",
        Layout::Rows => "rows",
    }
}

/// Returns the number of pages of a group, in all segments.
fn pages_of(table: &Table, group: usize) -> usize {
    table
        .segments
        .iter()
        .map(|segment| segment.groups[group].len())
        .sum()
}

fn details(table: &Table) -> String {
    let mut text = format!(
        "table {}, version {}: {} rows in {} segments, {} pages of {} in {}, {}\n",
        table.name,
        table.version.0,
        table.rows(),
        table.segments.len(),
        table.pages(),
        Size(table.page_size.bytes() as u64),
        layout(table),
        Size(bytes(table)),
    );
    for (group, columns) in table.groups.iter().enumerate() {
        text += &format!("group {group}, {} pages\n", pages_of(table, group));
        for &column in columns {
            let field = table.schema.field(column);
            let null = if field.is_nullable() { "" } else { " not null" };
            text += &format!("  {:<24} {}{null}\n", field.name(), field.data_type());
        }
    }
    text
}

fn json_of(table: &Table) -> Value {
    let groups = table.groups.iter().enumerate().map(|(group, columns)| {
        let columns = columns.iter().map(|&column| {
            let field = table.schema.field(column);
            json!({
                "name": field.name(),
                "type": field.data_type().to_string(),
                "nullable": field.is_nullable(),
            })
        });
        json!({"pages": pages_of(table, group), "columns": columns.collect::<Vec<_>>()})
    });
    let segments = table.segments.iter().map(|segment| {
        json!({
            "id": format!("{:?}", segment.id),
            "rows": segment.rows,
            "pages": segment.pages,
            "stripes": segment.stripes,
        })
    });
    json!({
        "name": table.name,
        "version": table.version.0,
        "rows": table.rows(),
        "pages": table.pages(),
        "bytes": bytes(table),
        "page_size": table.page_size.bytes(),
        "layout": layout(table),
        "groups": groups.collect::<Vec<_>>(),
        "segments": segments.collect::<Vec<_>>(),
    })
}
