//! The tables that a node has.
//!
//! A table in a list, in bytes: name (a count and bytes); then 1, id (16), version (8), rows (8), pages (8),
//! bytes of a page (4), or 0 and what is wrong with it (a count and bytes). All numbers are little-endian;
//! see [`base::codec`] for counts.

use base::codec::{Malformed, MalformedKind, Reader, put_bytes, put_count, put_u64};

use crate::format_error::FormatError;
use crate::table::{Table, TableId, Version};

/// A table that a node has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedTable {
    /// Its name.
    pub name: String,
    /// Its newest version; for a damaged table, the damage.
    pub found: Result<TableSummary, FormatError>,
}

/// The newest version of a table that a node has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableSummary {
    /// The table.
    pub id: TableId,
    /// The version.
    pub version: Version,
    /// The number of rows.
    pub rows: u64,
    /// The number of pages.
    pub pages: u64,
    /// Bytes of a page.
    pub page_size: u32,
}

impl TableSummary {
    /// Returns the newest version of a table.
    #[must_use]
    pub fn of(table: &Table) -> TableSummary {
        TableSummary {
            id: table.id,
            version: table.version,
            rows: table.rows(),
            pages: table.pages(),
            page_size: table.page_size.bytes() as u32,
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.id.0.to_le_bytes());
        for number in [self.version.0, self.rows, self.pages] {
            put_u64(out, number);
        }
        out.extend(self.page_size.to_le_bytes());
    }

    fn decode(reader: &mut Reader<'_>) -> Result<TableSummary, Malformed> {
        Ok(TableSummary {
            id: TableId(u128::from_le_bytes(reader.array()?)),
            version: Version(reader.u64()?),
            rows: reader.u64()?,
            pages: reader.u64()?,
            page_size: reader.u32()?,
        })
    }
}

impl ListedTable {
    /// Returns a list as bytes.
    #[must_use]
    pub fn encode(all: &[ListedTable]) -> Vec<u8> {
        let mut out = Vec::new();
        put_count(&mut out, all.len() as u64);
        for listed in all {
            put_bytes(&mut out, listed.name.as_bytes());
            out.push(u8::from(listed.found.is_ok()));
            match &listed.found {
                Ok(newest) => newest.encode(&mut out),
                Err(damage) => put_bytes(&mut out, damage.0.as_bytes()),
            }
        }
        out
    }

    /// Decodes a list.
    ///
    /// # Errors
    /// Returns an error if the bytes are no list.
    pub fn decode(bytes: &[u8]) -> Result<Vec<ListedTable>, Malformed> {
        let mut reader = Reader::new(bytes);
        let count = reader.count()?;
        let mut all = Vec::new();
        for _ in 0..count {
            let name = reader.text()?.to_owned();
            let found = match reader.u8()? {
                0 => Err(reader.text()?.into()),
                1 => Ok(TableSummary::decode(&mut reader)?),
                other => return Err(reader.malformed(MalformedKind::Kind(other, "table"))),
            };
            all.push(ListedTable { name, found });
        }
        reader.end()?;
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_decoded_as_they_were_encoded() {
        let newest = TableSummary {
            id: TableId(7 << 100),
            version: Version(3),
            rows: 6_001_215,
            pages: 99,
            page_size: 131_072,
        };
        let listed = |name: &str, found| ListedTable {
            name: name.to_owned(),
            found,
        };
        let damage = FormatError::from("a file of it is gone");
        let two = vec![
            listed("lineitem", Ok(newest)),
            listed("orders", Err(damage)),
        ];
        for all in [vec![], two] {
            let bytes = ListedTable::encode(&all);
            assert_eq!(ListedTable::decode(&bytes), Ok(all));
            assert!(ListedTable::decode(&bytes[..bytes.len() - 1]).is_err());
        }
    }
}
