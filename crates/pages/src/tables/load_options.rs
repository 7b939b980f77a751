//! How a table is loaded.

use std::collections::HashMap;

use arrow_schema::SchemaRef;

use crate::error::Error;
use crate::row::{Form, RowSchema};
use crate::segment::{Groups, GroupsError, Shape};
use crate::table::{Layout, PageSize, SegmentId, TableId, Version};

/// How a new table is stored in pages.
#[derive(Clone, Debug, Default)]
pub struct LoadOptions {
    /// Bytes of a page.
    pub page_size: PageSize,
    /// The layout of rows in a page. In the layout of rows all columns are in one group.
    pub layout: Layout,
    /// The groups of columns, in the layout of columns.
    pub groups: Groups,
    /// In the layout of rows, the most bytes of the texts of columns.
    pub text_widths: HashMap<String, u16>,
    /// In the layout of rows, the forms of all columns; `None` derives them from the types.
    pub forms: Option<Vec<Form>>,
}

/// What happens to the table's existing rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// There must be no such table.
    Create,
    /// The new rows replace them.
    Replace,
    /// They stay before the new ones, whose pages have the same shape.
    Append,
}

/// The names of the version that a load makes, and of its segment. The client that loads chooses them if
/// several nodes shall have the same version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The table's id. For an append it must be the existing one.
    pub table: TableId,
    /// The number of the version: for an append the next one after the existing one, otherwise any later
    /// one that [may be chosen](Version::may_be_chosen).
    pub version: Version,
    /// The id of the new segment, which was never used before.
    pub segment: SegmentId,
}

impl LoadOptions {
    /// Returns the groups of a table's columns; in the layout of rows there is one group.
    pub(crate) fn resolved_groups(
        &self,
        schema: &SchemaRef,
    ) -> Result<Vec<Vec<usize>>, GroupsError> {
        match self.layout {
            Layout::Columns => self.groups.resolve(schema),
            Layout::Rows => Groups::Together.resolve(schema),
        }
    }

    /// Returns how a new table's rows are stored in pages.
    ///
    /// # Errors
    /// Returns an error if they cannot be stored so; the text says why and what to do.
    pub(crate) fn shape(&self, schema: &SchemaRef) -> Result<Shape, Error> {
        let bad = Error::Options;
        if schema.fields().is_empty() {
            return Err(bad("a table has a column at least".to_owned()));
        }
        for (i, field) in schema.fields().iter().enumerate() {
            if schema.fields()[..i]
                .iter()
                .any(|other| other.name() == field.name())
            {
                return Err(bad(format!(
                    "two columns are called {:?}: rename one",
                    field.name()
                )));
            }
        }
        let groups = self.resolved_groups(schema)?;
        if self.layout == Layout::Columns {
            return Ok(Shape::new(schema.clone(), self.page_size, groups, None)?);
        }
        let rows = match &self.forms {
            Some(forms) if forms.len() == schema.fields().len() => RowSchema::new(schema, forms)?,
            Some(forms) => {
                let (forms, columns) = (forms.len(), schema.fields().len());
                return Err(bad(format!(
                    "there are {forms} forms for {columns} columns"
                )));
            }
            None => RowSchema::of(schema, |column| self.text_widths.get(column).copied())?,
        };
        Ok(Shape::new(
            schema.clone(),
            self.page_size,
            groups,
            Some(rows),
        )?)
    }

    /// Checks that a node could make a table of rows with these columns. Types that pages do not support
    /// cannot even be sent to it.
    ///
    /// # Errors
    /// Returns an error if they cannot be stored so.
    pub(crate) fn check(&self, schema: &SchemaRef, mode: Mode) -> Result<(), Error> {
        if mode != Mode::Append {
            self.shape(schema)?;
        }
        Ok(())
    }
}
