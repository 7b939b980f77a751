//! A reader: it reads slots and then the header, and rejects a version if any of these checks fails.
//!
//! | what is wrong | how it is noticed |
//! |---|---|
//! | a write is under way, or was and nothing is published yet | the slot is not valid |
//! | the slot was published anew, while it was read | the checksum |
//! | it was given to another key, while it was read | the read took longer than the grace period, if the memory was reused; else the checksum |
//! | it was given to another key, before it was read | the key |
//! | its memory was divided anew | the layout of the part, in the header |
//! | it is another start of the owner | the incarnation, in slot and header |
//! | it has expired | the time, in the header |
//! | the owner has given it up | the header says that it is revoked |
//! | the owner was stopped, and others may have taken over | the lease, in the header, by the owner's clock at the end of the read |

use base::memory::{RemoteError, RemoteMemory};
use base::versions::Versioned;

use super::image::{self, Doubt};
use super::lease::{OwnersClock, stretched};
use super::{Address, header, header::Header};

/// A key, and the address of its slot.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'k> {
    /// The key.
    pub key: &'k [u8],
    /// The address that the owner has told.
    pub address: Address,
}

/// Why the owner has to be asked instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fallback {
    /// The key is being written, or was and is not published yet.
    Invalid,
    /// It was published while it was read.
    Torn,
    /// The read took too long.
    Late,
    /// The version in the slot has expired.
    Expired,
    /// The slot is not the key's any more, or not in this place, or was read only in part.
    Moved,
    /// The region's lease is over, as far as the reader knows: it should ask for the owner's clock.
    Lapsed,
    /// The region is revoked, or belongs to another owner.
    Gone,
}

impl Fallback {
    /// All reasons.
    pub const ALL: [Fallback; 7] = [
        Fallback::Invalid,
        Fallback::Torn,
        Fallback::Late,
        Fallback::Expired,
        Fallback::Moved,
        Fallback::Lapsed,
        Fallback::Gone,
    ];

    /// Returns `true` if the address may be tried again, unless the owner tells another one. If not, it
    /// must be dropped; for [`Fallback::Gone`], with all others of the region.
    #[must_use]
    pub fn keeps_address(self) -> bool {
        !matches!(self, Fallback::Moved | Fallback::Gone)
    }

    /// Returns the name that metrics use.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Fallback::Invalid => "invalid",
            Fallback::Torn => "torn",
            Fallback::Late => "late",
            Fallback::Expired => "expired",
            Fallback::Moved => "moved",
            Fallback::Lapsed => "lapsed",
            Fallback::Gone => "gone",
        }
    }
}

/// Reads the slots of one region, for one thread.
#[derive(Debug, Default)]
pub struct Reader {
    clock: Option<OwnersClock>,
    begun: u64,
    words: Vec<u64>,
}

impl Reader {
    /// Creates a reader that knows nothing of the owner's clock: it accepts only a region whose lease
    /// has no end.
    #[must_use]
    pub fn new() -> Reader {
        Reader::default()
    }

    /// Takes over the times of an exchange with the owner; see [`OwnersClock`].
    pub fn learn(&mut self, clock: OwnersClock) {
        self.clock = Some(clock);
    }

    /// Begins to read slots. `now` is the reader's clock in nanoseconds, which also counts the time for
    /// which the machine is suspended.
    ///
    /// # Errors
    /// Returns an error if the region cannot be read. No read is under way then.
    pub fn begin(
        &mut self,
        memory: &mut dyn RemoteMemory,
        asks: &[Ask<'_>],
        now: u64,
    ) -> Result<(), RemoteError> {
        self.begun = now;
        let len = memory.len();
        let slots = asks.iter().filter_map(|ask| place(ask.address, len));
        let mut all = slots.chain([(0, header::WORDS)]);
        let begun = all.try_for_each(|(at, words)| memory.begin(at, words));
        if begun.is_err() {
            self.words.clear();
            // Ends the reads that were begun; their results do not matter.
            let _ = memory.finish(&mut self.words);
        }
        begun
    }

    /// Waits for the reads that were begun with the same keys. Answers for each key in order, with its
    /// place: the newest committed version of one moment since the beginning, or why the owner must be
    /// asked. `now` as at the beginning.
    ///
    /// # Errors
    /// Returns an error if the region cannot be read. No read is under way then.
    ///
    /// # Panics
    /// If other keys are given than at the beginning, so that there are fewer words than theirs.
    pub fn finish(
        &mut self,
        memory: &mut dyn RemoteMemory,
        asks: &[Ask<'_>],
        now: impl FnOnce() -> u64,
        mut answer: impl FnMut(usize, Result<Versioned<'_>, Fallback>),
    ) -> Result<(), RemoteError> {
        self.words.clear();
        memory.finish(&mut self.words)?;
        let now = now();
        let len = memory.len();
        let (slots, header) = self
            .words
            .split_at(self.words.len().saturating_sub(header::WORDS));
        let header = self.trusted(Header::read(header), now);
        let mut from = 0;
        for (at, ask) in asks.iter().enumerate() {
            let words = place(ask.address, len).map_or(0, |(_, words)| words);
            let slot = &slots[from..from + words];
            from += words;
            answer(at, header.and_then(|header| judge(slot, ask, &header)));
        }
        Ok(())
    }

    /// Returns the header if the region is valid, or why not.
    fn trusted<'h>(&self, header: Option<Header<'h>>, now: u64) -> Result<Header<'h>, Fallback> {
        let header = header.ok_or(Fallback::Gone)?;
        if header.is_revoked {
            return Err(Fallback::Gone);
        }
        // The time after the read: each moment of the read was earlier.
        let at_owner = self.clock.map_or(u64::MAX, |clock| clock.at_most(now));
        if header.lease != header::FOR_EVER && header.lease <= at_owner {
            return Err(Fallback::Lapsed);
        }
        let took = now.checked_sub(self.begun).map_or(u64::MAX, stretched);
        if took >= header.grace_ns {
            return Err(Fallback::Late);
        }
        Ok(header)
    }
}

/// Returns the words of a slot, if they can be in a region of `len` words.
fn place(address: Address, len: usize) -> Option<(usize, usize)> {
    let (at, words) = (address.at as usize, address.words as usize);
    let fits = at >= header::WORDS && words >= image::LEAST && len.checked_sub(at)? >= words;
    fits.then_some((at, words))
}

/// Returns the version of a key in a slot, under a valid header.
fn judge<'w>(
    slot: &'w [u64],
    ask: &Ask<'_>,
    header: &Header<'_>,
) -> Result<Versioned<'w>, Fallback> {
    let address = ask.address;
    if address.incarnation != header.incarnation {
        return Err(Fallback::Gone);
    }
    if !header.is_of(address.part, address.layout) {
        return Err(Fallback::Moved);
    }
    let version =
        image::decode(slot, address.incarnation, ask.key).map_err(|doubt| match doubt {
            Doubt::Invalid => Fallback::Invalid,
            Doubt::Torn => Fallback::Torn,
            Doubt::Other => Fallback::Moved,
        })?;
    let deadline = version.content.and_then(|content| content.deadline);
    if deadline.is_some_and(|deadline| deadline <= header.time_ms) {
        return Err(Fallback::Expired);
    }
    Ok(version)
}
