//! Fragments made of the work of a scan.
//!
//! While a plan is being optimised, a scan's expressions refer to the table's columns. A fragment's
//! expressions refer only to the columns that it reads.

use std::collections::BTreeSet;

use datafusion::arrow::datatypes::SchemaRef;
use operators::{Aggregate, Expr, Fragment, FragmentWork, SortKey};

/// Returns the fragment that reads the fewest columns.
pub(crate) fn fragment(filter: Option<&Expr>, work: &FragmentWork, output: SchemaRef) -> Fragment {
    let mut used = BTreeSet::new();
    let mut note = |expr: &Expr| columns(expr, &mut used);
    filter.into_iter().for_each(&mut note);
    exprs(work).into_iter().for_each(&mut note);
    let used: Vec<usize> = used.into_iter().collect();
    let place = |expr: &Expr| {
        rename(expr, &|column| {
            used.binary_search(&column).expect("it was noted")
        })
    };
    Fragment {
        filter: filter.map(place),
        work: map(work, &place),
        output,
        columns: used,
    }
}

/// Returns the expressions of some work.
fn exprs(work: &FragmentWork) -> Vec<&Expr> {
    match work {
        FragmentWork::Rows { project, order, .. } => {
            let keys = order.iter().map(|key| &key.expr);
            project.iter().chain(keys).collect()
        }
        FragmentWork::Aggregate { by, aggregates } => {
            let of = aggregates.iter().flat_map(|a| a.of.iter().chain(&a.filter));
            by.iter().chain(of).collect()
        }
    }
}

fn map(work: &FragmentWork, expr: &impl Fn(&Expr) -> Expr) -> FragmentWork {
    match work {
        FragmentWork::Rows {
            project,
            order,
            limit,
        } => FragmentWork::Rows {
            project: project.iter().map(expr).collect(),
            order: order.iter().map(|key| sort_key(key, expr)).collect(),
            limit: *limit,
        },
        FragmentWork::Aggregate { by, aggregates } => FragmentWork::Aggregate {
            by: by.iter().map(expr).collect(),
            aggregates: aggregates.iter().map(|a| aggregate(a, expr)).collect(),
        },
    }
}

fn sort_key(key: &SortKey, expr: &impl Fn(&Expr) -> Expr) -> SortKey {
    SortKey {
        expr: expr(&key.expr),
        ..key.clone()
    }
}

fn aggregate(aggregate: &Aggregate, expr: &impl Fn(&Expr) -> Expr) -> Aggregate {
    Aggregate {
        function: aggregate.function,
        of: aggregate.of.as_ref().map(expr),
        filter: aggregate.filter.as_ref().map(expr),
    }
}

/// Notes the columns to which an expression refers.
pub(crate) fn columns(expr: &Expr, into: &mut BTreeSet<usize>) {
    if let Expr::Column(column) = expr {
        into.insert(*column);
    }
    for child in children(expr) {
        columns(child, into);
    }
}

/// Returns the operands of an expression.
pub(crate) fn children(expr: &Expr) -> Vec<&Expr> {
    match expr {
        Expr::Column(_) | Expr::Literal(_) => Vec::new(),
        Expr::Binary(left, _, right) => vec![left, right],
        Expr::Not(of)
        | Expr::IsNull(of)
        | Expr::IsNotNull(of)
        | Expr::Negative(of)
        | Expr::Cast(of, _)
        | Expr::Year(of)
        | Expr::Substring(of, _, _)
        | Expr::Like { text: of, .. }
        | Expr::InList { value: of, .. } => vec![of],
        Expr::Case { when, otherwise } => {
            let when = when.iter().flat_map(|(when, then)| [when, then]);
            when.chain(otherwise.as_deref()).collect()
        }
    }
}

/// Returns the expression with other columns.
fn rename(expr: &Expr, column: &impl Fn(usize) -> usize) -> Expr {
    let same = |of: &Expr| Box::new(rename(of, column));
    match expr {
        Expr::Column(of) => Expr::Column(column(*of)),
        Expr::Literal(value) => Expr::Literal(value.clone()),
        Expr::Binary(left, operator, right) => Expr::Binary(same(left), *operator, same(right)),
        Expr::Not(of) => Expr::Not(same(of)),
        Expr::IsNull(of) => Expr::IsNull(same(of)),
        Expr::IsNotNull(of) => Expr::IsNotNull(same(of)),
        Expr::Negative(of) => Expr::Negative(same(of)),
        Expr::Cast(of, to) => Expr::Cast(same(of), to.clone()),
        Expr::Year(of) => Expr::Year(same(of)),
        Expr::Substring(of, from, length) => Expr::Substring(same(of), *from, *length),
        Expr::Like {
            text,
            pattern,
            negated,
        } => Expr::Like {
            text: same(text),
            pattern: pattern.clone(),
            negated: *negated,
        },
        Expr::InList {
            value,
            list,
            negated,
        } => Expr::InList {
            value: same(value),
            list: list.clone(),
            negated: *negated,
        },
        Expr::Case { when, otherwise } => {
            let when = when.iter();
            Expr::Case {
                when: when.map(|(w, t)| (*same(w), *same(t))).collect(),
                otherwise: otherwise.as_deref().map(same),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::datatypes::Schema;
    use operators::Operator;

    use super::*;

    #[test]
    fn a_fragment_reads_what_its_expressions_need_and_no_more() {
        let sum = Expr::Binary(
            Box::new(Expr::Column(7)),
            Operator::Plus,
            Box::new(Expr::Column(2)),
        );
        let work = FragmentWork::Rows {
            project: vec![sum],
            order: vec![SortKey {
                expr: Expr::Column(9),
                descending: true,
                nulls_first: false,
            }],
            limit: Some(3),
        };
        let filter = Expr::IsNull(Box::new(Expr::Column(4)));
        let made = fragment(Some(&filter), &work, Arc::new(Schema::empty()));
        assert_eq!(made.columns, [2, 4, 7, 9]);
        assert_eq!(made.filter, Some(Expr::IsNull(Box::new(Expr::Column(1)))));
        let FragmentWork::Rows { project, order, .. } = made.work else {
            panic!("rows stay rows");
        };
        assert_eq!(order[0].expr, Expr::Column(3));
        let Expr::Binary(left, _, right) = &project[0] else {
            panic!("a sum stays a sum");
        };
        assert_eq!((&**left, &**right), (&Expr::Column(2), &Expr::Column(0)));
    }
}
