//! Expressions prepared for evaluation: nodes in an array, children before parents, equal ones only
//! once.

use arrow_schema::DataType;

use crate::compute::compare::Comparison;
use crate::compute::like::Pattern;
use crate::expr::{Expr, ExprError};
use crate::operator::Operator;
use crate::scalar::{Scalar, Value};
use crate::types::{self, Class};
use crate::vector::Vector;

pub(crate) mod interval_analysis;

/// A node's place in its program.
pub(crate) type ExprId = usize;

/// Expressions that are evaluated over the same rows.
#[derive(Debug)]
pub(crate) struct ExprProgram {
    /// The columns' types.
    pub(crate) columns: Vec<DataType>,
    /// All nodes of all expressions.
    pub(crate) nodes: Vec<ExprNode>,
}

/// A node of an expression.
#[derive(Debug)]
pub(crate) struct ExprNode {
    /// The operation.
    pub(crate) op: ExprOp,
    /// The type of its values.
    pub(crate) data_type: DataType,
    /// `true` if it may have an error instead of a value for some rows. For decimals that depends
    /// on how large they are; here the worst is assumed.
    pub(crate) fallible: bool,
}

/// The operation of a node.
#[derive(Debug)]
pub(crate) enum ExprOp {
    Column(usize),
    Literal(Scalar, Vector),
    Compare(Comparison, ExprId, ExprId),
    And(ExprId, ExprId),
    Or(ExprId, ExprId),
    Arithmetic(Operator, ExprId, ExprId),
    Not(ExprId),
    IsNull(ExprId),
    IsNotNull(ExprId),
    Negative(ExprId),
    Like(ExprId, Pattern, bool),
    InList(ExprId, Vec<Scalar>, bool),
    Case(Vec<(ExprId, ExprId)>, Option<ExprId>),
    Cast(ExprId),
    Year(ExprId),
    Substring(ExprId, i64, i64),
}

impl ExprProgram {
    /// Makes an empty program over columns of these types.
    pub(crate) fn new(columns: Vec<DataType>) -> ExprProgram {
        ExprProgram {
            columns,
            nodes: Vec::new(),
        }
    }

    /// Adds an expression.
    ///
    /// # Errors
    /// Returns the errors of [`Expr::data_type`].
    pub(crate) fn add(&mut self, expr: &Expr) -> Result<ExprId, ExprError> {
        // `intern` finds the types for all nodes once; this checks that there are types, and that
        // the recursion is not too deep.
        expr.data_type(&self.columns)?;
        self.compile(expr)
    }

    /// Returns how many of these nodes, and of those below them, compute something. Each counts
    /// once.
    pub(crate) fn computing(&self, roots: &[ExprId]) -> usize {
        let mut seen = vec![false; self.nodes.len()];
        let mut open = roots.to_vec();
        let mut computing = 0;
        while let Some(node) = open.pop() {
            if std::mem::replace(&mut seen[node], true) {
                continue;
            }
            let op = &self.nodes[node].op;
            computing += usize::from(!matches!(op, ExprOp::Column(_) | ExprOp::Literal(..)));
            open.extend(children(op));
        }
        computing
    }

    /// Returns for each column `true` if a node reads it.
    pub(crate) fn columns_used(&self) -> Vec<bool> {
        let mut used = vec![false; self.columns.len()];
        for node in &self.nodes {
            if let ExprOp::Column(column) = node.op {
                used[column] = true;
            }
        }
        used
    }

    /// Returns a node's type.
    pub(crate) fn data_type(&self, node: ExprId) -> &DataType {
        &self.nodes[node].data_type
    }

    /// Returns the class in which a node's values are computed.
    pub(crate) fn class(&self, node: ExprId) -> Class {
        types::class(self.data_type(node)).expect("types were checked")
    }

    fn compile(&mut self, expr: &Expr) -> Result<ExprId, ExprError> {
        let boolean = DataType::Boolean;
        let (op, data_type) = match expr {
            Expr::Column(column) => (ExprOp::Column(*column), self.columns[*column].clone()),
            Expr::Literal(scalar) => {
                let scalar = exact(scalar);
                let vector = Vector::literal(&scalar)?;
                let data_type = scalar.data_type.clone();
                (ExprOp::Literal(scalar, vector), data_type)
            }
            Expr::Binary(left, operator, right) => {
                let (left, right) = (self.compile(left)?, self.compile(right)?);
                self.binary(*operator, left, right)?
            }
            Expr::Not(of) => (ExprOp::Not(self.compile(of)?), boolean),
            Expr::IsNull(of) => (ExprOp::IsNull(self.compile(of)?), boolean),
            Expr::IsNotNull(of) => (ExprOp::IsNotNull(self.compile(of)?), boolean),
            Expr::Negative(of) => {
                let of = self.compile(of)?;
                (ExprOp::Negative(of), self.data_type(of).clone())
            }
            Expr::Like {
                text,
                pattern,
                negated,
            } => (
                ExprOp::Like(self.compile(text)?, Pattern::new(pattern), *negated),
                boolean,
            ),
            Expr::InList {
                value,
                list,
                negated,
            } => {
                let list = list.iter().map(exact).collect();
                (
                    ExprOp::InList(self.compile(value)?, list, *negated),
                    boolean,
                )
            }
            Expr::Case { when, otherwise } => {
                let mut branches = Vec::with_capacity(when.len());
                for (condition, value) in when {
                    branches.push((self.compile(condition)?, self.compile(value)?));
                }
                let otherwise = otherwise.as_ref().map(|e| self.compile(e)).transpose()?;
                let data_type = self.data_type(branches[0].1).clone();
                (ExprOp::Case(branches, otherwise), data_type)
            }
            Expr::Cast(of, to) => (ExprOp::Cast(self.compile(of)?), to.clone()),
            Expr::Year(of) => (ExprOp::Year(self.compile(of)?), DataType::Int32),
            Expr::Substring(of, from, count) => (
                ExprOp::Substring(self.compile(of)?, *from, *count),
                DataType::Utf8,
            ),
        };
        Ok(self.intern(op, data_type))
    }

    fn binary(
        &mut self,
        operator: Operator,
        left: ExprId,
        right: ExprId,
    ) -> Result<(ExprOp, DataType), ExprError> {
        let op = match operator {
            Operator::Eq => ExprOp::Compare(Comparison::Eq, left, right),
            Operator::NotEq => ExprOp::Compare(Comparison::NotEq, left, right),
            Operator::Lt => ExprOp::Compare(Comparison::Lt, left, right),
            Operator::LtEq => ExprOp::Compare(Comparison::LtEq, left, right),
            Operator::Gt => ExprOp::Compare(Comparison::Lt, right, left),
            Operator::GtEq => ExprOp::Compare(Comparison::LtEq, right, left),
            Operator::And => ExprOp::And(left, right),
            Operator::Or => ExprOp::Or(left, right),
            _ => {
                let (l, r) = (self.data_type(left), self.data_type(right));
                let data_type = types::arithmetic(operator, l, r).ok_or_else(|| {
                    let (left, right) = (l.clone(), r.clone());
                    ExprError::Operands {
                        operator,
                        left,
                        right,
                    }
                })?;
                return Ok((ExprOp::Arithmetic(operator, left, right), data_type));
            }
        };
        Ok((op, DataType::Boolean))
    }

    /// Returns the node that does this: an existing one, or a new one.
    fn intern(&mut self, op: ExprOp, data_type: DataType) -> ExprId {
        let same = |node: &ExprNode| node.data_type == data_type && same(&node.op, &op);
        if let Some(found) = self.nodes.iter().position(same) {
            return found;
        }
        let fallible = self.own_errors(&op, &data_type)
            || children(&op)
                .iter()
                .any(|&child| self.nodes[child].fallible);
        self.nodes.push(ExprNode {
            op,
            data_type,
            fallible,
        });
        self.nodes.len() - 1
    }

    /// Returns `true` if an operation has values for which it is an error.
    fn own_errors(&self, op: &ExprOp, data_type: &DataType) -> bool {
        let decimal = matches!(data_type, DataType::Decimal128(..));
        match op {
            ExprOp::Arithmetic(Operator::Divide | Operator::Modulo, ..) => {
                types::class(data_type) == Some(Class::Int)
            }
            ExprOp::Arithmetic(..) | ExprOp::Negative(_) => decimal,
            ExprOp::Cast(of) => {
                self.data_type(*of) != data_type && types::class(data_type) == Some(Class::Int)
            }
            _ => false,
        }
    }
}

/// Rounds the literal of a 32-bit float, which may have more digits than the type.
fn exact(scalar: &Scalar) -> Scalar {
    match (&scalar.data_type, &scalar.value) {
        (DataType::Float32, Value::Float(value)) => Scalar {
            data_type: DataType::Float32,
            value: Value::Float(f64::from(*value as f32)),
        },
        _ => scalar.clone(),
    }
}

/// Returns the nodes whose values a node needs.
pub(crate) fn children(op: &ExprOp) -> Vec<ExprId> {
    match op {
        ExprOp::Column(_) | ExprOp::Literal(..) => vec![],
        ExprOp::Compare(_, a, b)
        | ExprOp::And(a, b)
        | ExprOp::Or(a, b)
        | ExprOp::Arithmetic(_, a, b) => {
            vec![*a, *b]
        }
        ExprOp::Not(a)
        | ExprOp::IsNull(a)
        | ExprOp::IsNotNull(a)
        | ExprOp::Negative(a)
        | ExprOp::Like(a, ..)
        | ExprOp::InList(a, ..)
        | ExprOp::Cast(a)
        | ExprOp::Year(a)
        | ExprOp::Substring(a, ..) => vec![*a],
        ExprOp::Case(when, otherwise) => when
            .iter()
            .flat_map(|&(c, v)| [c, v])
            .chain(*otherwise)
            .collect(),
    }
}

/// Returns `true` if two nodes do the same. Equal children have equal ids already.
fn same(a: &ExprOp, b: &ExprOp) -> bool {
    match (a, b) {
        (ExprOp::Column(a), ExprOp::Column(b)) => a == b,
        // Floats are compared by their bits: zeros with different signs are not the same.
        (ExprOp::Literal(a, _), ExprOp::Literal(b, _)) => identical(a, b),
        (ExprOp::Compare(o, a, b), ExprOp::Compare(p, c, d)) => (o, a, b) == (p, c, d),
        (ExprOp::And(a, b), ExprOp::And(c, d)) | (ExprOp::Or(a, b), ExprOp::Or(c, d)) => {
            (a, b) == (c, d)
        }
        (ExprOp::Arithmetic(o, a, b), ExprOp::Arithmetic(p, c, d)) => (o, a, b) == (p, c, d),
        (ExprOp::Not(a), ExprOp::Not(b))
        | (ExprOp::IsNull(a), ExprOp::IsNull(b))
        | (ExprOp::IsNotNull(a), ExprOp::IsNotNull(b))
        | (ExprOp::Negative(a), ExprOp::Negative(b))
        | (ExprOp::Cast(a), ExprOp::Cast(b))
        | (ExprOp::Year(a), ExprOp::Year(b)) => a == b,
        (ExprOp::Like(a, p, n), ExprOp::Like(b, q, m)) => (a, p, n) == (b, q, m),
        (ExprOp::InList(a, l, n), ExprOp::InList(b, k, m)) => {
            (a, n, l.len()) == (b, m, k.len()) && l.iter().zip(k).all(|(l, k)| identical(l, k))
        }
        (ExprOp::Case(a, e), ExprOp::Case(b, f)) => (a, e) == (b, f),
        (ExprOp::Substring(a, f, n), ExprOp::Substring(b, g, m)) => (a, f, n) == (b, g, m),
        _ => false,
    }
}

fn identical(a: &Scalar, b: &Scalar) -> bool {
    let values = match (&a.value, &b.value) {
        (Value::Float(a), Value::Float(b)) => a.to_bits() == b.to_bits(),
        (a, b) => a == b,
    };
    values && a.data_type == b.data_type
}
