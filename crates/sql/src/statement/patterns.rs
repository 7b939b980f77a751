//! Patterns of `SIMILAR TO` as regular expressions, and those of `LIKE` with a backslash as their escape.

use std::sync::Arc;

use datafusion::arrow::array::{AsArray, StringArray};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result, plan_err};
use datafusion::logical_expr::{ColumnarValue, ScalarUDF, Volatility, create_udf};

/// Returns the regular expression that matches the same texts as a pattern, as a whole.
///
/// # Errors
/// Returns an error if the pattern ends with its escape, or within brackets.
pub(super) fn regular(pattern: &str, escape: Option<char>) -> Result<String> {
    let mut regular = "(?s)^(?:".to_owned();
    let mut within = false;
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        if Some(character) == escape {
            match characters.next() {
                Some(quoted) => literal(quoted, &mut regular),
                None => return plan_err!("the pattern of SIMILAR TO ends with its escape"),
            }
            continue;
        }
        match character {
            ']' if within => {
                within = false;
                regular.push(']');
            }
            // These begin sets of their own only in regular expressions.
            '[' | '&' | '~' | '\\' if within => literal(character, &mut regular),
            other if within => regular.push(other),
            '[' => {
                within = true;
                regular.push('[');
            }
            '%' => regular.push_str(".*"),
            '_' => regular.push('.'),
            '(' => regular.push_str("(?:"),
            ')' | '|' | '*' | '+' | '?' | '{' | '}' => regular.push(character),
            other => literal(other, &mut regular),
        }
    }
    if within {
        return plan_err!("the pattern of SIMILAR TO has a bracket that is not closed");
    }
    regular.push_str(")$");
    Ok(regular)
}

/// Returns a pattern of `LIKE`, which has another escape or none, with a backslash as its escape.
///
/// # Errors
/// Fails when the pattern ends with its escape.
pub(super) fn with_backslash(pattern: &str, escape: Option<char>) -> Result<String> {
    let mut other = String::new();
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        let quoted = match Some(character) == escape {
            true => characters.next(),
            false if character == '\\' => Some(character),
            false => {
                other.push(character);
                continue;
            }
        };
        match quoted {
            Some(quoted) if matches!(quoted, '%' | '_' | '\\') => other.extend(['\\', quoted]),
            Some(quoted) => other.push(quoted),
            None => return plan_err!("LIKE pattern must not end with escape character"),
        }
    }
    Ok(other)
}

/// The function that writes patterns of `LIKE` with a backslash, for those that are not constant.
pub(crate) const FUNCTION: &str = "like_pattern";

/// Returns the function of a pattern and its escape.
pub(crate) fn function() -> ScalarUDF {
    let written = |arguments: &[ColumnarValue]| {
        let arrays = ColumnarValue::values_to_arrays(arguments)?;
        let [patterns, escapes] = [0, 1].map(|at| arrays[at].as_string::<i32>());
        let written = patterns.iter().zip(escapes).map(|(pattern, escape)| {
            let (Some(pattern), Some(escape)) = (pattern, escape) else {
                return Ok(None);
            };
            with_backslash(pattern, escape.chars().next()).map(Some)
        });
        let written = written.collect::<Result<StringArray>>()?;
        Ok(ColumnarValue::Array(Arc::new(written)))
    };
    create_udf(
        FUNCTION,
        vec![DataType::Utf8; 2],
        DataType::Utf8,
        Volatility::Immutable,
        Arc::new(written),
    )
}

fn literal(character: char, regular: &mut String) {
    if character.is_ascii_punctuation() {
        regular.push('\\');
    }
    regular.push(character);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_texts() {
        let of = |pattern| regular(pattern, Some('\\')).unwrap();
        assert_eq!(of("a%"), "(?s)^(?:a.*)$");
        assert_eq!(of("a_(b|c)+"), "(?s)^(?:a.(?:b|c)+)$");
        assert_eq!(of("a.b$"), "(?s)^(?:a\\.b\\$)$");
        assert_eq!(of("[^a-z]{2}\\%"), "(?s)^(?:[^a-z]{2}\\%)$");
        assert_eq!(regular("a#_b\\", Some('#')).unwrap(), "(?s)^(?:a\\_b\\\\)$");
        assert_eq!(regular("\\", None).unwrap(), "(?s)^(?:\\\\)$");
        assert!(regular("a\\", Some('\\')).is_err());
        assert!(regular("[a", Some('\\')).is_err());
    }

    #[test]
    fn escapes_of_like_become_backslashes() {
        let of = |pattern| with_backslash(pattern, Some('/')).unwrap();
        assert_eq!(of("pg/_%"), "pg\\_%");
        assert_eq!(of("a//b/c\\"), "a/bc\\\\");
        assert_eq!(with_backslash("a\\_", None).unwrap(), "a\\\\_");
        assert!(with_backslash("a/", Some('/')).is_err());
    }
}
