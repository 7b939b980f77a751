//! DuckDB's answers, and their comparison with ours.

use std::path::Path;

use super::Rows;

/// DuckDB's answer: each column's type, and the rows.
pub(crate) struct Answer {
    types: Vec<String>,
    rows: Rows,
}

/// Returns the answer to a query of TPC-H at a scale factor: 0.01 or 0.1.
pub(crate) fn answer(query: usize, scale: f64) -> Answer {
    let text = read(&format!("answers/{scale}/q{query:02}.csv"));
    let mut lines = parse(&text).into_iter();
    let header = lines.next().expect("there is a header");
    let types = header.into_iter().map(|cell| {
        let cell = cell.expect("a column has a name");
        cell.rsplit_once(':').expect("and a type").1.to_owned()
    });
    Answer {
        types: types.collect(),
        rows: lines.collect(),
    }
}

/// Returns the text of a query of TPC-H.
pub(crate) fn query(query: usize) -> String {
    read(&format!("q{query:02}.sql"))
}

fn read(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/tpch")
        .join(file);
    std::fs::read_to_string(path).unwrap()
}

impl Answer {
    /// Returns the first difference from our rows as an error.
    pub(crate) fn compare(&self, ours: &Rows) -> Result<(), String> {
        if ours.len() != self.rows.len() {
            return Err(format!("{} rows, and not {}", ours.len(), self.rows.len()));
        }
        for (number, (ours, theirs)) in ours.iter().zip(&self.rows).enumerate() {
            if ours.len() != theirs.len() {
                return Err(format!("{} columns, and not {}", ours.len(), theirs.len()));
            }
            for (place, (our, their)) in ours.iter().zip(theirs).enumerate() {
                let (our, their) = (our.as_deref().unwrap_or(""), their.as_deref().unwrap_or(""));
                if !equal(our, their, &self.types[place]) {
                    return Err(format!(
                        "row {number}, column {place}: {our}, and not {their}"
                    ));
                }
            }
        }
        Ok(())
    }
}

/// Returns `true` if two values of a type of DuckDB's are equal. Results that it computed in floating
/// point may differ in the last digit, as DataFusion computes averages of decimals in decimals with six
/// digits after the point.
fn equal(our: &str, their: &str, data_type: &str) -> bool {
    if data_type == "DOUBLE" {
        let (Ok(our), Ok(their)) = (our.parse::<f64>(), their.parse::<f64>()) else {
            return our == their;
        };
        return (our - their).abs() <= 1e-6 + 1e-9 * their.abs();
    }
    our == their || (data_type.starts_with("DECIMAL") && digits(our) == digits(their))
}

/// Returns a decimal without zeros at its end.
fn digits(number: &str) -> &str {
    match number.contains('.') {
        true => number.trim_end_matches('0').trim_end_matches('.'),
        false => number,
    }
}

/// Parses CSV as Python writes it.
fn parse(text: &str) -> Rows {
    let mut rows = Vec::new();
    let mut row = Vec::new();
    let mut cell = String::new();
    let mut quoted = false;
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' if quoted && letters.peek() == Some(&'"') => cell.extend(letters.next()),
            '"' => quoted = !quoted,
            ',' if !quoted => row.push(Some(std::mem::take(&mut cell))),
            '\n' if !quoted => {
                row.push(Some(std::mem::take(&mut cell)));
                rows.push(std::mem::take(&mut row));
            }
            other => cell.push(other),
        }
    }
    rows
}
