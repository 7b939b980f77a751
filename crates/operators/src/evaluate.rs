//! Evaluates compiled expressions over the rows of a chunk, a vector at a time.
//!
//! A node is evaluated for a *frame*: some rows of a chunk. Within a frame each node is evaluated
//! once. A node that is evaluated for only some of a frame's rows has a frame of its own.
//!
//! Invariant: a node that may have errors is evaluated only for rows for which it matters. The right
//! side of an AND does not matter where the left one is false, that of an OR where it is true, and a
//! branch of a CASE where it is not taken. A node without errors is evaluated for all rows where that
//! is faster.

use std::rc::Rc;

use pages::task::TaskError;

use crate::compute::branches::MergedBranches;
use crate::compute::value_interval::ValueInterval;
use crate::compute::{arithmetic, cast, compare, logic, text};
use crate::program::{ExprId, ExprOp, ExprProgram};
use crate::stored_column::{ChunkColumns, RowSelection};
use crate::vector::{Vector, VectorValues};

/// A program, and a chunk over which it is evaluated.
#[derive(Clone, Copy)]
pub(crate) struct EvalContext<'c> {
    /// The expressions that are evaluated.
    pub(crate) program: &'c ExprProgram,
    /// The chunk's columns.
    pub(crate) columns: &'c ChunkColumns<'c>,
    /// The intervals of all nodes' values.
    pub(crate) intervals: &'c [ValueInterval],
}

/// Rows for which nodes are evaluated.
pub(crate) struct EvalFrame<'c, 'r> {
    context: EvalContext<'c>,
    rows: RowSelection<'r>,
    /// The values of the nodes that were evaluated.
    memo: Vec<Option<Rc<Vector>>>,
}

impl<'c, 'r> EvalFrame<'c, 'r> {
    /// Makes a frame over these rows.
    pub(crate) fn new(context: EvalContext<'c>, rows: RowSelection<'r>) -> EvalFrame<'c, 'r> {
        EvalFrame {
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
    pub(crate) fn context(&self) -> EvalContext<'c> {
        self.context
    }

    /// Returns the numbers in the chunk of the rows that are at these places in the frame.
    pub(crate) fn rows_at(&self, places: &[u32]) -> Vec<u32> {
        self.rows.at(places)
    }

    /// Returns a node's values, as many as there are rows, or a constant.
    pub(crate) fn evaluate(&mut self, node: ExprId) -> Result<Rc<Vector>, TaskError> {
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
        node: ExprId,
        places: &[u32],
    ) -> Result<Rc<Vector>, TaskError> {
        if let Some(known) = &self.memo[node] {
            return Ok(Rc::new(known.taken(places)));
        }
        if places.len() == self.len() {
            return self.evaluate(node);
        }
        let rows = self.rows_at(places);
        EvalFrame::new(self.context, RowSelection::Picked(&rows)).evaluate(node)
    }

    fn compute(&mut self, id: ExprId) -> Result<Vector, TaskError> {
        let program = self.context.program;
        let node = &program.nodes[id];
        let interval = &self.context.intervals[id];
        let rows = self.len();
        Ok(match &node.op {
            ExprOp::Column(column) => self
                .context
                .columns
                .get(*column)?
                .vector(self.rows, interval.narrow),
            ExprOp::Literal(_, vector) => vector.clone(),
            ExprOp::Compare(comparison, left, right) => {
                let (left, right) = (self.evaluate(*left)?, self.evaluate(*right)?);
                compare::compare(*comparison, &left, &right, rows)
            }
            ExprOp::And(left, right) => self.junction(*left, *right, false)?,
            ExprOp::Or(left, right) => self.junction(*left, *right, true)?,
            ExprOp::Arithmetic(operator, left, right) => {
                let types = (program.data_type(*left), program.data_type(*right));
                let (left, right) = (self.evaluate(*left)?, self.evaluate(*right)?);
                arithmetic::arithmetic(
                    *operator,
                    &left,
                    &right,
                    types,
                    &node.data_type,
                    interval,
                    rows,
                )?
            }
            ExprOp::Not(of) => logic::not(&*self.evaluate(*of)?),
            ExprOp::IsNull(of) => logic::nulls(&*self.evaluate(*of)?, rows, true),
            ExprOp::IsNotNull(of) => logic::nulls(&*self.evaluate(*of)?, rows, false),
            ExprOp::Negative(of) => {
                arithmetic::negative(&*self.evaluate(*of)?, &node.data_type, interval)?
            }
            ExprOp::Like(of, pattern, negated) => {
                text::like(&*self.evaluate(*of)?, pattern, *negated)
            }
            ExprOp::InList(of, list, negated) => {
                compare::in_list(&*self.evaluate(*of)?, list, *negated)
            }
            ExprOp::Case(when, otherwise) => self.case(id, when, *otherwise)?,
            ExprOp::Cast(of) => {
                let from = program.data_type(*of);
                cast::cast(&*self.evaluate(*of)?, from, &node.data_type, interval)?
            }
            ExprOp::Year(of) => text::year(&*self.evaluate(*of)?),
            ExprOp::Substring(of, from, count) => {
                text::substring(&*self.evaluate(*of)?, *from, *count)?
            }
        })
    }

    /// Evaluates AND (`deciding` false) or OR (`deciding` true): a side that has the deciding value
    /// decides.
    fn junction(
        &mut self,
        left: ExprId,
        right: ExprId,
        deciding: bool,
    ) -> Result<Vector, TaskError> {
        let rows = self.len();
        let l = self.evaluate(left)?;
        let decided = u8::from(deciding);
        let open = |row: usize| !(l.bools()[row] == decided && l.is_valid(row));
        if l.constant {
            return if open(0) {
                let r = self.evaluate(right)?;
                Ok(logic::junction(
                    &l.expanded(rows),
                    &r.expanded(rows),
                    deciding,
                ))
            } else {
                Ok((*l).clone())
            };
        }
        let fallible = self.context.program.nodes[right].fallible;
        let places: Vec<u32> = (0..rows as u32).filter(|&row| open(row as usize)).collect();
        if places.is_empty() {
            return Ok((*l).clone());
        }
        if places.len() == rows || (!fallible && places.len() * 8 > rows) {
            let r = self.evaluate(right)?;
            return Ok(logic::junction(&l, &r.expanded(rows), deciding));
        }
        let r = self.evaluate_at(right, &places)?.expanded(places.len());
        let some = logic::junction(&l.taken(&places), &r, deciding);
        let mut values = vec![decided; rows];
        let mut valid = some.valid.is_some().then(|| vec![1; rows]);
        for (at, &row) in places.iter().enumerate() {
            values[row as usize] = some.bools()[at];
            if let (Some(valid), Some(some)) = (&mut valid, &some.valid) {
                valid[row as usize] = some[at];
            }
        }
        Ok(Vector::new(VectorValues::Bool(values), valid))
    }

    /// Returns the value of the first branch whose condition is true.
    fn case(
        &mut self,
        id: ExprId,
        when: &[(ExprId, ExprId)],
        otherwise: Option<ExprId>,
    ) -> Result<Vector, TaskError> {
        let rows = self.len();
        let context = self.context;
        let mut merged = MergedBranches::new(
            context.program.class(id),
            context.intervals[id].narrow,
            rows,
        );
        let mut open: Vec<u32> = (0..rows as u32).collect();
        for &(condition, value) in when {
            if open.is_empty() {
                break;
            }
            let holds = self.evaluate_at(condition, &open)?.is_true(open.len());
            let pick = |wanted: u8| -> Vec<u32> {
                open.iter()
                    .zip(&holds)
                    .filter(|&(_, &h)| h == wanted)
                    .map(|(&at, _)| at)
                    .collect()
            };
            let (taken, left) = (pick(1), pick(0));
            if !taken.is_empty() {
                merged.put(&*self.evaluate_at(value, &taken)?, &taken);
            }
            open = left;
        }
        if let Some(value) = otherwise
            && !open.is_empty()
        {
            merged.put(&*self.evaluate_at(value, &open)?, &open);
        }
        merged.finish()
    }
}
