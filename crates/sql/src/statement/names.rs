//! PostgreSQL's names of columns: `count` for `count(*)`, `?column?` for `1 + 1`.
//!
//! DataFusion requires that the columns of a query have different names, and PostgreSQL does not. A name that
//! another column has, or that may mean something else within the query, is followed by [`HIDDEN`] and a
//! number; results show only the part before it.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{
    DataType, Expr, Ident, OrderByKind, Query, Select, SelectItem, SetExpr, Statement, TableFactor,
    TableWithJoins, TimezoneInfo, Value,
};

/// The character between a column's name and the number that distinguishes it from others.
const HIDDEN: char = '\u{1}';

/// Returns the part of a column's name that results show.
pub(crate) fn shown(name: &str) -> &str {
    name.split(HIDDEN).next().unwrap_or(name)
}

/// Returns the schema with the names that results show.
pub(crate) fn shown_schema(schema: &SchemaRef) -> SchemaRef {
    let fields = schema.fields();
    if !fields.iter().any(|field| field.name().contains(HIDDEN)) {
        return Arc::clone(schema);
    }
    let fields = fields.iter().map(|field| {
        let name = shown(field.name()).to_owned();
        field.as_ref().clone().with_name(name)
    });
    let fields: Vec<_> = fields.collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

/// Returns a query with a name for each of its columns; `None` if it is no query, or has names for all of
/// them.
pub(crate) fn named(statement: &DfStatement) -> Option<DfStatement> {
    let DfStatement::Statement(of) = statement else {
        return None;
    };
    let mut changed = of.as_ref().clone();
    match &mut changed {
        Statement::Query(query) => name_query(query),
        Statement::Prepare { statement, .. } => match statement.as_mut() {
            Statement::Query(query) => name_query(query),
            _ => return None,
        },
        _ => return None,
    }
    (changed != **of).then(|| DfStatement::Statement(Box::new(changed)))
}

fn name_query(query: &mut Query) {
    if let Some(with) = &mut query.with {
        for table in &mut with.cte_tables {
            name_query(&mut table.query);
        }
    }
    order_by_places(query);
    name_body(&mut query.body);
}

/// Orders a query by the places of its columns if the order repeats their expressions: DataFusion does not
/// find these in `SELECT DISTINCT`.
fn order_by_places(query: &mut Query) {
    let (SetExpr::Select(select), Some(order)) = (query.body.as_ref(), &mut query.order_by) else {
        return;
    };
    let OrderByKind::Expressions(keys) = &mut order.kind else {
        return;
    };
    let items = select.projection.iter().map(|item| match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => Some(expr),
        _ => None,
    });
    // The columns of a wildcard are not known here, and so no places after it.
    let Some(items) = items.collect::<Option<Vec<&Expr>>>() else {
        return;
    };
    for key in keys {
        let is_plain = matches!(key.expr, Expr::Value(_)) || column(&key.expr).is_some();
        let place = items.iter().position(|item| **item == key.expr);
        if let Some(place) = place.filter(|_| !is_plain) {
            let number = Value::Number((place + 1).to_string(), false);
            key.expr = Expr::Value(number.with_empty_span());
        }
    }
}

fn name_body(body: &mut SetExpr) {
    match body {
        SetExpr::Select(select) => name_select(select),
        SetExpr::Query(query) => name_query(query),
        SetExpr::SetOperation { left, right, .. } => {
            name_body(left);
            name_body(right);
        }
        _ => {}
    }
}

fn name_select(select: &mut Select) {
    for table in &mut select.from {
        name_tables(table);
    }
    // In these clauses a name of an output column may not hide that of an input column.
    let hides = select.having.is_some() || select.qualify.is_some();
    let has_wildcard = select.projection.iter().any(|item| {
        matches!(
            item,
            SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..)
        )
    });
    let given = select.projection.iter().filter_map(|item| match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(folded(alias)),
        SelectItem::UnnamedExpr(expr) => column(expr),
        _ => None,
    });
    let columns: HashSet<String> = given.collect();
    let mut taken = HashSet::new();
    for (place, item) in select.projection.iter_mut().enumerate() {
        let (name, is_column, is_function) = match item {
            SelectItem::ExprWithAlias { alias, .. } => (folded(alias), true, false),
            SelectItem::UnnamedExpr(expr) => match column(expr) {
                Some(name) => (name, true, false),
                None => (figured(expr), false, is_call(expr)),
            },
            _ => continue,
        };
        let is_first = taken.insert(name.clone());
        let keeps = is_first
            && match (is_column, is_function) {
                (true, _) => !has_wildcard || matches!(item, SelectItem::ExprWithAlias { .. }),
                (false, true) => !hides && !has_wildcard && !columns.contains(&name),
                (false, false) => false,
            };
        if is_column && keeps {
            continue;
        }
        let alias = match keeps {
            true => name,
            false => format!("{name}{HIDDEN}{place}"),
        };
        let alias = Ident::with_quote('"', alias);
        match item {
            SelectItem::UnnamedExpr(expr) => {
                let nothing = Expr::Value(Value::Null.with_empty_span());
                let expr = std::mem::replace(expr, nothing);
                *item = SelectItem::ExprWithAlias { expr, alias };
            }
            SelectItem::ExprWithAlias { alias: given, .. } => *given = alias,
            _ => {}
        }
    }
}

fn name_tables(tables: &mut TableWithJoins) {
    let joined = tables.joins.iter_mut().map(|join| &mut join.relation);
    for table in std::iter::once(&mut tables.relation).chain(joined) {
        match table {
            TableFactor::Derived { subquery, .. } => name_query(subquery),
            TableFactor::NestedJoin {
                table_with_joins, ..
            } => name_tables(table_with_joins),
            _ => {}
        }
    }
}

/// Returns a name as SQL understands it: in lower case, unless quoted.
fn folded(ident: &Ident) -> String {
    match ident.quote_style {
        Some(_) => ident.value.clone(),
        None => ident.value.to_lowercase(),
    }
}

/// Returns the name of a column, if the expression is one.
fn column(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Identifier(name) => Some(folded(name)),
        Expr::CompoundIdentifier(names) => names.last().map(folded),
        _ => None,
    }
}

fn is_call(expr: &Expr) -> bool {
    matches!(expr, Expr::Function(_))
}

/// Returns the name that PostgreSQL gives a column (`FigureColname` in its `parse_target.c`).
fn figured(expr: &Expr) -> String {
    strong(expr)
        .or_else(|| weak(expr))
        .unwrap_or_else(|| "?column?".to_owned())
}

/// Returns a name that a cast around the expression does not replace.
fn strong(expr: &Expr) -> Option<String> {
    let name = match expr {
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) => return column(expr),
        Expr::Function(function) => {
            return function.name.0.last()?.as_ident().map(folded);
        }
        Expr::Nested(inner) | Expr::Collate { expr: inner, .. } => return strong(inner),
        Expr::Cast { expr: inner, .. } => return strong(inner),
        Expr::Case { else_result, .. } => return strong(else_result.as_deref()?),
        Expr::Subquery(query) => return of_query(query),
        Expr::Exists { .. } => "exists",
        Expr::Extract { .. } => "extract",
        Expr::Substring { .. } => "substring",
        Expr::Trim { .. } => "btrim",
        Expr::Position { .. } => "position",
        Expr::Overlay { .. } => "overlay",
        Expr::Ceil { .. } => "ceil",
        Expr::Floor { .. } => "floor",
        Expr::AtTimeZone { .. } => "timezone",
        Expr::Array(_) => "array",
        Expr::Tuple(_) => "row",
        _ => return None,
    };
    Some(name.to_owned())
}

/// Returns a name that the type of a cast gives.
fn weak(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Nested(inner) | Expr::Collate { expr: inner, .. } => weak(inner),
        Expr::Cast { data_type, .. } => Some(type_name(data_type)),
        Expr::TypedString(typed) => Some(type_name(&typed.data_type)),
        Expr::Interval(_) => Some("interval".to_owned()),
        Expr::Case { .. } => Some("case".to_owned()),
        _ => None,
    }
}

fn of_query(query: &Query) -> Option<String> {
    let mut body = query.body.as_ref();
    loop {
        match body {
            SetExpr::Select(select) => {
                return match select.projection.first()? {
                    SelectItem::UnnamedExpr(expr) => Some(figured(expr)),
                    SelectItem::ExprWithAlias { alias, .. } => {
                        Some(shown(&folded(alias)).to_owned())
                    }
                    _ => None,
                };
            }
            SetExpr::Query(query) => body = query.body.as_ref(),
            SetExpr::SetOperation { left, .. } => body = left,
            _ => return None,
        }
    }
}

fn type_name(data_type: &DataType) -> String {
    let name = match data_type {
        DataType::Bool | DataType::Boolean => "bool",
        DataType::SmallInt(_) | DataType::Int2(_) => "int2",
        DataType::Int(_) | DataType::Integer(_) | DataType::Int4(_) => "int4",
        DataType::BigInt(_) | DataType::Int8(_) => "int8",
        DataType::Real | DataType::Float4 => "float4",
        DataType::Double(_) | DataType::DoublePrecision | DataType::Float8 => "float8",
        DataType::Numeric(_) | DataType::Decimal(_) | DataType::Dec(_) => "numeric",
        DataType::Char(_) | DataType::Character(_) => "bpchar",
        DataType::Varchar(_) | DataType::CharacterVarying(_) => "varchar",
        DataType::Text => "text",
        DataType::Date => "date",
        DataType::Timestamp(_, TimezoneInfo::WithTimeZone | TimezoneInfo::Tz) => "timestamptz",
        DataType::Timestamp(..) => "timestamp",
        DataType::Time(_, TimezoneInfo::WithTimeZone | TimezoneInfo::Tz) => "timetz",
        DataType::Time(..) => "time",
        other => return other.to_string().to_lowercase(),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use datafusion::sql::parser::DFParser;

    use super::*;

    fn names(sql: &str) -> Vec<String> {
        let mut statements = DFParser::parse_sql(sql).unwrap();
        let statement = statements.pop_front().unwrap();
        let statement = named(&statement).unwrap_or(statement);
        let DfStatement::Statement(statement) = statement else {
            panic!("it is a statement");
        };
        let Statement::Query(query) = *statement else {
            panic!("it is a query");
        };
        let SetExpr::Select(select) = *query.body else {
            panic!("it selects");
        };
        let names = select.projection.iter().map(|item| match item {
            SelectItem::UnnamedExpr(expr) => figured(expr),
            SelectItem::ExprWithAlias { alias, .. } => alias.value.clone(),
            other => other.to_string(),
        });
        names.collect()
    }

    #[test]
    fn columns_have_the_names_that_postgresql_gives() {
        let sql = "select count(*), Sum(x), t.Y, 1, 1 + 1, x::int, '1'::int, case when a then b end, \
                   case when a then 1 else c end, cast(max(x) as text), exists (select 1), date '2020-01-01', \
                   (select min(z) from t), extract(year from d), array[1], \"Q\" from t";
        let all = names(sql);
        let all: Vec<&str> = all.iter().map(|name| shown(name)).collect();
        assert_eq!(
            all,
            [
                "count", "sum", "y", "?column?", "?column?", "x", "int4", "case", "c", "max",
                "exists", "date", "min", "extract", "array", "Q"
            ]
        );
    }

    #[test]
    fn columns_of_one_name_can_be_told_apart() {
        for sql in [
            "select id, id, id from t",
            "select count(*), count(*) from t",
            "select 1, 1",
            "select a as x, b as x from t",
            "select count(*), count from t group by count",
        ] {
            let all = names(sql);
            let different: HashSet<&String> = all.iter().collect();
            assert_eq!(different.len(), all.len(), "{sql}: {all:?}");
            assert!(all.iter().all(|name| shown(name) == shown(&all[0])) || sql.contains("group"));
        }
        assert_eq!(names("select id, id from t")[0], "id");
        // In HAVING a name means a column of the input.
        assert_ne!(names("select count(*) from t having count > 1")[0], "count");
        assert_eq!(names("select count(*) from t order by count")[0], "count");
    }
}
