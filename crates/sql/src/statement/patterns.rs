//! Patterns of `SIMILAR TO` as regular expressions.

use datafusion::common::{Result, plan_err};

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
}
