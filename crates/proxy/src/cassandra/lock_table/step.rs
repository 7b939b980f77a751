//! A step of the lock recipe with its values: its lock, and its effect on the lock.
//!
//! | step | row found | effect and reply |
//! |---|---|---|
//! | INSERT | none | the row is set; applied |
//! | | a row | no effect; not applied, and all columns |
//! | UPDATE | a row, or none, as the condition requires | columns are set, which may make a row; applied |
//! | DELETE | the same | the row goes; applied, or an empty reply if there was no condition |
//! | both | a row with other values | no effect; not applied, and the condition's columns |
//! | | no row | no effect; not applied |
//! | SELECT | a row | the row |
//!
//! Cassandra does the same, and its words are used where a statement is refused.

use std::sync::Arc;

use ::locks::{ChangeVerdict, Lock, LockLease};
use cql::response::{ColumnSpec, Columns, RowsBuilder};
use cql::statement::lock::SUPPORTED;
use cql::statement::{LockStatement, LockVerb};
use cql::{BoundValues, CqlValue, DataType};

use super::reading::{ColumnValue, RowCondition, StatementReader};
use super::row::{LockRow, Mixed};
use super::schema::Schema;
use crate::error::ProxyError;
use crate::locks::pending_requests::WhenAbandoned;

/// The prefix of the names of CQL's locks, which no client of RESP will choose by chance.
const PREFIX: &[u8] = b"\0cql\0";
const MIXED: &str = "a lock has one lease for all of its columns: give USING TTL in all statements \
     about it or in none, or set all columns";
const NO_ROW: &str = "the lock of this key was not made by CQL";

/// See the module documentation.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct LockStep {
    schema: Arc<Schema>,
    /// The lock's name.
    pub(crate) lock: Vec<u8>,
    /// The key's values, in the order of [`Schema::key`].
    key: Vec<Vec<u8>>,
    action: StepAction,
}

#[derive(Clone, PartialEq, Debug)]
enum StepAction {
    Insert {
        values: Vec<ColumnValue>,
        lease: LockLease,
    },
    Update {
        values: Vec<ColumnValue>,
        lease: LockLease,
        condition: RowCondition,
    },
    Delete(Option<RowCondition>),
    /// Columns, with their names in the result.
    Select(Vec<(usize, String)>),
}

/// The effect of a step on a lock.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum StepOutcome {
    /// The step is applied, with this verdict.
    Applied(ChangeVerdict),
    /// No effect: there is no row.
    Missing,
    /// No effect: the row differs from the condition.
    Differs(LockRow),
    /// The step is refused, with this error.
    Refused(&'static str),
}

impl LockStep {
    /// Makes the step that a statement asks for.
    ///
    /// # Errors
    /// Returns the error for the client.
    pub(crate) fn new(
        schema: &Arc<Schema>,
        statement: &LockStatement<'_>,
        values: &BoundValues<'_>,
    ) -> Result<LockStep, ProxyError> {
        let reading = StatementReader { schema, values };
        let (key, action) = match &statement.verb {
            LockVerb::Insert { values, ttl } => {
                let (key, values) = reading.insert(values)?;
                let lease = reading.lease(ttl.as_ref())?;
                (key, StepAction::Insert { values, lease })
            }
            LockVerb::Update {
                ttl,
                assignments,
                key,
                condition,
            } => {
                let action = StepAction::Update {
                    values: reading.assignments(assignments)?,
                    lease: reading.lease(ttl.as_ref())?,
                    condition: reading.condition(condition)?,
                };
                (reading.key(key)?, action)
            }
            LockVerb::Delete { key, condition } => {
                let condition = condition.as_ref().map(|it| reading.condition(it));
                (
                    reading.key(key)?,
                    StepAction::Delete(condition.transpose()?),
                )
            }
            LockVerb::Select { selection, key } => {
                let columns = reading.selection(selection)?;
                if key.len() < schema.key.len() {
                    return Err(ProxyError::invalid_request(format!(
                        "{SUPPORTED}: this is not the whole key"
                    )));
                }
                (reading.key(key)?, StepAction::Select(columns))
            }
        };
        let mut lock = [PREFIX, &schema.id].concat();
        for value in &key {
            lock.extend((value.len() as u16).to_be_bytes());
            lock.extend(value);
        }
        Ok(LockStep {
            schema: Arc::clone(schema),
            lock,
            key,
            action,
        })
    }

    /// Returns `true` if it changes nothing.
    pub(crate) fn reads(&self) -> bool {
        matches!(self.action, StepAction::Select(_))
    }

    /// Returns what happens with the step when its client has gone. A step that makes a row where there
    /// is none would hold a lock without an owner; one that changes or deletes an existing row may free
    /// a lock.
    pub(crate) fn when_abandoned(&self) -> WhenAbandoned {
        match self.evaluate(None) {
            StepOutcome::Applied(ChangeVerdict::Set { .. }) => WhenAbandoned::Holds,
            _ => WhenAbandoned::Other,
        }
    }

    /// Returns the effect on the lock. SELECT leaves it unchanged.
    pub(crate) fn evaluate(&self, lock: Option<&Lock>) -> StepOutcome {
        let row = match lock.map(LockRow::of) {
            None => LockRow::default(),
            Some(Some(row)) => row,
            Some(None) => return StepOutcome::Refused(NO_ROW),
        };
        let must = match &self.action {
            StepAction::Insert { values, lease } if row.is_gone() => {
                let mut row = row;
                row.mark(*lease);
                return self.set(row, values, *lease);
            }
            StepAction::Insert { .. } | StepAction::Select(_) => return StepOutcome::Differs(row),
            StepAction::Update { condition, .. } => Some(condition),
            StepAction::Delete(condition) => condition.as_ref(),
        };
        if !must.is_none_or(|must| self.holds(must, &row)) {
            return match row.is_gone() {
                true => StepOutcome::Missing,
                false => StepOutcome::Differs(row),
            };
        }
        match &self.action {
            StepAction::Update { values, lease, .. } => self.set(row, values, *lease),
            _ => StepOutcome::Applied(ChangeVerdict::Remove),
        }
    }

    fn set(&self, mut row: LockRow, values: &[ColumnValue], lease: LockLease) -> StepOutcome {
        for (at, value) in values {
            row.set(self.name(*at), value.as_deref(), lease);
        }
        if row.is_gone() {
            return StepOutcome::Applied(ChangeVerdict::Remove);
        }
        match row.encode() {
            Ok((value, lease)) => StepOutcome::Applied(ChangeVerdict::Set { value, lease }),
            Err(Mixed) => StepOutcome::Refused(MIXED),
        }
    }

    fn holds(&self, must: &RowCondition, row: &LockRow) -> bool {
        match must {
            RowCondition::Exist => !row.is_gone(),
            RowCondition::Equal(values) => values
                .iter()
                .all(|(at, value)| row.value(self.name(*at)) == value.as_deref()),
        }
    }

    fn name(&self, column: usize) -> &str {
        &self.schema.columns.0[column].name
    }

    /// Returns the rows of the reply; `None`: the reply is empty.
    pub(crate) fn reply_rows(&self, judged: &StepOutcome) -> Option<RowsBuilder> {
        let (applied, row) = match judged {
            StepOutcome::Applied(_) if self.action == StepAction::Delete(None) => return None,
            StepOutcome::Applied(_) => (true, None),
            StepOutcome::Missing | StepOutcome::Refused(_) => (false, None),
            StepOutcome::Differs(row) => (false, Some(row)),
        };
        let all = || (0..self.schema.columns.0.len()).collect();
        let places: Vec<usize> = match (&self.action, row) {
            (StepAction::Select(columns), row) => return Some(self.selected(columns, row)),
            (_, None) => Vec::new(),
            (StepAction::Update { condition, .. } | StepAction::Delete(Some(condition)), _) => {
                condition.places()
            }
            _ => all(),
        };
        let first = &self.schema.columns.0[0];
        let mut columns = vec![ColumnSpec {
            name: "[applied]".to_owned(),
            data_type: DataType::Boolean,
            ..first.clone()
        }];
        let mut values = vec![CqlValue::Boolean(applied)];
        for place in places {
            columns.push(self.schema.columns.0[place].clone());
            values.push(self.value(row, place));
        }
        let mut builder = RowsBuilder::new(Columns(columns));
        builder.push(&values);
        Some(builder)
    }

    fn selected(&self, columns: &[(usize, String)], row: Option<&LockRow>) -> RowsBuilder {
        let spec = |(at, name): &(usize, String)| ColumnSpec {
            name: name.clone(),
            ..self.schema.columns.0[*at].clone()
        };
        let mut builder = RowsBuilder::new(Columns(columns.iter().map(spec).collect()));
        if row.is_some_and(|row| !row.is_gone()) {
            let values: Vec<_> = columns.iter().map(|(at, _)| self.value(row, *at)).collect();
            builder.push(&values);
        }
        builder
    }

    fn value(&self, row: Option<&LockRow>, place: usize) -> CqlValue {
        let of_key = self.schema.key.iter().position(|&one| one == place);
        let bytes = match of_key {
            Some(at) => Some(&*self.key[at]),
            None => row.and_then(|row| row.value(self.name(place))),
        };
        bytes.map_or(CqlValue::Null, |bytes| CqlValue::Blob(bytes.to_vec()))
    }
}

#[cfg(test)]
mod tests;
