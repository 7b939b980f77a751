//! Arrays as PostgreSQL's texts.

/// Returns the elements of an array in its text form, `{1,NULL,"a b"}`, if it has one dimension.
pub(crate) fn elements(text: &str) -> Option<Vec<Option<String>>> {
    let inner = text.trim().strip_prefix('{')?.strip_suffix('}')?;
    let mut elements = Vec::new();
    let mut rest = inner.trim_start();
    if rest.is_empty() {
        return Some(elements);
    }
    loop {
        let mut element = String::new();
        let quoted = rest.starts_with('"');
        let mut characters = rest.char_indices().skip(usize::from(quoted));
        let end = loop {
            let Some((at, character)) = characters.next() else {
                break if quoted { return None } else { rest.len() };
            };
            match character {
                '\\' => element.push(characters.next()?.1),
                '"' if quoted => break at + 1,
                '{' | '}' | '"' if !quoted => return None,
                ',' if !quoted => break at,
                other => element.push(other),
            }
        };
        let is_null = !quoted && element.trim().eq_ignore_ascii_case("null");
        if !quoted {
            element.truncate(element.trim_end().len());
        }
        if !quoted && element.is_empty() {
            return None;
        }
        elements.push((!is_null).then_some(element));
        rest = rest[end..].trim_start();
        match rest.strip_prefix(',') {
            Some(more) => rest = more.trim_start(),
            None => return rest.is_empty().then_some(elements),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_read() {
        let texts = elements(r#"{a b,"c,d","e\"f\\",null,"null",""}"#).unwrap();
        let texts: Vec<Option<&str>> = texts.iter().map(Option::as_deref).collect();
        let expected = [
            Some("a b"),
            Some("c,d"),
            Some("e\"f\\"),
            None,
            Some("null"),
            Some(""),
        ];
        assert_eq!(texts, expected);
        assert_eq!(elements(" { } "), Some(Vec::new()));
        for wrong in [
            "",
            "{",
            "1,2",
            "{1,}",
            "{{1},{2}}",
            "{\"a}",
            "{\"a\"b}",
            "{1}}",
        ] {
            assert_eq!(elements(wrong), None, "{wrong}");
        }
    }
}
