//! A command on a collection, as an operation carries it.

/// A command on the value of one key that is no string. Crate `values` has the commands, and executes
/// them where the key is.
#[derive(Clone, Debug, PartialEq)]
pub struct ValueCall<'a> {
    /// The number of the command. Those of commands that may write have the bit
    /// [`ValueCall::WRITES`].
    pub command: u16,
    /// A random number if the command has the bit [`ValueCall::RANDOM`], else 0: it chooses the same
    /// elements wherever it is executed.
    pub seed: u64,
    /// Its arguments behind the key.
    pub args: Box<[&'a [u8]]>,
}

impl ValueCall<'_> {
    /// The bit in the numbers of commands that may write.
    pub const WRITES: u16 = 1 << 15;

    /// The bit in the numbers of commands that choose at random.
    pub const RANDOM: u16 = 1 << 14;

    /// Returns `true` if the command chooses at random.
    #[must_use]
    pub fn is_random(&self) -> bool {
        self.command & ValueCall::RANDOM != 0
    }

    /// Returns `true` if the command never writes.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.command & ValueCall::WRITES == 0
    }

    /// Returns the number of bytes that the command may add to its key's value.
    #[must_use]
    pub fn brings(&self) -> usize {
        match self.is_read_only() {
            true => 0,
            false => self.args.iter().map(|arg| arg.len()).sum(),
        }
    }
}
