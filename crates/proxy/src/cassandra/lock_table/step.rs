//! A step of the lock recipe with its values: which lock it is about, and what becomes of it.
//!
//! | step | found | what happens, and what is told |
//! |---|---|---|
//! | INSERT | nothing | the row is set; applied |
//! | | a row | nothing; not applied, and all columns |
//! | UPDATE | a row, or none, as the condition wants | columns are set, which may make a row; applied |
//! | DELETE | the same | the row goes; applied, or nothing if there was no condition |
//! | both | a row with other values | nothing; not applied, and the condition's columns |
//! | | no row | nothing; not applied |
//! | SELECT | a row | the row |
//!
//! That is what Cassandra does, whose words are used where a statement is refused.

use std::sync::Arc;
use std::time::Duration;

use ::locks::{Lease, Lock, Verdict};
use cql::response::{ColumnSpec, Columns, RowsBuilder};
use cql::statement::lock::{Equalities, SUPPORTED};
use cql::statement::{Condition, Literal, LockStatement, LockVerb, Selection, Term};
use cql::{Bound, BoundValues, DataType, Value};

use super::row::{Mixed, Row};
use super::schema::Schema;
use crate::locks::letters::Aim;

/// With what the names of locks of CQL begin, which no client of RESP will choose by chance.
const PREFIX: &[u8] = b"\0cql\0";
/// The longest lease that Cassandra takes, in seconds.
const MAX_TTL: i32 = 20 * 365 * 24 * 60 * 60;
const MIXED: &str = "a lock has one lease for all of its columns: give USING TTL in all statements \
     about it or in none, or set all columns";
const NO_ROW: &str = "the lock of this key was not made by CQL";

/// A column and its value; `None` is null.
type Set = (usize, Option<Vec<u8>>);

/// See the module's page.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Step {
    schema: Arc<Schema>,
    /// The lock's name.
    pub(crate) lock: Vec<u8>,
    /// In the order of [`Schema::key`].
    key: Vec<Vec<u8>>,
    action: Action,
}

#[derive(Clone, PartialEq, Debug)]
enum Action {
    Insert {
        values: Vec<Set>,
        lease: Lease,
    },
    Update {
        values: Vec<Set>,
        lease: Lease,
        condition: Must,
    },
    Delete(Option<Must>),
    /// Columns, with their names in the result.
    Select(Vec<(usize, String)>),
}

#[derive(Clone, PartialEq, Debug)]
enum Must {
    Exist,
    Equal(Vec<Set>),
}

/// What becomes of a lock.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Judged {
    /// This.
    Applied(Verdict),
    /// Nothing: there is no row.
    Missing,
    /// Nothing: the row is another.
    Differs(Row),
    /// Nothing can.
    Refused(&'static str),
}

impl Step {
    /// What a statement asks for.
    ///
    /// # Errors
    /// What the client is told.
    pub(crate) fn new(
        schema: &Arc<Schema>,
        statement: &LockStatement<'_>,
        values: &BoundValues<'_>,
    ) -> Result<Step, String> {
        let reading = Reading { schema, values };
        let (key, action) = match &statement.verb {
            LockVerb::Insert { values, ttl } => {
                let (key, values) = reading.insert(values)?;
                let lease = reading.lease(ttl.as_ref())?;
                (key, Action::Insert { values, lease })
            }
            LockVerb::Update {
                ttl,
                assignments,
                key,
                condition,
            } => {
                let action = Action::Update {
                    values: reading.assignments(assignments)?,
                    lease: reading.lease(ttl.as_ref())?,
                    condition: reading.condition(condition)?,
                };
                (reading.key(key)?, action)
            }
            LockVerb::Delete { key, condition } => {
                let condition = condition.as_ref().map(|it| reading.condition(it));
                (reading.key(key)?, Action::Delete(condition.transpose()?))
            }
            LockVerb::Select { selection, key } => {
                let columns = reading.selection(selection)?;
                if key.len() < schema.key.len() {
                    return Err(format!("{SUPPORTED}: this is not the whole key"));
                }
                (reading.key(key)?, Action::Select(columns))
            }
        };
        let mut lock = [PREFIX, &schema.id].concat();
        for value in &key {
            lock.extend((value.len() as u16).to_be_bytes());
            lock.extend(value);
        }
        Ok(Step {
            schema: Arc::clone(schema),
            lock,
            key,
            action,
        })
    }

    /// Whether it changes nothing.
    pub(crate) fn reads(&self) -> bool {
        matches!(self.action, Action::Select(_))
    }

    /// What becomes of it when its client has gone. Who would make a row where there is none would
    /// hold a lock for nobody; what changes a row that there must be, or deletes it, may free one.
    pub(crate) fn aim(&self) -> Aim {
        match self.judge(None) {
            Judged::Applied(Verdict::Set { .. }) => Aim::Holds,
            _ => Aim::Other,
        }
    }

    /// What becomes of the lock. SELECT leaves it as it is.
    pub(crate) fn judge(&self, lock: Option<&Lock>) -> Judged {
        let row = match lock.map(Row::of) {
            None => Row::default(),
            Some(Some(row)) => row,
            Some(None) => return Judged::Refused(NO_ROW),
        };
        let must = match &self.action {
            Action::Insert { values, lease } if row.is_gone() => {
                let mut row = row;
                row.mark(*lease);
                return self.set(row, values, *lease);
            }
            Action::Insert { .. } | Action::Select(_) => return Judged::Differs(row),
            Action::Update { condition, .. } => Some(condition),
            Action::Delete(condition) => condition.as_ref(),
        };
        if !must.is_none_or(|must| self.holds(must, &row)) {
            return match row.is_gone() {
                true => Judged::Missing,
                false => Judged::Differs(row),
            };
        }
        match &self.action {
            Action::Update { values, lease, .. } => self.set(row, values, *lease),
            _ => Judged::Applied(Verdict::Remove),
        }
    }

    fn set(&self, mut row: Row, values: &[Set], lease: Lease) -> Judged {
        for (at, value) in values {
            row.set(self.name(*at), value.as_deref(), lease);
        }
        if row.is_gone() {
            return Judged::Applied(Verdict::Remove);
        }
        match row.encode() {
            Ok((value, lease)) => Judged::Applied(Verdict::Set { value, lease }),
            Err(Mixed) => Judged::Refused(MIXED),
        }
    }

    fn holds(&self, must: &Must, row: &Row) -> bool {
        match must {
            Must::Exist => !row.is_gone(),
            Must::Equal(values) => values
                .iter()
                .all(|(at, value)| row.value(self.name(*at)) == value.as_deref()),
        }
    }

    fn name(&self, column: usize) -> &str {
        &self.schema.columns.0[column].name
    }

    /// What is told of it; `None`: that it was done.
    pub(crate) fn told(&self, judged: &Judged) -> Option<RowsBuilder> {
        let (applied, row) = match judged {
            Judged::Applied(_) if self.action == Action::Delete(None) => return None,
            Judged::Applied(_) => (true, None),
            Judged::Missing | Judged::Refused(_) => (false, None),
            Judged::Differs(row) => (false, Some(row)),
        };
        let all = || (0..self.schema.columns.0.len()).collect();
        let places: Vec<usize> = match (&self.action, row) {
            (Action::Select(columns), row) => return Some(self.selected(columns, row)),
            (_, None) => Vec::new(),
            (Action::Update { condition, .. } | Action::Delete(Some(condition)), _) => {
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
        let mut values = vec![Value::Boolean(applied)];
        for place in places {
            columns.push(self.schema.columns.0[place].clone());
            values.push(self.value(row, place));
        }
        let mut builder = RowsBuilder::new(Columns(columns));
        builder.push(&values);
        Some(builder)
    }

    fn selected(&self, columns: &[(usize, String)], row: Option<&Row>) -> RowsBuilder {
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

    fn value(&self, row: Option<&Row>, place: usize) -> Value {
        let of_key = self.schema.key.iter().position(|&one| one == place);
        let bytes = match of_key {
            Some(at) => Some(&*self.key[at]),
            None => row.and_then(|row| row.value(self.name(place))),
        };
        bytes.map_or(Value::Null, |bytes| Value::Blob(bytes.to_vec()))
    }
}

impl Must {
    /// The columns that it is about, each once.
    fn places(&self) -> Vec<usize> {
        let mut places = Vec::new();
        if let Must::Equal(values) = self {
            for (at, _) in values {
                if !places.contains(at) {
                    places.push(*at);
                }
            }
        }
        places
    }
}

/// Reads a statement with a request's values.
struct Reading<'a> {
    schema: &'a Schema,
    values: &'a BoundValues<'a>,
}

/// What stands for a value: null, nothing at all, or bytes.
enum Given {
    Unset,
    Null,
    Bytes(Vec<u8>),
}

impl Reading<'_> {
    fn column(&self, name: &str) -> Result<usize, String> {
        let found = self.schema.column(name).map(|(at, _)| at);
        found.ok_or_else(|| {
            let table = &self.schema.name;
            format!("Undefined column name {name} in table {table}")
        })
    }

    /// What a term is in a column of this name and type.
    fn given(&self, term: &Term<'_>, name: &str, data_type: &DataType) -> Result<Given, String> {
        let bytes = match term {
            Term::Literal(Literal::Null) => return Ok(Given::Null),
            Term::Literal(literal) => {
                let value = literal.to_value(data_type).and_then(|it| it.to_bytes());
                value.ok_or_else(|| {
                    format!("Invalid constant for {name} of type {data_type:?}: bind it instead")
                })?
            }
            Term::Marker(marker) => {
                let bound = marker.value(self.values);
                let by_column = || match (self.values.are_named(), &marker.name) {
                    (true, None) => self.values.by_name(name),
                    _ => None,
                };
                match bound.or_else(by_column) {
                    None => {
                        return Err(format!("Invalid amount of bind variables: {name} has none"));
                    }
                    Some(Bound::Null) => return Ok(Given::Null),
                    Some(Bound::Unset) => return Ok(Given::Unset),
                    Some(Bound::Bytes(bytes)) => bytes.to_vec(),
                }
            }
        };
        match fits(&bytes, data_type) {
            true => Ok(Given::Bytes(one_of_equals(bytes, data_type))),
            false => Err(format!("Invalid value for {name} of type {data_type:?}")),
        }
    }

    fn of_column(&self, name: &str, term: &Term<'_>) -> Result<(usize, Given), String> {
        let at = self.column(name)?;
        let data_type = &self.schema.columns.0[at].data_type;
        Ok((at, self.given(term, name, data_type)?))
    }

    /// The values of the key's columns, of what is given by column.
    fn whole_key(&self, mut given: Vec<(usize, Given)>) -> Result<Vec<Vec<u8>>, String> {
        let mut key = Vec::new();
        for (rank, &place) in self.schema.key.iter().enumerate() {
            let name = &self.schema.columns.0[place].name;
            let Some(at) = given.iter().position(|(at, _)| *at == place) else {
                return Err(match rank < self.schema.partition {
                    true => format!("Some partition key parts are missing: {name}"),
                    false => format!("Some clustering keys are missing: {name}"),
                });
            };
            match given.swap_remove(at).1 {
                Given::Bytes(bytes)
                    if bytes.is_empty() && self.schema.partition == 1 && rank == 0 =>
                {
                    return Err("Key may not be empty".to_owned());
                }
                Given::Bytes(bytes) if bytes.len() > usize::from(u16::MAX) => {
                    return Err(format!("{name} is longer than a key may be"));
                }
                Given::Bytes(bytes) => key.push(bytes),
                Given::Null => {
                    return Err(format!("Invalid null value in condition for column {name}"));
                }
                Given::Unset => return Err(format!("Invalid unset value for column {name}")),
            }
        }
        Ok(key)
    }

    fn key(&self, equalities: &Equalities<'_>) -> Result<Vec<Vec<u8>>, String> {
        let mut given: Vec<(usize, Given)> = Vec::new();
        for (name, term) in equalities {
            let (at, value) = self.of_column(name, term)?;
            if !self.schema.is_key(at) {
                return Err(format!(
                    "Non PRIMARY KEY columns found in where clause: {name} "
                ));
            }
            if given.iter().any(|(other, _)| *other == at) {
                return Err(format!(
                    "{name} cannot be restricted by more than one relation if it includes an Equal"
                ));
            }
            given.push((at, value));
        }
        self.whole_key(given)
    }

    fn insert(&self, equalities: &Equalities<'_>) -> Result<(Vec<Vec<u8>>, Vec<Set>), String> {
        let given = equalities
            .iter()
            .map(|(name, term)| self.of_column(name, term));
        let given = given.collect::<Result<Vec<_>, _>>()?;
        let (key, others): (Vec<_>, Vec<_>) = given
            .into_iter()
            .partition(|(at, _)| self.schema.is_key(*at));
        Ok((self.whole_key(key)?, sets(others)))
    }

    fn assignments(&self, equalities: &Equalities<'_>) -> Result<Vec<Set>, String> {
        let mut given: Vec<(usize, Given)> = Vec::new();
        for (name, term) in equalities {
            let (at, value) = self.of_column(name, term)?;
            if self.schema.is_key(at) {
                return Err(format!("PRIMARY KEY part {name} found in SET part"));
            }
            if given.iter().any(|(other, _)| *other == at) {
                return Err(format!("Multiple incompatible setting of column {name}"));
            }
            given.push((at, value));
        }
        Ok(sets(given))
    }

    fn condition(&self, condition: &Condition<'_>) -> Result<Must, String> {
        let Condition::Equal(equalities) = condition else {
            return Ok(Must::Exist);
        };
        let mut must = Vec::new();
        for (name, term) in equalities {
            let (at, value) = self.of_column(name, term)?;
            if self.schema.is_key(at) {
                return Err(format!(
                    "PRIMARY KEY column '{name}' cannot have IF conditions"
                ));
            }
            must.push(match value {
                Given::Bytes(bytes) => (at, Some(bytes)),
                Given::Null => (at, None),
                Given::Unset => return Err("Invalid 'unset' value in condition".to_owned()),
            });
        }
        Ok(Must::Equal(must))
    }

    fn lease(&self, ttl: Option<&Term<'_>>) -> Result<Lease, String> {
        let default = self.schema.default_ttl;
        let given = ttl.map(|term| self.given(term, "[ttl]", &DataType::Int));
        let seconds = match given.transpose()? {
            None | Some(Given::Unset) => default,
            Some(Given::Null) => 0,
            Some(Given::Bytes(bytes)) => bytes.try_into().map_or(0, i32::from_be_bytes),
        };
        match seconds {
            0 => Ok(Lease::Endless),
            ..0 => Err(format!(
                "A TTL must be greater or equal to 0, but was {seconds}"
            )),
            _ if seconds > MAX_TTL => Err(format!(
                "ttl is too large. requested ({seconds}) maximum ({MAX_TTL})"
            )),
            _ => Ok(Lease::For(Duration::from_secs(
                seconds.unsigned_abs().into(),
            ))),
        }
    }

    fn selection(&self, selection: &Selection<'_>) -> Result<Vec<(usize, String)>, String> {
        match selection {
            Selection::All => {
                let columns = self.schema.columns.0.iter().enumerate();
                Ok(columns
                    .map(|(at, column)| (at, column.name.clone()))
                    .collect())
            }
            Selection::Columns(columns) => {
                let one = columns.iter().map(|column| {
                    Ok((self.column(&column.name)?, column.alias.as_ref().to_owned()))
                });
                one.collect()
            }
            Selection::Count(_) => Err(format!("{SUPPORTED}: nothing is counted")),
        }
    }
}

/// What is to be set: what is not given stays.
fn sets(given: Vec<(usize, Given)>) -> Vec<Set> {
    let set = |(at, value)| match value {
        Given::Bytes(bytes) => Some((at, Some(bytes))),
        Given::Null => Some((at, None)),
        Given::Unset => None,
    };
    given.into_iter().filter_map(set).collect()
}

/// Whether bytes are a value of a type of [`super::schema`].
fn fits(bytes: &[u8], data_type: &DataType) -> bool {
    match data_type {
        DataType::Ascii => bytes.is_ascii(),
        DataType::Date => [0, 4].contains(&bytes.len()),
        DataType::Time => [0, 8].contains(&bytes.len()),
        _ => Value::decode(data_type, Some(bytes)).is_ok(),
    }
}

/// Of bytes that are equal values, always the same.
fn one_of_equals(bytes: Vec<u8>, data_type: &DataType) -> Vec<u8> {
    match (data_type, &*bytes) {
        (DataType::Boolean, [truth]) => vec![u8::from(*truth != 0)],
        _ => bytes,
    }
}

#[cfg(test)]
mod tests;
