//! Judges a history that was written to a file, as JSON lines.
//!
//! `cargo run --package kumiki-history --example judge -- read-atomic FILE` prints that the history
//! was accepted, or what is wrong with it, and exits with a failure then. Prefixes behind the file
//! leave out all keys that have none of them.

use std::error::Error;
use std::fs::File;
use std::io::BufReader;
use std::process::ExitCode;

use kumiki_history::check::Guarantee;
use kumiki_history::json;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(name), Some(path)) = (arguments.next(), arguments.next()) else {
        let names = Guarantee::ALL.map(Guarantee::name).join("|");
        return Err(format!("say what to judge by, and a file: {names} FILE [PREFIX…]").into());
    };
    let guarantee: Guarantee = name.parse()?;
    let mut history = json::read(BufReader::new(File::open(path)?))?;
    let prefixes: Vec<String> = arguments.collect();
    if !prefixes.is_empty() {
        let counts = |key: &str| {
            prefixes
                .iter()
                .any(|prefix| key.starts_with(prefix.as_str()))
        };
        history = history.of_keys(counts);
    }
    let verdict = guarantee.judge(&history);
    println!("{} transactions: {verdict}", history.transactions.len());
    Ok(match verdict.is_accepted() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}
