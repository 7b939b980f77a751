//! Options that several commands of `kumiki pages` have, and those of its short ones.

use base::size::Size;
use clap::{Args, ValueEnum};
use pages::{Groups, Layout, LoadOptions, Mode, PageSize};

use crate::table_location::TableLocation;

#[derive(Args, Debug)]
pub(super) struct TpchOptions {
    /// The scale factor: 1 makes a gigabyte of text.
    #[arg(long, value_name = "FACTOR", default_value = "1", value_parser = parse_scale)]
    pub(super) sf: f64,
    /// These tables alone, such as lineitem,orders.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(super) tables: Vec<String>,
    /// Threads that generate rows.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(super) threads: u16,
    #[command(flatten)]
    pub(super) into: LoadTarget,
}

/// Into which tables, and how.
#[derive(Args, Debug)]
pub(super) struct LoadTarget {
    #[command(flatten)]
    pub(super) place: TableLocation,
    /// Bytes of a page: 4KiB, 8KiB, 16KiB, 32KiB, 64KiB or 128KiB.
    #[arg(long, value_name = "SIZE", default_value = "128KiB", value_parser = parse_page_size)]
    pub(super) page_size: PageSize,
    /// How rows lie in a page.
    #[arg(long, value_name = "LAYOUT", default_value = "columns")]
    pub(super) layout: LayoutArg,
    /// Which columns lie together: each (each by itself), all, or names such as a,b/c,d, where
    /// each column that is not named lies by itself.
    #[arg(long, value_name = "GROUPS", default_value = "each", value_parser = parse_groups)]
    pub(super) groups: Groups,
    /// Replace tables that are there.
    #[arg(long, conflicts_with = "append")]
    pub(super) replace: bool,
    /// Append to tables that are there, whose pages tell size, layout and groups.
    #[arg(long)]
    pub(super) append: bool,
    /// Sort by this column, of the table that has it. The table must fit into memory.
    #[arg(long, value_name = "COLUMN")]
    pub(super) sort_by: Option<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum, PartialEq, Eq)]
pub(super) enum LayoutArg {
    /// The values of a column one behind the other.
    Columns,
    /// The values of a row one behind the other, each at a fixed place.
    Rows,
}

#[derive(Args, Debug)]
pub(super) struct ListOptions {
    /// Tell everything of this table.
    #[arg(value_name = "TABLE")]
    pub(super) table: Option<String>,
    #[command(flatten)]
    pub(super) place: TableLocation,
    /// Say it as JSON.
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Args, Debug)]
pub(super) struct TableCheckOptions {
    /// This table alone.
    #[arg(value_name = "TABLE")]
    pub(super) table: Option<String>,
    #[command(flatten)]
    pub(super) place: TableLocation,
}

#[derive(Args, Debug)]
pub(super) struct RemoveOptions {
    /// The table.
    #[arg(value_name = "TABLE")]
    pub(super) table: String,
    #[command(flatten)]
    pub(super) place: TableLocation,
}

impl LoadTarget {
    /// Returns the mode for rows that are already there.
    pub(super) fn mode(&self) -> Mode {
        match self {
            LoadTarget { replace: true, .. } => Mode::Replace,
            LoadTarget { append: true, .. } => Mode::Append,
            _ => Mode::Create,
        }
    }

    /// Returns the layout of new tables.
    pub(super) fn options(&self) -> LoadOptions {
        LoadOptions {
            page_size: self.page_size,
            layout: match self.layout {
                LayoutArg::Columns => Layout::Columns,
                LayoutArg::Rows => Layout::Rows,
            },
            groups: self.groups.clone(),
            ..LoadOptions::default()
        }
    }
}

fn parse_scale(text: &str) -> Result<f64, String> {
    let factor = text
        .parse()
        .ok()
        .filter(|factor| (0.0001..=10_000.0).contains(factor));
    factor
        .ok_or_else(|| format!("'{text}' is no scale factor: write a number from 0.0001 to 10000"))
}

/// Parses the size of a page.
pub(super) fn parse_page_size(text: &str) -> Result<PageSize, String> {
    let Size(bytes) = text
        .parse()
        .map_err(|error: base::size::BadSize| error.to_string())?;
    let size = usize::try_from(bytes).ok().and_then(PageSize::new);
    size.ok_or_else(|| {
        format!("pages do not have {text}: choose 4KiB, 8KiB, 16KiB, 32KiB, 64KiB or 128KiB")
    })
}

/// Parses `each`, `all`, or names.
fn parse_groups(text: &str) -> Result<Groups, String> {
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
