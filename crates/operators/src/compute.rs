//! Evaluating expressions over the rows of a chunk, a vector at a time.
//!
//! | module | concept |
//! |---|---|
//! | `intervals` | between what the values of each node lie, and how wide they are computed |
//! | `arithmetic` | `+ - * / %` and the sign |
//! | `compare` | `= <> < <=` and lists |
//! | `logic` | AND, OR, NOT and CASE, which do not evaluate what does not matter |
//! | `cast` | the same value as one of another type |
//! | `like` | patterns |
//! | `text` | parts of texts, and years of dates |
//!
//! A node is evaluated for a *frame*: some rows of a chunk. Within a frame each node is evaluated
//! once. A node that is evaluated for only some of a frame's rows has a frame of its own.

pub(crate) mod arithmetic;
pub(crate) mod cast;
pub(crate) mod compare;
pub(crate) mod intervals;
pub(crate) mod like;
pub(crate) mod logic;
pub(crate) mod text;

use std::rc::Rc;

use crate::program::{NodeId, Op, Program};
use crate::site::TaskError;
use crate::stored::{Columns, Rows};
use crate::vector::Vector;
use intervals::Facts;

/// A chunk, and what is known of a program's values over it.
#[derive(Clone, Copy)]
pub(crate) struct Context<'c> {
    /// The expressions that are evaluated.
    pub(crate) program: &'c Program,
    /// The chunk's columns.
    pub(crate) columns: &'c Columns<'c>,
    /// What is known of each node's values.
    pub(crate) facts: &'c [Facts],
}

/// Rows for which nodes are evaluated.
pub(crate) struct Frame<'c, 'r> {
    context: Context<'c>,
    rows: Rows<'r>,
    memo: Vec<Option<Rc<Vector>>>,
}

impl<'c, 'r> Frame<'c, 'r> {
    /// Makes a frame over these rows.
    pub(crate) fn new(context: Context<'c>, rows: Rows<'r>) -> Frame<'c, 'r> {
        Frame {
            context,
            rows,
            memo: vec![None; context.program.nodes.len()],
        }
    }

    /// Returns the number of rows.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns the chunk.
    pub(crate) fn context(&self) -> Context<'c> {
        self.context
    }

    /// Returns the numbers in the chunk of the rows that are at these places in the frame.
    pub(crate) fn rows_at(&self, places: &[u32]) -> Vec<u32> {
        self.rows.at(places)
    }

    /// Returns a node's values, as many as there are rows, or a constant.
    pub(crate) fn evaluate(&mut self, node: NodeId) -> Result<Rc<Vector>, TaskError> {
        if let Some(known) = &self.memo[node] {
            return Ok(Rc::clone(known));
        }
        let vector = Rc::new(self.compute(node)?);
        self.memo[node] = Some(Rc::clone(&vector));
        Ok(vector)
    }

    /// Returns a node's values of the rows at these places alone.
    pub(crate) fn evaluate_at(
        &mut self,
        node: NodeId,
        places: &[u32],
    ) -> Result<Rc<Vector>, TaskError> {
        if let Some(known) = &self.memo[node] {
            return Ok(Rc::new(known.taken(places)));
        }
        if places.len() == self.len() {
            return self.evaluate(node);
        }
        let rows = self.rows_at(places);
        Frame::new(self.context, Rows::Picked(&rows)).evaluate(node)
    }

    fn compute(&mut self, id: NodeId) -> Result<Vector, TaskError> {
        let program = self.context.program;
        let node = &program.nodes[id];
        let facts = &self.context.facts[id];
        let rows = self.len();
        Ok(match &node.op {
            Op::Column(column) => self
                .context
                .columns
                .get(*column)?
                .vector(self.rows, facts.narrow),
            Op::Literal(_, vector) => vector.clone(),
            Op::Compare(comparison, left, right) => {
                let (left, right) = (self.evaluate(*left)?, self.evaluate(*right)?);
                compare::compare(*comparison, &left, &right, rows)
            }
            Op::And(left, right) => logic::junction(self, *left, *right, false)?,
            Op::Or(left, right) => logic::junction(self, *left, *right, true)?,
            Op::Arithmetic(operator, left, right) => {
                let types = (program.data_type(*left), program.data_type(*right));
                let (left, right) = (self.evaluate(*left)?, self.evaluate(*right)?);
                arithmetic::arithmetic(
                    *operator,
                    &left,
                    &right,
                    types,
                    &node.data_type,
                    facts,
                    rows,
                )?
            }
            Op::Not(of) => logic::not(&*self.evaluate(*of)?),
            Op::IsNull(of) => logic::nulls(&*self.evaluate(*of)?, rows, true),
            Op::IsNotNull(of) => logic::nulls(&*self.evaluate(*of)?, rows, false),
            Op::Negative(of) => {
                arithmetic::negative(&*self.evaluate(*of)?, &node.data_type, facts)?
            }
            Op::Like(of, pattern, negated) => text::like(&*self.evaluate(*of)?, pattern, *negated),
            Op::InList(of, list, negated) => {
                compare::in_list(&*self.evaluate(*of)?, list, *negated)
            }
            Op::Case(when, otherwise) => logic::case(self, id, when, *otherwise)?,
            Op::Cast(of) => {
                let from = program.data_type(*of);
                cast::cast(&*self.evaluate(*of)?, from, &node.data_type, facts)?
            }
            Op::Year(of) => text::year(&*self.evaluate(*of)?),
            Op::Substring(of, from, count) => {
                text::substring(&*self.evaluate(*of)?, *from, *count)?
            }
        })
    }
}
