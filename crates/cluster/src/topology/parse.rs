//! From TOML to a draft: the fields have their types, and each value knows its line.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::errors::Mistake;
use crate::slot::SLOTS;

/// A value and the line on which it stands.
#[derive(Clone, Debug)]
pub(super) struct At<T> {
    pub(super) line: usize,
    pub(super) value: T,
}

/// The file, with the values that make sense each by itself. Any other value is `None` or left out, and
/// a mistake was noted.
#[derive(Default)]
pub(super) struct TopologyDraft {
    pub(super) name: Option<At<String>>,
    pub(super) secret: SecretDraft,
    pub(super) client_secret: SecretDraft,
    pub(super) read_atomic: Vec<At<String>>,
    pub(super) nodes: Vec<At<NodeDraft>>,
    pub(super) partitions: Vec<At<PartitionDraft>>,
}

/// A secret, or the file that holds it.
#[derive(Default)]
pub(super) struct SecretDraft {
    pub(super) texts: Option<At<Vec<String>>>,
    pub(super) file: Option<At<PathBuf>>,
}

impl SecretDraft {
    /// Returns `true` if the file has this secret, or names a file for it.
    pub(super) fn is_given(&self) -> bool {
        self.texts.is_some() || self.file.is_some()
    }
}

pub(super) struct NodeDraft {
    pub(super) id: Option<At<u16>>,
    pub(super) client: Option<At<SocketAddr>>,
    pub(super) tls: Option<At<SocketAddr>>,
    pub(super) fabric: Option<At<SocketAddr>>,
    pub(super) replica: Option<At<SocketAddr>>,
    /// The file does not have `replica`.
    pub(super) has_no_replica: bool,
}

pub(super) struct PartitionDraft {
    pub(super) id: Option<At<u16>>,
    pub(super) slots: Vec<At<RangeInclusive<u16>>>,
    /// `slots` are all that the file gives, as far as it could be read.
    pub(super) has_all_slots: bool,
    pub(super) nodes: Option<At<Vec<At<u16>>>>,
}

/// Reads `text`. Returns `None` if it is not TOML, so that its values cannot be relied on.
pub(super) fn parse(text: &str, found: &mut Vec<Mistake>) -> Option<TopologyDraft> {
    let (table, errors) = DeTable::parse_recoverable(text);
    let mut reader = TopologyParser { text, found };
    if !errors.is_empty() {
        for error in errors {
            let at = error.span().map_or(0, |span| span.start);
            reader.note(at, format!("this is not TOML: {}", error.message()));
        }
        return None;
    }
    let mut draft = TopologyDraft::default();
    for (key, value) in table.get_ref() {
        match &**key.get_ref() {
            "name" => draft.name = reader.text_of(value, "name"),
            "secret" => draft.secret.texts = reader.secret(value, "secret"),
            "secret-file" => draft.secret.file = reader.path(value, "secret-file"),
            "client-secret" => draft.client_secret.texts = reader.secret(value, "client-secret"),
            "client-secret-file" => {
                draft.client_secret.file = reader.path(value, "client-secret-file");
            }
            "read_atomic" => draft.read_atomic = reader.texts(value, "read_atomic"),
            "node" => draft.nodes = reader.tables(value, "node", TopologyParser::node),
            "partition" => draft.partitions = reader.tables(value, "partition", TopologyParser::partition),
            other => reader.unknown(
                key,
                other,
                "name, secret, secret-file, client-secret, client-secret-file, read_atomic, [[node]] and \
                 [[partition]]",
            ),
        }
    }
    Some(draft)
}

/// An example of an address.
const EXAMPLE: &str = "\"127.0.0.1:7001\"";

type Value<'a> = Spanned<DeValue<'a>>;

struct TopologyParser<'t, 'm> {
    text: &'t str,
    found: &'m mut Vec<Mistake>,
}

impl TopologyParser<'_, '_> {
    fn line(&self, at: usize) -> usize {
        let before = &self.text.as_bytes()[..at.min(self.text.len())];
        before.iter().filter(|&&byte| byte == b'\n').count() + 1
    }

    fn note(&mut self, at: usize, what: String) {
        let line = self.line(at);
        self.found.push(Mistake { line, what });
    }

    fn at<T>(&self, value: &Value<'_>, inner: T) -> At<T> {
        At {
            line: self.line(value.span().start),
            value: inner,
        }
    }

    fn unknown<T>(&mut self, key: &Spanned<T>, name: &str, known: &str) {
        let what = format!("{name} is no setting here; there are {known}");
        self.note(key.span().start, what);
    }

    fn wrong_type(&mut self, value: &Value<'_>, name: &str, wanted: &str) {
        let found = value.get_ref().type_str();
        let what = format!("{name} is of the type {found}; write it as {wanted}");
        self.note(value.span().start, what);
    }

    fn path(&mut self, value: &Value<'_>, name: &str) -> Option<At<PathBuf>> {
        let path = self.text_of(value, name)?;
        Some(At {
            line: path.line,
            value: PathBuf::from(path.value),
        })
    }

    /// Reads the tables of `[[name]]`.
    fn tables<T>(
        &mut self,
        value: &Value<'_>,
        name: &str,
        read: impl Fn(&mut Self, &DeTable<'_>, usize) -> T,
    ) -> Vec<At<T>> {
        let wanted = format!("[[{name}]], with its fields below");
        let Some(items) = value.get_ref().as_array() else {
            self.wrong_type(value, name, &wanted);
            return Vec::new();
        };
        let mut tables = Vec::new();
        for item in items.iter() {
            match item.get_ref().as_table() {
                Some(table) => {
                    let inner = read(self, table, item.span().start);
                    tables.push(self.at(item, inner));
                }
                None => self.wrong_type(item, name, &wanted),
            }
        }
        tables
    }

    fn node(&mut self, table: &DeTable<'_>, at: usize) -> NodeDraft {
        for key in table.keys() {
            if !matches!(
                &**key.get_ref(),
                "id" | "client" | "tls" | "fabric" | "replica"
            ) {
                self.unknown(key, key.get_ref(), "id, client, tls, fabric and replica");
            }
        }
        NodeDraft {
            id: self.id(table, "node", at),
            client: self.address(table, "client", at),
            tls: self.address_if_given(table, "tls"),
            fabric: self.address(table, "fabric", at),
            replica: self.address_if_given(table, "replica"),
            has_no_replica: table.get("replica").is_none(),
        }
    }

    fn partition(&mut self, table: &DeTable<'_>, at: usize) -> PartitionDraft {
        for key in table.keys() {
            if !matches!(&**key.get_ref(), "id" | "slots" | "nodes") {
                self.unknown(key, key.get_ref(), "id, slots and nodes");
            }
        }
        let id = self.id(table, "partition", at);
        let noted = self.found.len();
        let slots = self.slots(table, at);
        PartitionDraft {
            id,
            slots,
            has_all_slots: self.found.len() == noted,
            nodes: self.nodes(table, at),
        }
    }

    fn field<'v, 'a>(
        &mut self,
        table: &'v DeTable<'a>,
        name: &str,
        at: usize,
        example: &str,
    ) -> Option<&'v Value<'a>> {
        let value = table.get(name);
        if value.is_none() {
            self.note(at, format!("{name} is missing: add {name} = {example}"));
        }
        value
    }

    fn id(&mut self, table: &DeTable<'_>, of: &str, at: usize) -> Option<At<u16>> {
        let value = self.field(table, "id", at, &format!("and the {of}'s number"))?;
        self.number(value, "id")
    }

    fn number(&mut self, value: &Value<'_>, name: &str) -> Option<At<u16>> {
        let wanted = "a number from 1 to 65535";
        let Some(integer) = value.get_ref().as_integer() else {
            self.wrong_type(value, name, wanted);
            return None;
        };
        match u16::from_str_radix(integer.as_str(), integer.radix()) {
            Ok(number) if number > 0 => Some(self.at(value, number)),
            _ => {
                let what = format!("{name} is {integer}: choose {wanted}");
                self.note(value.span().start, what);
                None
            }
        }
    }

    fn text_of(&mut self, value: &Value<'_>, name: &str) -> Option<At<String>> {
        match value.get_ref().as_str() {
            Some(text) => Some(self.at(value, text.to_owned())),
            None => {
                self.wrong_type(value, name, "a text in quotes");
                None
            }
        }
    }

    /// Reads a text, or a list of them.
    fn secret(&mut self, value: &Value<'_>, name: &str) -> Option<At<Vec<String>>> {
        let texts = match value.get_ref().as_array() {
            Some(_) => self.texts(value, name),
            None => self.text_of(value, name).into_iter().collect(),
        };
        let texts: Vec<String> = texts.into_iter().map(|text| text.value).collect();
        (!texts.is_empty()).then(|| self.at(value, texts))
    }

    fn texts(&mut self, value: &Value<'_>, name: &str) -> Vec<At<String>> {
        let Some(items) = value.get_ref().as_array() else {
            self.wrong_type(value, name, "a list such as [\"feed:\"]");
            return Vec::new();
        };
        let texts = items.iter().map(|item| self.text_of(item, name));
        texts.collect::<Vec<_>>().into_iter().flatten().collect()
    }

    fn address(&mut self, table: &DeTable<'_>, name: &str, at: usize) -> Option<At<SocketAddr>> {
        self.field(table, name, at, EXAMPLE)?;
        self.address_if_given(table, name)
    }

    fn address_if_given(&mut self, table: &DeTable<'_>, name: &str) -> Option<At<SocketAddr>> {
        let value = table.get(name)?;
        let text = self.text_of(value, name)?;
        let mut refuse = |why: &str| {
            let what = format!("{name} is {:?}, {why}", text.value);
            self.note(value.span().start, what);
            None
        };
        match text.value.parse::<SocketAddr>() {
            Err(_) => refuse(&format!(
                "which is no IP address with a port; write it as {EXAMPLE}"
            )),
            Ok(address) if address.port() == 0 => {
                refuse("without a port that others could connect to; choose one from 1 to 65535")
            }
            Ok(address) if address.ip().is_unspecified() => refuse(
                "to which no process can connect; write the address under which others reach it",
            ),
            Ok(address) => Some(self.at(value, address)),
        }
    }

    fn slots(&mut self, table: &DeTable<'_>, at: usize) -> Vec<At<RangeInclusive<u16>>> {
        let Some(value) = self.field(table, "slots", at, "[\"0-16383\"]") else {
            return Vec::new();
        };
        let texts: Vec<&Value<'_>> = match value.get_ref() {
            DeValue::Array(items) => items.iter().collect(),
            _ => vec![value],
        };
        if texts.is_empty() {
            self.note(
                value.span().start,
                "slots is empty: a partition needs a slot, or take it out".to_owned(),
            );
        }
        let mut ranges = Vec::new();
        for text in texts {
            let Some(words) = text.get_ref().as_str() else {
                self.wrong_type(text, "slots", "a text such as \"0-4095, 8000\"");
                continue;
            };
            for word in words.split(',') {
                match range(word.trim()) {
                    Ok(range) => ranges.push(self.at(text, range)),
                    Err(error) => self.note(text.span().start, error.to_string()),
                }
            }
        }
        ranges
    }

    fn nodes(&mut self, table: &DeTable<'_>, at: usize) -> Option<At<Vec<At<u16>>>> {
        let value = self.field(table, "nodes", at, "[and the number of a node]")?;
        let Some(items) = value.get_ref().as_array() else {
            self.wrong_type(value, "nodes", "a list such as [1]");
            return None;
        };
        let numbers = items.iter().map(|item| self.number(item, "nodes"));
        let numbers = numbers.collect::<Option<Vec<_>>>()?;
        Some(self.at(value, numbers))
    }
}

/// Why a word names no slots.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum SlotRangeError {
    #[error("\"{0}\" is neither a slot nor a range of slots; write 8000 or 0-4095")]
    NoRange(String),
    #[error("slot {0} does not exist: slots are 0 to {last}", last = SLOTS - 1)]
    NoSuchSlot(String),
    #[error("slots {first}-{last} run backwards; write {last}-{first}")]
    Backwards { first: u16, last: u16 },
}

/// Parses a slot, or a range of them.
fn range(word: &str) -> Result<RangeInclusive<u16>, SlotRangeError> {
    let slot = |text: &str| {
        let digits = text.trim();
        let all_digits = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        if !all_digits {
            return Err(SlotRangeError::NoRange(word.to_owned()));
        }
        match digits.parse() {
            Ok(slot) if slot < SLOTS => Ok(slot),
            _ => Err(SlotRangeError::NoSuchSlot(digits.to_owned())),
        }
    };
    let (first, last) = match word.split_once('-') {
        Some((first, last)) => (slot(first)?, slot(last)?),
        None => (slot(word)?, slot(word)?),
    };
    if first > last {
        return Err(SlotRangeError::Backwards { first, last });
    }
    Ok(first..=last)
}
