//! Expressions prepared for evaluation: nodes in an array, children before parents, equal ones only
//! once.

use arrow_schema::DataType;

use crate::compute::like::Pattern;
use crate::expr::{Expr, ExprError, Operator};
use crate::scalar::{Scalar, Value};
use crate::types::{self, Class};
use crate::vector::Vector;

/// A node's place in its program.
pub(crate) type NodeId = usize;

/// Expressions that are evaluated over the same rows.
#[derive(Debug)]
pub(crate) struct Program {
    /// The columns' types.
    pub(crate) columns: Vec<DataType>,
    /// All nodes of all expressions.
    pub(crate) nodes: Vec<Node>,
}

/// A node of an expression.
#[derive(Debug)]
pub(crate) struct Node {
    /// The operation.
    pub(crate) op: Op,
    /// The type of its values.
    pub(crate) data_type: DataType,
    /// `true` if it may have an error instead of a value for some rows. For decimals that depends
    /// on how large they are; here the worst is assumed.
    pub(crate) fallible: bool,
}

/// The operation of a node.
#[derive(Debug)]
pub(crate) enum Op {
    Column(usize),
    Literal(Scalar, Vector),
    Compare(Comparison, NodeId, NodeId),
    And(NodeId, NodeId),
    Or(NodeId, NodeId),
    Arithmetic(Operator, NodeId, NodeId),
    Not(NodeId),
    IsNull(NodeId),
    IsNotNull(NodeId),
    Negative(NodeId),
    Like(NodeId, Pattern, bool),
    InList(NodeId, Vec<Scalar>, bool),
    Case(Vec<(NodeId, NodeId)>, Option<NodeId>),
    Cast(NodeId),
    Year(NodeId),
    Substring(NodeId, i64, i64),
}

/// How two values are compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Comparison {
    Eq,
    NotEq,
    Lt,
    LtEq,
}

impl Program {
    /// Makes an empty program over columns of these types.
    pub(crate) fn new(columns: Vec<DataType>) -> Program {
        Program {
            columns,
            nodes: Vec::new(),
        }
    }

    /// Adds an expression.
    ///
    /// # Errors
    /// Returns the errors of [`Expr::data_type`].
    pub(crate) fn add(&mut self, expr: &Expr) -> Result<NodeId, ExprError> {
        // `intern` finds the types for all nodes once; this checks that there are types, and that
        // the recursion is not too deep.
        expr.data_type(&self.columns)?;
        self.compile(expr)
    }

    /// Returns how many of these nodes, and of those below them, compute something. Each counts
    /// once.
    pub(crate) fn computing(&self, roots: &[NodeId]) -> usize {
        let mut seen = vec![false; self.nodes.len()];
        let mut open = roots.to_vec();
        let mut computing = 0;
        while let Some(node) = open.pop() {
            if std::mem::replace(&mut seen[node], true) {
                continue;
            }
            let op = &self.nodes[node].op;
            computing += usize::from(!matches!(op, Op::Column(_) | Op::Literal(..)));
            open.extend(children(op));
        }
        computing
    }

    /// Returns for each column `true` if a node reads it.
    pub(crate) fn columns_used(&self) -> Vec<bool> {
        let mut used = vec![false; self.columns.len()];
        for node in &self.nodes {
            if let Op::Column(column) = node.op {
                used[column] = true;
            }
        }
        used
    }

    /// Returns a node's type.
    pub(crate) fn data_type(&self, node: NodeId) -> &DataType {
        &self.nodes[node].data_type
    }

    /// Returns the class in which a node's values are computed.
    pub(crate) fn class(&self, node: NodeId) -> Class {
        types::class(self.data_type(node)).expect("types were checked")
    }

    fn compile(&mut self, expr: &Expr) -> Result<NodeId, ExprError> {
        let boolean = DataType::Boolean;
        let (op, data_type) = match expr {
            Expr::Column(column) => (Op::Column(*column), self.columns[*column].clone()),
            Expr::Literal(scalar) => {
                let scalar = exact(scalar);
                let vector = Vector::literal(&scalar)?;
                let data_type = scalar.data_type.clone();
                (Op::Literal(scalar, vector), data_type)
            }
            Expr::Binary(left, operator, right) => {
                let (left, right) = (self.compile(left)?, self.compile(right)?);
                self.binary(*operator, left, right)?
            }
            Expr::Not(of) => (Op::Not(self.compile(of)?), boolean),
            Expr::IsNull(of) => (Op::IsNull(self.compile(of)?), boolean),
            Expr::IsNotNull(of) => (Op::IsNotNull(self.compile(of)?), boolean),
            Expr::Negative(of) => {
                let of = self.compile(of)?;
                (Op::Negative(of), self.data_type(of).clone())
            }
            Expr::Like {
                text,
                pattern,
                negated,
            } => (
                Op::Like(self.compile(text)?, Pattern::new(pattern), *negated),
                boolean,
            ),
            Expr::InList {
                value,
                list,
                negated,
            } => {
                let list = list.iter().map(exact).collect();
                (Op::InList(self.compile(value)?, list, *negated), boolean)
            }
            Expr::Case { when, otherwise } => {
                let mut branches = Vec::with_capacity(when.len());
                for (condition, value) in when {
                    branches.push((self.compile(condition)?, self.compile(value)?));
                }
                let otherwise = otherwise.as_ref().map(|e| self.compile(e)).transpose()?;
                let data_type = self.data_type(branches[0].1).clone();
                (Op::Case(branches, otherwise), data_type)
            }
            Expr::Cast(of, to) => (Op::Cast(self.compile(of)?), to.clone()),
            Expr::Year(of) => (Op::Year(self.compile(of)?), DataType::Int32),
            Expr::Substring(of, from, count) => (
                Op::Substring(self.compile(of)?, *from, *count),
                DataType::Utf8,
            ),
        };
        Ok(self.intern(op, data_type))
    }

    fn binary(
        &mut self,
        operator: Operator,
        left: NodeId,
        right: NodeId,
    ) -> Result<(Op, DataType), ExprError> {
        let op = match operator {
            Operator::Eq => Op::Compare(Comparison::Eq, left, right),
            Operator::NotEq => Op::Compare(Comparison::NotEq, left, right),
            Operator::Lt => Op::Compare(Comparison::Lt, left, right),
            Operator::LtEq => Op::Compare(Comparison::LtEq, left, right),
            Operator::Gt => Op::Compare(Comparison::Lt, right, left),
            Operator::GtEq => Op::Compare(Comparison::LtEq, right, left),
            Operator::And => Op::And(left, right),
            Operator::Or => Op::Or(left, right),
            _ => {
                let (l, r) = (self.data_type(left), self.data_type(right));
                let data_type = types::arithmetic(operator, l, r)?;
                return Ok((Op::Arithmetic(operator, left, right), data_type));
            }
        };
        Ok((op, DataType::Boolean))
    }

    /// Returns the node that does this: an existing one, or a new one.
    fn intern(&mut self, op: Op, data_type: DataType) -> NodeId {
        let same = |node: &Node| node.data_type == data_type && same(&node.op, &op);
        if let Some(found) = self.nodes.iter().position(same) {
            return found;
        }
        let fallible = self.own_errors(&op, &data_type)
            || children(&op)
                .iter()
                .any(|&child| self.nodes[child].fallible);
        self.nodes.push(Node {
            op,
            data_type,
            fallible,
        });
        self.nodes.len() - 1
    }

    /// Returns `true` if an operation has values for which it is an error.
    fn own_errors(&self, op: &Op, data_type: &DataType) -> bool {
        let decimal = matches!(data_type, DataType::Decimal128(..));
        match op {
            Op::Arithmetic(Operator::Divide | Operator::Modulo, ..) => {
                types::class(data_type) == Some(Class::Int)
            }
            Op::Arithmetic(..) | Op::Negative(_) => decimal,
            Op::Cast(of) => {
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
pub(crate) fn children(op: &Op) -> Vec<NodeId> {
    match op {
        Op::Column(_) | Op::Literal(..) => vec![],
        Op::Compare(_, a, b) | Op::And(a, b) | Op::Or(a, b) | Op::Arithmetic(_, a, b) => {
            vec![*a, *b]
        }
        Op::Not(a)
        | Op::IsNull(a)
        | Op::IsNotNull(a)
        | Op::Negative(a)
        | Op::Like(a, ..)
        | Op::InList(a, ..)
        | Op::Cast(a)
        | Op::Year(a)
        | Op::Substring(a, ..) => vec![*a],
        Op::Case(when, otherwise) => when
            .iter()
            .flat_map(|&(c, v)| [c, v])
            .chain(*otherwise)
            .collect(),
    }
}

/// Returns `true` if two nodes do the same. Equal children have equal ids already.
fn same(a: &Op, b: &Op) -> bool {
    match (a, b) {
        (Op::Column(a), Op::Column(b)) => a == b,
        // Floats are compared by their bits: zeros with different signs are not the same.
        (Op::Literal(a, _), Op::Literal(b, _)) => identical(a, b),
        (Op::Compare(o, a, b), Op::Compare(p, c, d)) => (o, a, b) == (p, c, d),
        (Op::And(a, b), Op::And(c, d)) | (Op::Or(a, b), Op::Or(c, d)) => (a, b) == (c, d),
        (Op::Arithmetic(o, a, b), Op::Arithmetic(p, c, d)) => (o, a, b) == (p, c, d),
        (Op::Not(a), Op::Not(b))
        | (Op::IsNull(a), Op::IsNull(b))
        | (Op::IsNotNull(a), Op::IsNotNull(b))
        | (Op::Negative(a), Op::Negative(b))
        | (Op::Cast(a), Op::Cast(b))
        | (Op::Year(a), Op::Year(b)) => a == b,
        (Op::Like(a, p, n), Op::Like(b, q, m)) => (a, p, n) == (b, q, m),
        (Op::InList(a, l, n), Op::InList(b, k, m)) => {
            (a, n, l.len()) == (b, m, k.len()) && l.iter().zip(k).all(|(l, k)| identical(l, k))
        }
        (Op::Case(a, e), Op::Case(b, f)) => (a, e) == (b, f),
        (Op::Substring(a, f, n), Op::Substring(b, g, m)) => (a, f, n) == (b, g, m),
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
