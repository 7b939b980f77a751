//! The number of pieces that may be sent before the peer reports that it has posted places again.

/// The bits of a number that are a count.
pub(super) const COUNT: u32 = (1 << 30) - 1;

/// The number of pieces for which the peer has places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SendCredit {
    places: u32,
    sent: u32,
    /// The number of pieces that were sent and for which the peer has posted a place again.
    counted: u32,
}

impl SendCredit {
    pub(super) fn new(places: u32) -> SendCredit {
        SendCredit {
            places,
            sent: 0,
            counted: 0,
        }
    }

    /// Returns the number of pieces that may be sent now.
    pub(super) fn left(&self) -> u32 {
        self.places - (self.sent.wrapping_sub(self.counted) & COUNT)
    }

    /// Takes the peer's count. Returns `false` if it counts pieces that were not sent.
    #[must_use]
    pub(super) fn count(&mut self, count: u32) -> bool {
        let new = count.wrapping_sub(self.counted) & COUNT;
        if new > self.sent.wrapping_sub(self.counted) & COUNT {
            return false;
        }
        self.counted = self.counted.wrapping_add(new) & COUNT;
        true
    }

    /// Notes that a piece was sent.
    pub(super) fn send(&mut self) {
        debug_assert!(self.left() > 0, "a piece without a place at the peer");
        self.sent = self.sent.wrapping_add(1) & COUNT;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn sent_pieces_stay_within_the_places() {
        let mut credit = SendCredit::new(4);
        for _ in 0..4 {
            credit.send();
        }
        assert_eq!(credit.left(), 0);
        assert!(credit.count(3));
        assert_eq!(credit.left(), 3);
        assert!(credit.count(3), "the same count again adds nothing");
        assert_eq!(credit.left(), 3);
    }

    #[test]
    fn a_count_of_pieces_that_were_not_sent_is_found() {
        let mut credit = SendCredit::new(4);
        credit.send();
        credit.send();
        assert!(!credit.count(3));
        assert!(credit.count(2));
        assert!(!credit.count(1), "counts do not go back");
        assert_eq!(credit.left(), 4);
    }

    #[test]
    fn counts_go_on_beyond_their_bits() {
        let mut credit = SendCredit {
            places: 4,
            sent: COUNT,
            counted: COUNT,
        };
        credit.send();
        credit.send();
        assert_eq!((credit.sent, credit.left()), (1, 2));
        assert!(!credit.count(2));
        assert!(credit.count(1));
        assert_eq!(credit.left(), 4);
    }
}
