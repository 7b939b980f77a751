//! Consistency levels: the number of replicas that must have answered.

use crate::notation::{Malformed, NotationReader};

/// The number of replicas that must have answered before a request counts as done.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)] // The names are those of the protocol.
pub enum Consistency {
    Any = 0x00,
    One = 0x01,
    Two = 0x02,
    Three = 0x03,
    Quorum = 0x04,
    All = 0x05,
    LocalQuorum = 0x06,
    EachQuorum = 0x07,
    Serial = 0x08,
    LocalSerial = 0x09,
    LocalOne = 0x0a,
}

impl Consistency {
    /// All of them in the order of their numbers.
    pub const ALL: [Consistency; 11] = [
        Consistency::Any,
        Consistency::One,
        Consistency::Two,
        Consistency::Three,
        Consistency::Quorum,
        Consistency::All,
        Consistency::LocalQuorum,
        Consistency::EachQuorum,
        Consistency::Serial,
        Consistency::LocalSerial,
        Consistency::LocalOne,
    ];

    /// Reads a level.
    ///
    /// # Errors
    /// The body ends too early, or there is no such level.
    pub fn read(reader: &mut NotationReader<'_>) -> Result<Consistency, Malformed> {
        let error = reader.malformed("a consistency level that is none");
        let number = reader.short()?;
        Consistency::ALL
            .get(usize::from(number))
            .copied()
            .ok_or(error)
    }

    /// Writes a level.
    pub fn write(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&(self as u16).to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_numbered_in_order() {
        for (number, level) in Consistency::ALL.into_iter().enumerate() {
            assert_eq!(level as usize, number);
            let mut out = Vec::new();
            level.write(&mut out);
            assert_eq!(Consistency::read(&mut NotationReader::new(&out)), Ok(level));
        }
        let none = Consistency::read(&mut NotationReader::new(&[0, 11])).unwrap_err();
        assert_eq!(
            (none.at, none.what),
            (0, "a consistency level that is none")
        );
    }
}
