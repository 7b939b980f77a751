//! Errors in words, without parts that only the authors of the libraries understand.

use datafusion::arrow::error::ArrowError;
use datafusion::error::DataFusionError;
use datafusion::sql::sqlparser::parser::ParserError;

/// Returns an error in words: that of its root cause, without the names of the rules and layers through
/// which it came.
#[must_use]
pub fn explain(error: &DataFusionError) -> String {
    match error.find_root() {
        DataFusionError::SQL(parser, _) => syntax(parser),
        DataFusionError::ArrowError(arrow, _) => value(arrow),
        DataFusionError::SchemaError(schema, _) => schema.to_string(),
        DataFusionError::ResourcesExhausted(what) => format!(
            "{what}; give queries more memory (--memory), or let them have fewer partitions (--threads)"
        ),
        DataFusionError::Plan(what)
        | DataFusionError::Execution(what)
        | DataFusionError::Configuration(what)
        | DataFusionError::Internal(what) => plain(what),
        DataFusionError::NotImplemented(what) => format!("not implemented: {}", plain(what)),
        DataFusionError::IoError(error) => error.to_string(),
        DataFusionError::External(error) => error.to_string(),
        DataFusionError::Diagnostic(_, inner) => explain(inner),
        DataFusionError::Shared(inner) => explain(inner),
        DataFusionError::Collection(all) => all.first().map_or_else(String::new, explain),
        other => other.strip_backtrace(),
    }
}

fn syntax(error: &ParserError) -> String {
    let what = match error {
        ParserError::TokenizerError(what) | ParserError::ParserError(what) => what,
        ParserError::RecursionLimitExceeded => "it is nested too deeply",
    };
    match what.rsplit_once(" at Line: ") {
        Some((what, place)) => {
            let place = place.replacen(", Column: ", ", column ", 1);
            format!("syntax error at line {place}: {}", lower(what))
        }
        None => format!("syntax error: {}", lower(what)),
    }
}

/// Returns the words for values that do not fit, or cannot be computed.
fn value(error: &ArrowError) -> String {
    match error {
        ArrowError::DivideByZero => "division by zero".to_owned(),
        ArrowError::CastError(what)
        | ArrowError::ComputeError(what)
        | ArrowError::InvalidArgumentError(what)
        | ArrowError::ArithmeticOverflow(what)
        | ArrowError::ParseError(what)
        | ArrowError::SchemaError(what)
        | ArrowError::CsvError(what) => plain(what),
        ArrowError::ExternalError(error) => error.to_string(),
        other => other.to_string(),
    }
}

/// Removes the prefixes and suffixes that libraries add to their errors.
fn plain(what: &str) -> String {
    let what = what.split(DataFusionError::BACK_TRACE_SEP).next();
    let mut what = what.unwrap_or_default().trim();
    let prefixes = [
        "Error during planning: ",
        "Execution error: ",
        "Arrow error: ",
        "Parser error: ",
        "Cast error: ",
        "Internal error: ",
    ];
    while let Some(rest) = prefixes.iter().find_map(|prefix| what.strip_prefix(prefix)) {
        what = rest;
    }
    // DataFusion blames itself for errors of the query where types do not fit a function.
    let blames = [
        ".\nThis issue was likely caused by",
        ". This issue was likely caused by",
    ];
    let end = blames.iter().filter_map(|blame| what.find(blame)).min();
    what[..end.unwrap_or(what.len())].to_owned()
}

fn lower(what: &str) -> String {
    let mut letters = what.chars();
    letters.next().map_or_else(String::new, |first| {
        first.to_lowercase().chain(letters).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syntax_errors_say_where() {
        let at = "Expected: end of statement, found: form at Line: 1, Column: 10".to_owned();
        let error = ParserError::ParserError(at);
        let error = DataFusionError::SQL(Box::new(error), None);
        let said = "syntax error at line 1, column 10: expected: end of statement, found: form";
        assert_eq!(explain(&error), said);
        let unknown = ParserError::ParserError("Nothing".to_owned());
        let error = DataFusionError::SQL(Box::new(unknown), None);
        assert_eq!(explain(&error), "syntax error: nothing");
    }

    #[test]
    fn layers_and_blame_are_left_out() {
        let cast =
            ArrowError::CastError("Cannot cast string 'x' to value of Int64 type".to_owned());
        let error = DataFusionError::ArrowError(Box::new(cast), None)
            .context("Optimizer rule 'simplify_expressions' failed");
        assert_eq!(
            explain(&error),
            "Cannot cast string 'x' to value of Int64 type"
        );
        let zero = DataFusionError::ArrowError(Box::new(ArrowError::DivideByZero), None);
        assert_eq!(explain(&zero), "division by zero");
        let types = "Execution error: Function 'sum' failed to match any signature.\nThis issue was \
                     likely caused by a bug in somebody's code. Please help us.";
        let error = DataFusionError::Plan(types.to_owned());
        assert_eq!(
            explain(&error),
            "Function 'sum' failed to match any signature"
        );
    }
}
