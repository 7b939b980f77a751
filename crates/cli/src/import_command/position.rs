//! How far an import from a running server has come: the value of a key of the import's own, in database 0 of the
//! target.
//!
//! The value is a text: words with a blank between them.
//!
//! | word | is |
//! |---|---|
//! | `1` | the version of this table |
//! | `copying`, `following`, `settling`, `finishing`, `failed` | the phase |
//! | id | of the source's replication; `?` while it is copied |
//! | offset | the number of the stream's last byte whose effects are in the target |
//! | database | the one that the stream has selected there |
//! | `alone`, `shared` | whether the target was empty when the import began |
//! | time | in the phase `settling`: keys whose own deadline lies behind it, in milliseconds since the Unix epoch, may have it already |
//! | text | in the phase `failed`: the reason, which may have blanks |
//!
//! Every transaction that applies commands of the stream writes it, too.

use std::fmt;

/// The key.
pub(super) const KEY: &[u8] = b"kumiki:import";
const VERSION: &str = "1";

/// See the module's description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ImportPosition {
    pub(super) phase: ImportPhase,
    pub(super) replication_id: String,
    pub(super) offset: u64,
    pub(super) database: u64,
    /// The target was not empty when the import began.
    pub(super) is_shared: bool,
}

/// What an import does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ImportPhase {
    /// It copies all keys.
    Copying,
    /// It applies the stream. All deadlines are shifted.
    Following,
    /// It applies the stream, and gives keys their own deadlines if these lie behind a time.
    Settling { until_ms: u64 },
    /// The whole stream is applied, and all keys get their own deadlines.
    Finishing,
    /// A command of the stream was refused: the target differs from the source.
    Failed { reason: String },
}

impl ImportPosition {
    /// Returns the position of an import that begins.
    pub(super) fn copying(is_shared: bool) -> ImportPosition {
        ImportPosition {
            phase: ImportPhase::Copying,
            replication_id: "?".to_owned(),
            offset: 0,
            database: 0,
            is_shared,
        }
    }

    /// Parses the value of the key.
    ///
    /// # Errors
    /// The text says that it is not one.
    pub(super) fn parse(text: &[u8]) -> Result<ImportPosition, String> {
        let parsed = std::str::from_utf8(text)
            .ok()
            .and_then(ImportPosition::parsed);
        parsed.ok_or_else(|| {
            format!(
                "the key '{}' of the target has a value that this release of 'kumiki import' has not written",
                String::from_utf8_lossy(KEY)
            )
        })
    }

    fn parsed(text: &str) -> Option<ImportPosition> {
        let mut words = text.splitn(7, ' ');
        if words.next()? != VERSION {
            return None;
        }
        let phase = words.next()?;
        let replication_id = words.next()?.to_owned();
        let offset = words.next()?.parse().ok()?;
        let database = words.next()?.parse().ok()?;
        let is_shared = match words.next()? {
            "alone" => false,
            "shared" => true,
            _ => return None,
        };
        let rest = words.next();
        let phase = match (phase, rest) {
            ("copying", None) => ImportPhase::Copying,
            ("following", None) => ImportPhase::Following,
            ("settling", Some(time)) => ImportPhase::Settling {
                until_ms: time.parse().ok()?,
            },
            ("finishing", None) => ImportPhase::Finishing,
            ("failed", Some(reason)) => ImportPhase::Failed {
                reason: reason.to_owned(),
            },
            _ => return None,
        };
        Some(ImportPosition {
            phase,
            replication_id,
            offset,
            database,
            is_shared,
        })
    }
}

impl fmt::Display for ImportPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (phase, rest) = match &self.phase {
            ImportPhase::Copying => ("copying", None),
            ImportPhase::Following => ("following", None),
            ImportPhase::Settling { until_ms } => ("settling", Some(until_ms.to_string())),
            ImportPhase::Finishing => ("finishing", None),
            ImportPhase::Failed { reason } => ("failed", Some(reason.clone())),
        };
        let share = match self.is_shared {
            true => "shared",
            false => "alone",
        };
        let ImportPosition {
            replication_id,
            offset,
            database,
            ..
        } = self;
        write!(
            f,
            "{VERSION} {phase} {replication_id} {offset} {database} {share}"
        )?;
        rest.map_or(Ok(()), |rest| write!(f, " {rest}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_read_as_it_was_written() {
        for phase in [
            ImportPhase::Copying,
            ImportPhase::Following,
            ImportPhase::Settling { until_ms: 17 },
            ImportPhase::Finishing,
            ImportPhase::Failed {
                reason: "it refuses 'a b'".to_owned(),
            },
        ] {
            for is_shared in [false, true] {
                let position = ImportPosition {
                    phase: phase.clone(),
                    offset: 1 << 40,
                    database: 3,
                    ..ImportPosition::copying(is_shared)
                };
                let text = position.to_string();
                assert_eq!(
                    ImportPosition::parse(text.as_bytes()),
                    Ok(position),
                    "{text}"
                );
            }
        }
    }

    #[test]
    fn another_value_is_refused() {
        for text in [
            "",
            "1",
            "2 copying ? 0 0 alone",
            "1 settling ? 0 0 alone",
            "1 x ? 0 0 alone",
        ] {
            assert!(ImportPosition::parse(text.as_bytes()).is_err(), "{text}");
        }
    }
}
