//! Reads a statement with a request's values: its row, the columns that it sets, and its condition.
//!
//! A value must have the type of the table's column. Otherwise the statement is refused, in Cassandra's
//! words.

use std::time::Duration;

use ::locks::LockLease;
use cql::notation::NotationReader;
use cql::statement::lock::{Equalities, SUPPORTED};
use cql::statement::{Condition, KeyTerms, Literal, Name, Selection, Term};
use cql::{Bound, BoundValues, CqlValue, DataType};

use super::schema::Schema;
use crate::error::ProxyError;

/// The longest lease that Cassandra accepts, in seconds.
const MAX_TTL: i32 = 20 * 365 * 24 * 60 * 60;

/// A column and its value; `None` is null.
pub(crate) type ColumnValue = (usize, Option<Vec<u8>>);

/// The condition on a row for a statement to be executed.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum RowCondition {
    /// The row exists.
    Exist,
    /// Its columns have these values.
    Equal(Vec<ColumnValue>),
}

impl RowCondition {
    /// Returns the columns of the condition, each once.
    pub(crate) fn places(&self) -> Vec<usize> {
        let mut places = Vec::new();
        if let RowCondition::Equal(values) = self {
            for (at, _) in values {
                if !places.contains(at) {
                    places.push(*at);
                }
            }
        }
        places
    }
}

/// A statement's table, with a request's values.
pub(crate) struct StatementReader<'a> {
    pub(crate) schema: &'a Schema,
    pub(crate) values: &'a BoundValues<'a>,
}

/// The value of a term: unset, null, or bytes.
enum TermValue {
    Unset,
    Null,
    Bytes(Vec<u8>),
}

impl StatementReader<'_> {
    /// Returns the place of a column.
    fn column(&self, name: &str) -> Result<usize, ProxyError> {
        let found = self.schema.column(name).map(|(at, _)| at);
        found.ok_or_else(|| {
            let table = &self.schema.name;
            ProxyError::invalid_request(format!("Undefined column name {name} in table {table}"))
        })
    }

    /// Returns the value of a term in a column of this name and type.
    fn term_value(
        &self,
        term: &Term<'_>,
        name: &str,
        data_type: &DataType,
    ) -> Result<TermValue, ProxyError> {
        let bytes = match term {
            Term::Literal(Literal::Null) => return Ok(TermValue::Null),
            Term::Literal(literal) => {
                let value = literal.to_value(data_type).and_then(|it| it.to_bytes());
                value.ok_or_else(|| {
                    ProxyError::invalid_request(format!(
                        "Invalid constant for {name} of type {data_type:?}: bind it instead"
                    ))
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
                        return Err(ProxyError::invalid_request(format!(
                            "Invalid amount of bind variables: {name} has none"
                        )));
                    }
                    Some(Bound::Null) => return Ok(TermValue::Null),
                    Some(Bound::Unset) => return Ok(TermValue::Unset),
                    Some(Bound::Bytes(bytes)) => bytes.to_vec(),
                }
            }
        };
        match fits(&bytes, data_type) {
            true => Ok(TermValue::Bytes(one_of_equals(bytes, data_type))),
            false => Err(ProxyError::invalid_request(format!(
                "Invalid value for {name} of type {data_type:?}"
            ))),
        }
    }

    fn of_column(&self, name: &str, term: &Term<'_>) -> Result<(usize, TermValue), ProxyError> {
        let at = self.column(name)?;
        let data_type = &self.schema.columns.0[at].data_type;
        Ok((at, self.term_value(term, name, data_type)?))
    }

    /// Returns the values of the key's columns, from values given by column.
    fn whole_key(
        &self,
        mut term_value: Vec<(usize, TermValue)>,
    ) -> Result<Vec<Vec<u8>>, ProxyError> {
        let mut key = Vec::new();
        for (rank, &place) in self.schema.key.iter().enumerate() {
            let name = &self.schema.columns.0[place].name;
            let Some(at) = term_value.iter().position(|(at, _)| *at == place) else {
                return Err(ProxyError::invalid_request(
                    match rank < self.schema.partition {
                        true => format!("Some partition key parts are missing: {name}"),
                        false => format!("Some clustering keys are missing: {name}"),
                    },
                ));
            };
            match term_value.swap_remove(at).1 {
                TermValue::Bytes(bytes)
                    if bytes.is_empty() && self.schema.partition == 1 && rank == 0 =>
                {
                    return Err(ProxyError::invalid_request("Key may not be empty"));
                }
                TermValue::Bytes(bytes) if bytes.len() > usize::from(u16::MAX) => {
                    return Err(ProxyError::invalid_request(format!(
                        "{name} is longer than a key may be"
                    )));
                }
                TermValue::Bytes(bytes) => key.push(bytes),
                TermValue::Null => {
                    return Err(ProxyError::invalid_request(format!(
                        "Invalid null value in condition for column {name}"
                    )));
                }
                TermValue::Unset => {
                    return Err(ProxyError::invalid_request(format!(
                        "Invalid unset value for column {name}"
                    )));
                }
            }
        }
        Ok(key)
    }

    /// Returns the values of the key's columns, as `WHERE` gives them.
    pub(crate) fn key(&self, equalities: &Equalities<'_>) -> Result<Vec<Vec<u8>>, ProxyError> {
        let mut term_value: Vec<(usize, TermValue)> = Vec::new();
        for (name, term) in equalities {
            let (at, value) = self.of_column(name, term)?;
            if !self.schema.is_key(at) {
                return Err(ProxyError::invalid_request(format!(
                    "Non PRIMARY KEY columns found in where clause: {name} "
                )));
            }
            if term_value.iter().any(|(other, _)| *other == at) {
                return Err(ProxyError::invalid_request(format!(
                    "{name} cannot be restricted by more than one relation if it includes an Equal"
                )));
            }
            term_value.push((at, value));
        }
        self.whole_key(term_value)
    }

    /// Returns the keys that a read names: all combinations of the values of the key's columns, the
    /// last column's values fastest.
    pub(crate) fn keys(
        &self,
        restrictions: &[(Name<'_>, KeyTerms<'_>)],
        most: usize,
    ) -> Result<Vec<Vec<Vec<u8>>>, ProxyError> {
        let mut columns: Vec<(usize, Vec<Vec<u8>>)> = Vec::new();
        for (name, terms) in restrictions {
            let at = self.column(name)?;
            if !self.schema.is_key(at) {
                return Err(ProxyError::invalid_request(format!(
                    "Non PRIMARY KEY columns found in where clause: {name} "
                )));
            }
            if columns.iter().any(|(other, _)| *other == at) {
                return Err(ProxyError::invalid_request(format!(
                    "{name} cannot be restricted by more than one relation if it includes an Equal"
                )));
            }
            columns.push((at, self.key_values(name, terms)?));
        }
        columns.sort_by_key(|(at, _)| self.schema.key.iter().position(|place| place == at));
        let count = columns.iter().map(|(_, values)| values.len());
        let count = count.fold(1_usize, usize::saturating_mul);
        if count > most {
            return Err(ProxyError::invalid_request(format!(
                "a read names at most {most} rows, and this one {count}"
            )));
        }
        let mut keys = vec![Vec::new()];
        for (at, values) in &columns {
            let longer = keys.iter().flat_map(|key: &Vec<(usize, Vec<u8>)>| {
                let with = |value: &Vec<u8>| [&key[..], &[(*at, value.clone())]].concat();
                values.iter().map(with)
            });
            keys = longer.collect();
        }
        let whole = keys.into_iter().map(|key| {
            let values = key.into_iter();
            self.whole_key(
                values
                    .map(|(at, bytes)| (at, TermValue::Bytes(bytes)))
                    .collect(),
            )
        });
        whole.collect()
    }

    /// Returns the values that a read names in one column of the key.
    fn key_values(&self, name: &str, terms: &KeyTerms<'_>) -> Result<Vec<Vec<u8>>, ProxyError> {
        let invalid = |what: &str| {
            ProxyError::invalid_request(format!(
                "Invalid {what} value in condition for column {name}"
            ))
        };
        let data_type = &self.schema.columns.0[self.column(name)?].data_type;
        let terms = match terms {
            KeyTerms::One(term) => std::slice::from_ref(term),
            KeyTerms::Several(terms) => terms,
            KeyTerms::List(marker) => {
                let by_column = || match (self.values.are_named(), &marker.name) {
                    (true, None) => self.values.by_name(&format!("in({name})")),
                    _ => None,
                };
                let bytes = match marker.value(self.values).or_else(by_column) {
                    Some(Bound::Bytes(bytes)) => bytes,
                    Some(Bound::Null) => return Err(invalid("null")),
                    Some(Bound::Unset) => return Err(invalid("unset")),
                    None => {
                        return Err(ProxyError::invalid_request(format!(
                            "Invalid amount of bind variables: {name} has none"
                        )));
                    }
                };
                return list(bytes, data_type).ok_or_else(|| invalid("list"));
            }
        };
        let values = terms
            .iter()
            .map(|term| match self.term_value(term, name, data_type)? {
                TermValue::Bytes(bytes) => Ok(bytes),
                TermValue::Null => Err(invalid("null")),
                TermValue::Unset => Err(invalid("unset")),
            });
        values.collect()
    }

    /// Returns the key that `INSERT` gives, and the columns that it sets.
    pub(crate) fn insert(
        &self,
        equalities: &Equalities<'_>,
    ) -> Result<(Vec<Vec<u8>>, Vec<ColumnValue>), ProxyError> {
        let term_value = equalities
            .iter()
            .map(|(name, term)| self.of_column(name, term));
        let term_value = term_value.collect::<Result<Vec<_>, _>>()?;
        let (key, others): (Vec<_>, Vec<_>) = term_value
            .into_iter()
            .partition(|(at, _)| self.schema.is_key(*at));
        Ok((self.whole_key(key)?, sets(others)))
    }

    /// Returns the columns that `UPDATE` sets.
    pub(crate) fn assignments(
        &self,
        equalities: &Equalities<'_>,
    ) -> Result<Vec<ColumnValue>, ProxyError> {
        let mut term_value: Vec<(usize, TermValue)> = Vec::new();
        for (name, term) in equalities {
            let (at, value) = self.of_column(name, term)?;
            if self.schema.is_key(at) {
                return Err(ProxyError::invalid_request(format!(
                    "PRIMARY KEY part {name} found in SET part"
                )));
            }
            if term_value.iter().any(|(other, _)| *other == at) {
                return Err(ProxyError::invalid_request(format!(
                    "Multiple incompatible setting of column {name}"
                )));
            }
            term_value.push((at, value));
        }
        Ok(sets(term_value))
    }

    /// Returns the condition after `IF`.
    pub(crate) fn condition(&self, condition: &Condition<'_>) -> Result<RowCondition, ProxyError> {
        let Condition::Equal(equalities) = condition else {
            return Ok(RowCondition::Exist);
        };
        let mut must = Vec::new();
        for (name, term) in equalities {
            let (at, value) = self.of_column(name, term)?;
            if self.schema.is_key(at) {
                return Err(ProxyError::invalid_request(format!(
                    "PRIMARY KEY column '{name}' cannot have IF conditions"
                )));
            }
            must.push(match value {
                TermValue::Bytes(bytes) => (at, Some(bytes)),
                TermValue::Null => (at, None),
                TermValue::Unset => {
                    return Err(ProxyError::invalid_request(
                        "Invalid 'unset' value in condition",
                    ));
                }
            });
        }
        Ok(RowCondition::Equal(must))
    }

    /// Returns the lease that `USING TTL` gives, or else the table's default.
    pub(crate) fn lease(&self, ttl: Option<&Term<'_>>) -> Result<LockLease, ProxyError> {
        let default = self.schema.default_ttl;
        let term_value = ttl.map(|term| self.term_value(term, "[ttl]", &DataType::Int));
        let seconds = match term_value.transpose()? {
            None | Some(TermValue::Unset) => default,
            Some(TermValue::Null) => 0,
            Some(TermValue::Bytes(bytes)) => bytes.try_into().map_or(0, i32::from_be_bytes),
        };
        match seconds {
            0 => Ok(LockLease::Endless),
            ..0 => Err(ProxyError::invalid_request(format!(
                "A TTL must be greater or equal to 0, but was {seconds}"
            ))),
            _ if seconds > MAX_TTL => Err(ProxyError::invalid_request(format!(
                "ttl is too large. requested ({seconds}) maximum ({MAX_TTL})"
            ))),
            _ => Ok(LockLease::For(Duration::from_secs(
                seconds.unsigned_abs().into(),
            ))),
        }
    }

    /// Returns the columns that are selected, with their names in the result.
    pub(crate) fn selection(
        &self,
        selection: &Selection<'_>,
    ) -> Result<Vec<(usize, String)>, ProxyError> {
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
            Selection::Count(_) => Err(ProxyError::invalid_request(format!(
                "{SUPPORTED}: nothing is counted"
            ))),
        }
    }
}

/// Returns the columns to set: a column that is unset keeps its value.
fn sets(term_value: Vec<(usize, TermValue)>) -> Vec<ColumnValue> {
    let set = |(at, value)| match value {
        TermValue::Bytes(bytes) => Some((at, Some(bytes))),
        TermValue::Null => Some((at, None)),
        TermValue::Unset => None,
    };
    term_value.into_iter().filter_map(set).collect()
}

/// Returns the values of a list of a column's type; `None`: the bytes are no such list.
fn list(bytes: &[u8], data_type: &DataType) -> Option<Vec<Vec<u8>>> {
    let mut reader = NotationReader::new(bytes);
    let mut values = Vec::new();
    for _ in 0..reader.count("a negative number of elements").ok()? {
        let value = reader.bytes().ok()??;
        if !fits(value, data_type) {
            return None;
        }
        values.push(one_of_equals(value.to_vec(), data_type));
    }
    reader.rest().is_empty().then_some(values)
}

/// Returns `true` if the bytes are a value of a type of [`super::schema`].
fn fits(bytes: &[u8], data_type: &DataType) -> bool {
    match data_type {
        DataType::Ascii => bytes.is_ascii(),
        DataType::Date => [0, 4].contains(&bytes.len()),
        DataType::Time => [0, 8].contains(&bytes.len()),
        _ => CqlValue::decode(data_type, Some(bytes)).is_ok(),
    }
}

/// Returns the same bytes for all encodings of equal values.
fn one_of_equals(bytes: Vec<u8>, data_type: &DataType) -> Vec<u8> {
    match (data_type, &*bytes) {
        (DataType::Boolean, [truth]) => vec![u8::from(*truth != 0)],
        _ => bytes,
    }
}
