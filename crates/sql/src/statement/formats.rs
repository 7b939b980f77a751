//! Formats of dates and times: PostgreSQL's templates as DataFusion's, which are those of `strftime`.

/// Templates and their forms in `strftime`, longer ones before their prefixes; an empty text if there is no
/// such form. The case of letters matters where it determines how names are written.
const TEMPLATES: [(&str, &str, bool); 26] = [
    ("HH24", "%H", false),
    ("HH12", "%I", false),
    ("HH", "%I", false),
    ("MI", "%M", false),
    ("SSSSS", "", false),
    ("SSSS", "", false),
    ("SS", "%S", false),
    ("MS", "%3f", false),
    ("US", "%6f", false),
    ("FF3", "%3f", false),
    ("FF6", "%6f", false),
    ("AM", "%p", true),
    ("PM", "%p", true),
    ("am", "%P", true),
    ("pm", "%P", true),
    ("YYYY", "%Y", false),
    ("IYYY", "%G", false),
    ("YY", "%y", false),
    ("MM", "%m", false),
    ("Mon", "%b", true),
    ("DDD", "%j", false),
    ("DD", "%d", false),
    ("Dy", "%a", true),
    ("ID", "%u", false),
    ("IW", "%V", false),
    ("TZH", "", false),
];

/// Names that PostgreSQL pads with blanks, unless `FM` stands before them.
const FILLED: [(&str, &str); 2] = [("Month", "%B"), ("Day", "%A")];

/// A template has no such format; the text says which part of it.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct UnsupportedFormat(pub(super) String);

/// Returns the format of `strftime` for a template of PostgreSQL, for values to be shown or to be read.
///
/// # Errors
/// Returns an error if a part of it has no such form; the text says which.
pub(super) fn translated(format: &str, shows: bool) -> Result<String, UnsupportedFormat> {
    let mut translated = String::new();
    let mut rest = format;
    'parts: while let Some(first) = rest.chars().next() {
        if let Some(quoted) = rest.strip_prefix('"') {
            let (text, behind) = quoted
                .split_once('"')
                .ok_or_else(|| UnsupportedFormat("a quote is not closed".to_owned()))?;
            translated.push_str(&text.replace('%', "%%"));
            rest = behind;
            continue;
        }
        for (name, strftime) in FILLED {
            // Values to be read are not padded.
            let unfilled = rest
                .strip_prefix("FM")
                .unwrap_or(if shows { "" } else { rest });
            if let Some(behind) = unfilled.strip_prefix(name) {
                translated.push_str(strftime);
                rest = behind;
                continue 'parts;
            }
        }
        for (name, strftime, exact) in TEMPLATES {
            let Some((given, behind)) = rest.split_at_checked(name.len()) else {
                continue;
            };
            let same = match exact {
                true => given == name,
                false => given.eq_ignore_ascii_case(name),
            };
            if same && strftime.is_empty() {
                return Err(UnsupportedFormat(format!("{given} is not supported here")));
            }
            if same {
                translated.push_str(strftime);
                rest = behind;
                continue 'parts;
            }
        }
        if first.is_alphabetic() || matches!(first, '%' | '\\') {
            return Err(UnsupportedFormat(format!("{rest:?} is not supported here")));
        }
        translated.push(first);
        rest = &rest[first.len_utf8()..];
    }
    Ok(translated)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_those_of_postgresql() {
        for (format, expected) in [
            ("YYYY-MM-DD HH24:MI:SS.US", "%Y-%m-%d %H:%M:%S.%6f"),
            ("yyyy/mm/dd", "%Y/%m/%d"),
            ("HH12:MI AM", "%I:%M %p"),
            ("Dy, DD Mon YYYY", "%a, %d %b %Y"),
            ("DDD", "%j"),
            ("FMMonth FMDay", "%B %A"),
            ("IYYY-\"W\"IW-ID", "%G-W%V-%u"),
        ] {
            assert_eq!(
                translated(format, true).as_deref(),
                Ok(expected),
                "{format}"
            );
        }
        for refused in [
            "Month", "MON", "%Y", "Q", "J", "TZ", "FMDD", "DDth", "SSSS", "YYYYth", "\"a",
        ] {
            assert!(translated(refused, true).is_err(), "{refused}");
        }
        assert_eq!(
            translated("DD Month YYYY", false).as_deref(),
            Ok("%d %B %Y")
        );
    }
}
