//! Replaces `kumiki pages load csv` and `… parquet` in a binary that was built without the library
//! that reads such files.

use crate::signals::StopRequest;
use clap::Args;

/// Options that are not understood here.
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
pub(super) struct Csv {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    options: Vec<String>,
}

/// Options that are not understood here.
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
pub(super) struct Parquet {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    options: Vec<String>,
}

pub(super) fn csv(options: &Csv, _: &StopRequest) -> Result<(), String> {
    Err(how_to_get("csv", &options.options))
}

pub(super) fn parquet(options: &Parquet, _: &StopRequest) -> Result<(), String> {
    Err(how_to_get("parquet", &options.options))
}

/// Explains how to get a binary that loads files.
fn how_to_get(kind: &str, options: &[String]) -> String {
    let options = crate::sql_command::quoted(options);
    format!(
        "this binary was built without SQL, which takes minutes to compile, and with it what reads \
         {kind} files. To build one with it and do what was asked for: cargo run --release --features \
         sql -- pages load {kind} {options}"
    )
}
