//! A page of a list of objects, as S3 answers it in XML.

use crate::object_store::StoredObject;

/// A page.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ListingPage {
    pub(super) objects: Vec<StoredObject>,
    /// What asks for the next page, if there is one.
    pub(super) next: Option<String>,
}

/// Parses a page.
pub(super) fn parse(bytes: &[u8]) -> Option<ListingPage> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (mut rest, _) = element(text, "ListBucketResult")?;
    let is_truncated = element(rest, "IsTruncated").is_some_and(|(text, _)| text == "true");
    let next = element(rest, "NextContinuationToken").map(|(text, _)| unescape(text));
    let mut page = ListingPage {
        objects: Vec::new(),
        next: next.filter(|_| is_truncated),
    };
    if is_truncated && page.next.is_none() {
        return None;
    }
    while let Some((object, behind)) = element(rest, "Contents") {
        page.objects.push(StoredObject {
            name: unescape(element(object, "Key")?.0),
            bytes: element(object, "Size")?.0.trim().parse().ok()?,
        });
        rest = behind;
    }
    Some(page)
}

/// Returns the content of the first element of this name, and the text behind it. The element contains none of its own
/// name.
pub(super) fn element<'a>(text: &'a str, name: &str) -> Option<(&'a str, &'a str)> {
    let (begin, end) = (format!("<{name}"), format!("</{name}>"));
    let mut from = 0;
    loop {
        let at = from + text[from..].find(&begin)? + begin.len();
        // Another element's name may begin in the same way.
        if !text[at..].starts_with(['>', ' ']) {
            from = at;
            continue;
        }
        let content = at + text[at..].find('>')? + 1;
        let length = text[content..].find(&end)?;
        let behind = &text[content + length + end.len()..];
        return Some((&text[content..content + length], behind));
    }
}

/// Replaces the entities of XML.
pub(super) fn unescape(text: &str) -> String {
    let entities = [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&#34;", "\""),
        ("&apos;", "'"),
        ("&#39;", "'"),
        // The last one: what it gives is not replaced again.
        ("&amp;", "&"),
    ];
    let mut text = text.to_owned();
    for (entity, character) in entities {
        text = text.replace(entity, character);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_read() {
        let text = "<?xml version=\"1.0\"?><ListBucketResult xmlns=\"http://s3\"><Name>b</Name>\
            <IsTruncated>true</IsTruncated><NextContinuationToken>a&amp;b</NextContinuationToken>\
            <Contents><Key>x/1</Key><Size>10</Size></Contents>\
            <Contents><Key>x/&lt;2&gt;</Key><Owner><ID>7</ID></Owner><Size>0</Size></Contents>\
            </ListBucketResult>";
        let page = parse(text.as_bytes()).unwrap();
        let object = |name: &str, bytes| StoredObject {
            name: name.to_owned(),
            bytes,
        };
        assert_eq!(page.objects, [object("x/1", 10), object("x/<2>", 0)]);
        assert_eq!(page.next.as_deref(), Some("a&b"));
        let last = text.replace(">true<", ">false<");
        assert_eq!(parse(last.as_bytes()).unwrap().next, None);
        let empty = "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>";
        assert_eq!(parse(empty.as_bytes()), Some(ListingPage::default()));
        for bad in ["", "<html></html>", &text.replace("<Size>10", "<Size>x")] {
            assert_eq!(parse(bad.as_bytes()), None);
        }
    }
}
