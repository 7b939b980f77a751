//! Queries over the system catalogue, as DataFusion takes them.
//!
//! | in a query | becomes |
//! |---|---|
//! | a `SELECT` that joins a table which has no rows about tables of pages, as `pg_index` | one that has no rows, with the same columns |
//! | `(SELECT x FROM … WHERE …)` as a value | `(SELECT max(x) FROM … WHERE …)`: DataFusion takes a correlated query for one row only so |
//! | `ARRAY(SELECT x …)` | `(SELECT array_agg(x) …)`, which differs where there are no rows |
//! | `array_to_string` of options and rights; `json_build_object` | null: nothing has options, identities or collations |
//! | `classoid = 'pg_class'::regclass` | the number that `pg_class` has in PostgreSQL, by which descriptions refer to it |
//! | `typinput = 'array_in'::regproc` | `typinput = 'array_in'`: functions are named here |
//! | `x::regtype::text` | `format_type(x, NULL)` |
//! | asyncpg's question about types, a recursive query | one about types of arrays: there are no composite ones and no ranges |
//! | `pg_stat_activity`, `pg_indexes`, `pg_sequences` | the same with their schema: the library knows it of its own tables alone |

use std::collections::HashMap;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, DataType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList,
    FunctionArguments, GroupByExpr, Ident, JoinOperator, ObjectName, ObjectNamePart, Query, Select,
    SelectItem, SetExpr, Statement, TableFactor, TableWithJoins, Value, Visit, VisitMut, Visitor,
    VisitorMut, visit_expressions, visit_relations,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use pgwire::api::Type;

use crate::serve::activity::VIEW;
use crate::serve::catalogue_tables::{INDEXES, SEQUENCES};
use crate::serve::system::SYSTEM_SCHEMA;

/// Tables that have no rows about tables of pages: these have no keys, no defaults, no triggers, and so on.
const WITHOUT_ROWS: [&str; 18] = [
    "pg_attrdef",
    "pg_constraint",
    "pg_enum",
    "pg_foreign_server",
    "pg_foreign_table",
    "pg_index",
    INDEXES,
    "pg_inherits",
    "pg_partitioned_table",
    "pg_policy",
    "pg_publication",
    "pg_publication_rel",
    "pg_rewrite",
    "pg_sequence",
    SEQUENCES,
    "pg_statistic_ext",
    "pg_subscription",
    "pg_trigger",
];

/// Views that the library does not know.
const OWN_VIEWS: [&str; 3] = [VIEW, INDEXES, SEQUENCES];

/// Functions that make one row of all.
const AGGREGATES: [&str; 13] = [
    "array_agg",
    "avg",
    "bool_and",
    "bool_or",
    "count",
    "every",
    "json_agg",
    "json_object_agg",
    "jsonb_agg",
    "max",
    "min",
    "string_agg",
    "sum",
];

/// Columns that say in which system table an object is, by that table's number in PostgreSQL.
const CLASSES: [&str; 3] = ["classid", "classoid", "refclassid"];

/// The numbers of system tables in PostgreSQL.
const NUMBERS: [(&str, &str); 11] = [
    ("pg_am", "2601"),
    ("pg_attribute", "1249"),
    ("pg_authid", "1260"),
    ("pg_class", "1259"),
    ("pg_constraint", "2606"),
    ("pg_database", "1262"),
    ("pg_extension", "3079"),
    ("pg_namespace", "2615"),
    ("pg_proc", "1255"),
    ("pg_trigger", "2620"),
    ("pg_type", "1247"),
];

/// Columns that have names of functions.
const FUNCTIONS: [&str; 4] = ["typinput", "typoutput", "typreceive", "typsend"];

/// Returns `true` if a statement reads a table of the system catalogue.
pub(super) fn reads_catalogue(statement: &Statement) -> bool {
    let found = visit_relations(statement, |name| {
        let of_schema = |part: &ObjectNamePart| {
            part.as_ident()
                .is_some_and(|ident| ident.value.eq_ignore_ascii_case(SYSTEM_SCHEMA))
        };
        let is_system = name.0.iter().any(of_schema)
            || last(name).is_some_and(|name| name.to_ascii_lowercase().starts_with("pg_"));
        match is_system {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    });
    found.is_break()
}

/// Returns the types of parameters that are numbers of objects: `$1::oid` and `$1::oid[]`.
pub(super) fn object_numbers(sql: &str) -> HashMap<String, Type> {
    let mut found = HashMap::new();
    if !sql.to_ascii_lowercase().contains("::oid") {
        return found;
    }
    let statements = Parser::parse_sql(&PostgreSqlDialect {}, sql).unwrap_or_default();
    let _ = visit_expressions(&statements, |expr| {
        if let Expr::Cast {
            expr, data_type, ..
        } = expr
            && let Expr::Value(value) = expr.as_ref()
            && let Value::Placeholder(name) = &value.value
        {
            let data_type = match &*data_type.to_string().to_ascii_lowercase() {
                "oid" => Type::OID,
                "oid[]" => Type::OID_ARRAY,
                _ => return ControlFlow::<()>::Continue(()),
            };
            found.insert(name.clone(), data_type);
        }
        ControlFlow::Continue(())
    });
    found
}

/// Returns the statement that gives asyncpg what it asks for, if a statement is its question about types.
fn types_instead(statement: &Statement) -> Option<Statement> {
    let Statement::Query(query) = statement else {
        return None;
    };
    let with = query.with.as_ref()?;
    let [of, ..] = &with.cte_tables[..] else {
        return None;
    };
    if !with.recursive || of.alias.name.value != ASKED_OF_TYPES {
        return None;
    }
    let mut parsed = Parser::parse_sql(&PostgreSqlDialect {}, TYPES).ok()?;
    parsed.pop()
}

/// The name that asyncpg gives the types that it asks for.
const ASKED_OF_TYPES: &str = "typeinfo_tree";

/// The answer: types by their numbers, and the types of the elements of those that are arrays.
const TYPES: &str = "\
    SELECT t.oid AS oid, 'pg_catalog' AS ns, t.typname AS name, t.typtype AS kind, \
    CAST(NULL AS INT) AS basetype, t.typelem AS elemtype, e.typdelim AS elemdelim, \
    CAST(NULL AS INT) AS range_subtype, CAST(NULL AS VARCHAR) AS attrtypoids, \
    CAST(NULL AS VARCHAR) AS attrnames, t.depth AS depth, CAST(NULL AS VARCHAR) AS basetype_name, \
    e.typname AS elemtype_name, CAST(NULL AS VARCHAR) AS range_subtype_name \
    FROM (SELECT a.oid, a.typname, a.typtype, a.typlen, a.typelem, 0 AS depth \
    FROM pg_catalog.pg_type a WHERE a.oid = ANY($1) \
    UNION ALL SELECT b.oid, b.typname, b.typtype, b.typlen, b.typelem, 1 AS depth \
    FROM pg_catalog.pg_type a JOIN pg_catalog.pg_type b ON a.typelem = b.oid \
    WHERE a.oid = ANY($1) AND a.typlen = -1) t \
    LEFT JOIN pg_catalog.pg_type e ON t.typelem = e.oid AND t.typlen = -1 AND t.typelem <> 0 \
    ORDER BY t.depth DESC";

/// Writes what DataFusion does not take in a query over the system catalogue as it takes it.
pub(super) fn simplify(statement: &mut Statement) {
    if let Some(other) = types_instead(statement) {
        *statement = other;
        return;
    }
    let _ = VisitMut::visit(statement, &mut Simplifier);
}

struct Simplifier;

impl VisitorMut for Simplifier {
    type Break = ();

    fn post_visit_relation(&mut self, name: &mut ObjectName) -> ControlFlow<()> {
        if let [ObjectNamePart::Identifier(only)] = &name.0[..]
            && let Some(view) = OWN_VIEWS
                .iter()
                .find(|view| only.value.eq_ignore_ascii_case(view))
        {
            *name = ObjectName::from(vec![Ident::new(SYSTEM_SCHEMA), Ident::new(*view)]);
        }
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let parameters = parameters(query);
        if empty_body(&mut query.body, &parameters) {
            query.with = None;
            query.order_by = None;
            query.limit_clause = None;
            query.fetch = None;
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        match expr {
            Expr::Function(function) => {
                if let Some(other) = function_instead(function) {
                    *expr = other;
                }
            }
            Expr::Cast {
                expr: of,
                data_type: DataType::Text | DataType::Varchar(_),
                ..
            } => {
                if let Expr::Cast {
                    expr: number,
                    data_type,
                    ..
                } = of.as_mut()
                    && data_type.to_string().eq_ignore_ascii_case("regtype")
                {
                    let number = std::mem::replace(number.as_mut(), null());
                    *expr = call("format_type", vec![number, null()]);
                }
            }
            Expr::Subquery(query) if is_null(query) => *expr = null(),
            Expr::Subquery(query) => one_row(query),
            Expr::BinaryOp {
                left,
                op: BinaryOperator::Eq | BinaryOperator::NotEq,
                right,
            } => {
                compare(left, right);
                compare(right, left);
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

fn null() -> Expr {
    Expr::Value(Value::Null.with_empty_span())
}

fn is_null_value(expr: &Expr) -> bool {
    matches!(expr, Expr::Value(value) if value.value == Value::Null)
}

fn last(name: &ObjectName) -> Option<&str> {
    let ident = name.0.last()?.as_ident()?;
    Some(&ident.value)
}

/// Returns what a function is replaced by, if it is.
fn function_instead(function: &Function) -> Option<Expr> {
    let name = last(&function.name)?.to_ascii_lowercase();
    match &*name {
        "json_build_object" => Some(null()),
        "array_to_string" => {
            let of = function.args.to_string().to_lowercase();
            (of.contains("reloptions") || of.contains("acl")).then(null)
        }
        "array" => {
            let FunctionArguments::Subquery(query) = &function.args else {
                return None;
            };
            let mut query = query.clone();
            let SetExpr::Select(select) = query.body.as_mut() else {
                return None;
            };
            let [SelectItem::UnnamedExpr(item)] = &mut select.projection[..] else {
                return None;
            };
            let argument = std::mem::replace(item, null());
            *item = call("array_agg", vec![argument]);
            query.order_by = None;
            Some(Expr::Subquery(query))
        }
        _ => None,
    }
}

fn call(name: &str, arguments: Vec<Expr>) -> Expr {
    let arguments = arguments.into_iter();
    let args = arguments.map(|of| FunctionArg::Unnamed(FunctionArgExpr::Expr(of)));
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new(name)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: args.collect(),
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

/// Returns `true` if a query for a value gives null at any rate.
fn is_null(query: &Query) -> bool {
    let SetExpr::Select(select) = query.body.as_ref() else {
        return false;
    };
    let [SelectItem::UnnamedExpr(item) | SelectItem::ExprWithAlias { expr: item, .. }] =
        &select.projection[..]
    else {
        return false;
    };
    is_null_value(item) && parameters(query).is_empty()
}

/// Has a query for a value make one row of those that it finds.
fn one_row(query: &mut Query) {
    if query.order_by.is_some() {
        return;
    }
    let SetExpr::Select(select) = query.body.as_mut() else {
        return;
    };
    if select.selection.is_none() || has_no_rows(select) || !is_plain(select) {
        return;
    }
    let [SelectItem::UnnamedExpr(item) | SelectItem::ExprWithAlias { expr: item, .. }] =
        &mut select.projection[..]
    else {
        return;
    };
    let argument = std::mem::replace(item, null());
    *item = call("max", vec![argument]);
    query.limit_clause = None;
    query.fetch = None;
}

/// Returns `true` if a query has a row for each row of what it reads.
fn is_plain(select: &Select) -> bool {
    is_ungrouped(select) && select.distinct.is_none() && !aggregates(select)
}

fn is_ungrouped(select: &Select) -> bool {
    matches!(&select.group_by, GroupByExpr::Expressions(exprs, _) if exprs.is_empty())
}

fn aggregates(select: &Select) -> bool {
    let found = visit_expressions(&select.projection, |expr| match expr {
        Expr::Function(function)
            if function.over.is_none()
                && last(&function.name).is_some_and(|name| {
                    AGGREGATES
                        .iter()
                        .any(|known| name.eq_ignore_ascii_case(known))
                }) =>
        {
            ControlFlow::Break(())
        }
        _ => ControlFlow::Continue(()),
    });
    found.is_break()
}

/// Writes number or name for what a column is compared with, if it refers to an object by another one.
fn compare(column: &Expr, with: &mut Expr) {
    let name = match column {
        Expr::Identifier(ident) => ident,
        Expr::CompoundIdentifier(parts) => match parts.last() {
            Some(ident) => ident,
            None => return,
        },
        _ => return,
    };
    let is = |known: &[&str]| {
        known
            .iter()
            .any(|known| name.value.eq_ignore_ascii_case(known))
    };
    let (is_class, is_function) = (is(&CLASSES), is(&FUNCTIONS));
    if !is_class && !is_function {
        return;
    }
    let Some(text) = first_text(with) else { return };
    let text = text.strip_prefix("pg_catalog.").unwrap_or(&text).to_owned();
    let value = match NUMBERS.iter().find(|(name, _)| *name == text) {
        Some((_, number)) if is_class => Value::Number((*number).to_owned(), false),
        _ if is_function => Value::SingleQuotedString(text),
        _ => return,
    };
    *with = Expr::Value(value.with_empty_span());
}

/// Returns the first text that is written in an expression.
fn first_text(expr: &Expr) -> Option<String> {
    let found = visit_expressions(expr, |expr| match expr {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => ControlFlow::Break(text.clone()),
            _ => ControlFlow::Continue(()),
        },
        _ => ControlFlow::Continue(()),
    });
    found.break_value()
}

/// Returns the parameters of a query, `$1` and so on.
fn parameters(query: &Query) -> Vec<String> {
    struct Parameters(Vec<String>);
    impl Visitor for Parameters {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            if let Expr::Value(value) = expr
                && let Value::Placeholder(name) = &value.value
                && !self.0.contains(name)
            {
                self.0.push(name.clone());
            }
            ControlFlow::Continue(())
        }
    }
    let mut found = Parameters(Vec::new());
    let _ = query.visit(&mut found);
    found.0
}

/// Replaces the queries of a body that join a table without rows. Returns `true` if the whole body is one.
fn empty_body(body: &mut SetExpr, parameters: &[String]) -> bool {
    match body {
        SetExpr::Select(select) => empty(select, parameters),
        SetExpr::SetOperation { left, right, .. } => {
            empty_body(left, parameters);
            empty_body(right, parameters);
            false
        }
        _ => false,
    }
}

/// Replaces a query that joins a table without rows by one that reads nothing and has the same columns and
/// parameters. Returns `true` if it did.
fn empty(select: &mut Select, parameters: &[String]) -> bool {
    if !select.from.iter().any(joins_nothing) || is_ungrouped(select) && aggregates(select) {
        return false;
    }
    let named = |item: &SelectItem| match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(SelectItem::ExprWithAlias {
            expr: null(),
            alias: alias.clone(),
        }),
        SelectItem::UnnamedExpr(expr) => Some(match name_of(expr) {
            Some(alias) => SelectItem::ExprWithAlias {
                expr: null(),
                alias,
            },
            None => SelectItem::UnnamedExpr(null()),
        }),
        // Its columns are not known here.
        _ => None,
    };
    let projection = select.projection.iter().map(named).collect();
    let Some(projection) = projection else {
        return false;
    };
    let never = Expr::Value(Value::Boolean(false).with_empty_span());
    let conditions = parameters.iter().map(|name| {
        let parameter = Value::Placeholder(name.clone()).with_empty_span();
        Expr::IsNull(Box::new(Expr::Value(parameter)))
    });
    let selection = conditions.fold(never, |left, right| Expr::BinaryOp {
        left: Box::new(left),
        op: BinaryOperator::And,
        right: Box::new(right),
    });
    select.projection = projection;
    select.from = Vec::new();
    select.selection = Some(selection);
    select.distinct = None;
    select.group_by = GroupByExpr::Expressions(Vec::new(), Vec::new());
    select.having = None;
    select.named_window = Vec::new();
    true
}

/// Returns the name that PostgreSQL gives the column of an expression.
fn name_of(expr: &Expr) -> Option<Ident> {
    match expr {
        Expr::Identifier(ident) => Some(ident.clone()),
        Expr::CompoundIdentifier(parts) => parts.last().cloned(),
        Expr::Function(function) => last(&function.name).map(Ident::new),
        Expr::Cast { expr, .. } | Expr::Nested(expr) => name_of(expr),
        _ => None,
    }
}

/// Returns `true` if there is no row in tables that are joined.
fn joins_nothing(tables: &TableWithJoins) -> bool {
    let mut nothing = is_without_rows(&tables.relation);
    for join in &tables.joins {
        let right = is_without_rows(&join.relation);
        match &join.join_operator {
            JoinOperator::Join(_) | JoinOperator::Inner(_) | JoinOperator::CrossJoin(_) => {
                nothing |= right;
            }
            JoinOperator::Right(_) | JoinOperator::RightOuter(_) => nothing = right,
            JoinOperator::FullOuter(_) => nothing &= right,
            // Rows of the left side stay, where there are any.
            _ => {}
        }
    }
    nothing
}

fn is_without_rows(table: &TableFactor) -> bool {
    match table {
        TableFactor::Table {
            name, args: None, ..
        } => last(name).is_some_and(|name| {
            WITHOUT_ROWS
                .iter()
                .any(|known| name.eq_ignore_ascii_case(known))
        }),
        TableFactor::Derived { subquery, .. } => match subquery.body.as_ref() {
            SetExpr::Select(select) => has_no_rows(select),
            _ => false,
        },
        TableFactor::NestedJoin {
            table_with_joins, ..
        } => joins_nothing(table_with_joins),
        _ => false,
    }
}

/// Returns `true` if a query is one that [`empty`] has left.
fn has_no_rows(select: &Select) -> bool {
    fn is_never(expr: &Expr) -> bool {
        match expr {
            Expr::Value(value) => value.value == Value::Boolean(false),
            Expr::BinaryOp {
                left,
                op: BinaryOperator::And,
                ..
            } => is_never(left),
            _ => false,
        }
    }
    select.from.is_empty() && is_plain(select) && select.selection.as_ref().is_some_and(is_never)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn simplified(sql: &str) -> String {
        let mut statements = Parser::parse_sql(&PostgreSqlDialect {}, sql).unwrap();
        simplify(&mut statements[0]);
        statements[0].to_string()
    }

    #[test]
    fn joins_with_tables_without_rows_read_nothing() {
        for (sql, expected) in [
            (
                "select c.relname, count(x) over () as n, 1 from pg_class c join pg_index i on i.indrelid = c.oid order by 1",
                "SELECT NULL AS relname, NULL AS n, NULL WHERE false",
            ),
            (
                "select r.a from (select unnest(i.indkey) as a from pg_class c, pg_catalog.pg_index i where c.relname = $1) r where (r.a).x = $2",
                "SELECT NULL AS a WHERE false AND $1 IS NULL AND $2 IS NULL",
            ),
            (
                "select 1 from pg_class c union all select 2 from pg_index",
                "SELECT 1 FROM pg_class c UNION ALL SELECT NULL WHERE false",
            ),
            // An outer join keeps rows, and an aggregate makes one.
            (
                "select c.relname from pg_class c left join pg_index i on true",
                "SELECT c.relname FROM pg_class c LEFT JOIN pg_index i ON true",
            ),
            (
                "select count(*) from pg_index",
                "SELECT count(*) FROM pg_index",
            ),
            ("select * from pg_index", "SELECT * FROM pg_index"),
            (
                "select conrelid, count(*) from pg_constraint group by conrelid",
                "SELECT NULL AS conrelid, NULL AS count WHERE false",
            ),
        ] {
            assert_eq!(simplified(sql), expected, "{sql}");
        }
    }

    #[test]
    fn values_of_queries_are_one_row() {
        for (sql, expected) in [
            (
                "select (select c.relkind = 'c' from pg_class c where c.oid = t.typrelid) from pg_type t",
                "SELECT (SELECT max(c.relkind = 'c') FROM pg_class c WHERE c.oid = t.typrelid) FROM pg_type t",
            ),
            (
                "select (select json_build_object('a', s.seqmin) from pg_sequence s where s.seqrelid = a.attrelid) as b from pg_attribute a",
                "SELECT NULL AS b FROM pg_attribute a",
            ),
            (
                "select (select count(*) from pg_class c where c.oid = t.typrelid) from pg_type t",
                "SELECT (SELECT count(*) FROM pg_class c WHERE c.oid = t.typrelid) FROM pg_type t",
            ),
        ] {
            assert_eq!(simplified(sql), expected, "{sql}");
        }
    }

    #[test]
    fn objects_are_compared_as_they_are_stored() {
        for (sql, expected) in [
            (
                "select 1 from pg_description d where d.classoid = 'pg_class'::regclass",
                "SELECT 1 FROM pg_description d WHERE d.classoid = 1259",
            ),
            (
                "select typinput = 'pg_catalog.array_in'::regproc from pg_type",
                "SELECT typinput = 'array_in' FROM pg_type",
            ),
            (
                "select 1 from pg_class where oid = 'pg_class'::regclass",
                "SELECT 1 FROM pg_class WHERE oid = 'pg_class'::REGCLASS",
            ),
        ] {
            assert_eq!(simplified(sql), expected, "{sql}");
        }
    }

    #[test]
    fn numbers_of_objects_are_parameters() {
        let found = object_numbers("select 1 where 1 = any($1::oid[]) and $2::OID = $3::int");
        assert_eq!(found.len(), 2);
        assert_eq!((&found["$1"], &found["$2"]), (&Type::OID_ARRAY, &Type::OID));
        let asked = "with recursive typeinfo_tree(oid) as (select 1 union all select 2) select * from typeinfo_tree";
        assert!(simplified(asked).starts_with("SELECT t.oid AS oid"));
    }

    #[test]
    fn queries_over_the_catalogue_are_recognised() {
        let reads = |sql: &str| {
            let statements = Parser::parse_sql(&PostgreSqlDialect {}, sql).unwrap();
            reads_catalogue(&statements[0])
        };
        assert!(reads("select 1 from pg_class"));
        assert!(reads("select (select 1 from pg_catalog.x)"));
        assert!(!reads("select current_database() from nation"));
    }
}
