//! Tables of the system catalogue that the library lacks, or has otherwise than clients need them.
//!
//! | table | what is ours |
//! |---|---|
//! | `pg_class` | `relacl` and `reloptions`, which are null; `relpages` is 0: rows have no `ctid` by which pages could be read |
//! | `pg_attribute` | `atttypmod` of decimals, which has their digits |
//! | `pg_settings` | the settings of [`compatible`](super::compatible), and limits |
//! | `pg_indexes`, `pg_sequences` | the views, which are empty |

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use datafusion::arrow::array::{ArrayRef, Int32Array, RecordBatch, StringArray, new_null_array};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::common::{JoinType, Result, ScalarValue};
use datafusion::datasource::{MemTable, ViewTable, provider_as_source};
use datafusion::functions::expr_fn::coalesce;
use datafusion::logical_expr::{LogicalPlanBuilder, col, lit};
use futures::future::BoxFuture;

use crate::serve::compatible;

/// The view of indexes.
pub(super) const INDEXES: &str = "pg_indexes";
/// The view of sequences.
pub(super) const SEQUENCES: &str = "pg_sequences";

const ATTRIBUTE: &str = "pg_attribute";
const CLASS: &str = "pg_class";
const SETTINGS: &str = "pg_settings";

/// The library's system catalogue, which all connections of a server share: so the number of an object is the
/// same for all of them.
#[derive(Clone, Default)]
pub(crate) struct SharedCatalogue(Arc<OnceLock<Arc<dyn SchemaProvider>>>);

impl SharedCatalogue {
    /// Returns the catalogue that is shared: this one, if it is the first.
    pub(super) fn or(&self, own: Arc<dyn SchemaProvider>) -> Arc<dyn SchemaProvider> {
        Arc::clone(self.0.get_or_init(|| own))
    }
}

/// A catalogue some of whose tables are replaced.
#[derive(Debug)]
pub(super) struct Completed {
    of: Arc<dyn SchemaProvider>,
    /// The tables of pages.
    pages: Arc<dyn SchemaProvider>,
    tables: HashMap<&'static str, Arc<dyn TableProvider>>,
}

impl Completed {
    /// Completes the library's catalogue, for these tables of pages.
    ///
    /// # Errors
    /// Fails when the library's tables cannot be read.
    pub(super) async fn new(
        of: Arc<dyn SchemaProvider>,
        pages: Arc<dyn SchemaProvider>,
    ) -> Result<Completed> {
        let mut tables = HashMap::new();
        if let Some(class) = of.table(CLASS).await? {
            tables.insert(CLASS, with_rights(class)?);
        }
        if let Some(settings) = of.table(SETTINGS).await? {
            let schema = settings.schema();
            let all: Vec<_> = compatible::settings().collect();
            let columns = schema.fields().iter().map(|field| -> ArrayRef {
                let values = |of: fn(&(&'static str, &'static str)) -> &'static str| {
                    Arc::new(StringArray::from_iter_values(all.iter().map(of)))
                };
                match field.name().as_str() {
                    "name" => values(|(name, _)| name),
                    "setting" | "reset_val" => values(|(_, value)| value),
                    _ => new_null_array(field.data_type(), all.len()),
                }
            });
            let rows = RecordBatch::try_new(Arc::clone(&schema), columns.collect())?;
            let table = MemTable::try_new(schema, vec![vec![rows]])?;
            tables.insert(SETTINGS, Arc::new(table));
        }
        let of_indexes = [
            "schemaname",
            "tablename",
            "indexname",
            "tablespace",
            "indexdef",
        ];
        tables.insert(INDEXES, empty(&of_indexes)?);
        let of_sequences = ["schemaname", "sequencename", "sequenceowner", "data_type"];
        tables.insert(SEQUENCES, empty(&of_sequences)?);
        Ok(Completed { of, pages, tables })
    }

    /// Returns `pg_attribute` with the digits of decimals.
    fn attributes(&self) -> BoxFuture<'_, Result<Option<Arc<dyn TableProvider>>>> {
        Box::pin(self.joined_attributes())
    }

    async fn joined_attributes(&self) -> Result<Option<Arc<dyn TableProvider>>> {
        let (attribute, class) = (self.of.table(ATTRIBUTE).await?, self.of.table(CLASS).await?);
        let (Some(attribute), Some(class)) = (attribute, class) else {
            return Ok(None);
        };
        let (mut relations, mut names, mut modifiers) = (Vec::new(), Vec::new(), Vec::new());
        for relation in self.pages.table_names() {
            // The columns of a table that cannot be read now are not listed either.
            let Ok(Some(table)) = self.pages.table(&relation).await else {
                continue;
            };
            for field in table.schema().fields() {
                if let Some(modifier) = modifier(field.data_type()) {
                    relations.push(relation.clone());
                    names.push(field.name().clone());
                    modifiers.push(modifier);
                }
            }
        }
        let columns: [(_, ArrayRef); 3] = [
            ("decimal_relation", Arc::new(StringArray::from(relations))),
            ("decimal_name", Arc::new(StringArray::from(names))),
            ("decimal_modifier", Arc::new(Int32Array::from(modifiers))),
        ];
        let decimals = RecordBatch::try_from_iter(columns)?;
        let decimals = MemTable::try_new(decimals.schema(), vec![vec![decimals]])?;
        let class = scan("relations", class)?
            .project([
                col("oid").alias("relation_oid"),
                col("relname").alias("relation"),
            ])?
            .build()?;
        let decimals = scan("decimals", Arc::new(decimals))?.build()?;
        let schema = attribute.schema();
        let columns = schema
            .fields()
            .iter()
            .map(|field| match field.name().as_str() {
                name @ "atttypmod" => {
                    coalesce(vec![col("decimal_modifier"), col(name)]).alias(name)
                }
                name => col(name),
            });
        let columns: Vec<_> = columns.collect();
        let plan = scan("attributes", attribute)?
            .join(
                class,
                JoinType::Left,
                (vec!["attrelid"], vec!["relation_oid"]),
                None,
            )?
            .join(
                decimals,
                JoinType::Left,
                (
                    vec!["relation", "attname"],
                    vec!["decimal_relation", "decimal_name"],
                ),
                None,
            )?
            .project(columns)?
            .build()?;
        Ok(Some(Arc::new(ViewTable::new(plan, None))))
    }
}

fn scan(name: &str, table: Arc<dyn TableProvider>) -> Result<LogicalPlanBuilder> {
    LogicalPlanBuilder::scan(name, provider_as_source(table), None)
}

/// Returns what PostgreSQL calls the modifier of a type: of decimals their digits, and those behind the point.
fn modifier(data_type: &DataType) -> Option<i32> {
    match data_type {
        DataType::Decimal32(digits, scale)
        | DataType::Decimal64(digits, scale)
        | DataType::Decimal128(digits, scale)
        | DataType::Decimal256(digits, scale) => {
            let scale = u8::try_from(*scale).ok()?;
            Some((i32::from(*digits) << 16 | i32::from(scale)) + 4)
        }
        _ => None,
    }
}

/// Returns `pg_class` with the columns of rights and options, and without pages.
fn with_rights(class: Arc<dyn TableProvider>) -> Result<Arc<dyn TableProvider>> {
    let texts = DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true)));
    let none = ScalarValue::try_from(&texts)?;
    let schema = class.schema();
    let columns = schema
        .fields()
        .iter()
        .map(|field| match field.name().as_str() {
            name @ "relpages" => lit(0).alias(name),
            name => col(name),
        });
    let added = ["relacl", "reloptions"].map(|name| lit(none.clone()).alias(name));
    let columns: Vec<_> = columns.chain(added).collect();
    let plan = scan("relations", class)?.project(columns)?.build()?;
    Ok(Arc::new(ViewTable::new(plan, None)))
}

/// Returns a table that has columns of texts, and no rows.
fn empty(columns: &[&str]) -> Result<Arc<dyn TableProvider>> {
    let fields = columns
        .iter()
        .map(|name| Field::new(*name, DataType::Utf8, true));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    Ok(Arc::new(MemTable::try_new(schema, vec![Vec::new()])?))
}

#[async_trait]
impl SchemaProvider for Completed {
    fn table_names(&self) -> Vec<String> {
        let mut names = self.of.table_names();
        for name in self.tables.keys() {
            if !self.of.table_exist(name) {
                names.push((*name).to_owned());
            }
        }
        names.sort_unstable();
        names
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        match self.tables.get(name) {
            Some(table) => Ok(Some(Arc::clone(table))),
            None if name == ATTRIBUTE => self.attributes().await,
            None => self.of.table(name).await,
        }
    }

    fn table_exist(&self, name: &str) -> bool {
        self.tables.contains_key(name) || self.of.table_exist(name)
    }
}
