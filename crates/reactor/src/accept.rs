//! When a thread accepts connections: a bounded number in a turn, so that those which it has go on being served, and
//! again after a pause if the system lacks a resource, such as descriptors.

use std::io::{self, ErrorKind};
use std::time::Duration;

/// Connections that are accepted in one turn.
const TURN: u32 = 128;
/// The pause before accepting is tried again when the system lacks a resource.
const PAUSE: Duration = Duration::from_millis(100);

/// See the module's description. Times are those since any fixed point.
#[derive(Debug, Default)]
pub struct AcceptSchedule {
    /// When the next connection is accepted; `None`: none waits.
    due: Option<Duration>,
    /// Connections that this turn may still accept.
    left: u32,
}

impl AcceptSchedule {
    /// Notes that connections wait at a listener. A pause goes on.
    pub fn note_listener(&mut self) {
        self.due.get_or_insert(Duration::ZERO);
    }

    /// Forgets the connections that wait, because nothing listens any more.
    pub fn stop(&mut self) {
        self.due = None;
    }

    /// Returns the time at which connections are accepted next, if any wait.
    #[must_use]
    pub fn due(&self) -> Option<Duration> {
        self.due
    }

    /// Begins a turn. Returns `true` if connections are to be accepted by [`AcceptSchedule::next`] now.
    pub fn begin(&mut self, now: Duration) -> bool {
        self.left = TURN;
        self.due.is_some_and(|due| due <= now)
    }

    /// Returns the next connection of this turn, as `accept` returns it. Returns `None` when no more are accepted: none
    /// waits, or others are served first.
    ///
    /// # Errors
    /// Returns the system's error if it accepts no connection now. Errors of the connection that was to be accepted are
    /// not returned: the next one follows.
    pub fn next<T>(
        &mut self,
        now: Duration,
        mut accept: impl FnMut() -> io::Result<T>,
    ) -> io::Result<Option<T>> {
        while self.left > 0 {
            self.left -= 1;
            match accept() {
                Ok(accepted) => return Ok(Some(accepted)),
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => {
                        self.due = None;
                        return Ok(None);
                    }
                    ErrorKind::ConnectionAborted
                    | ErrorKind::ConnectionReset
                    | ErrorKind::Interrupted => {}
                    _ => {
                        self.due = Some(now + PAUSE);
                        return Err(error);
                    }
                },
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(5);

    #[test]
    fn a_turn_accepts_a_bounded_number() {
        let mut schedule = AcceptSchedule::default();
        assert!(!schedule.begin(NOW), "no connection waits");
        schedule.note_listener();
        assert!(schedule.begin(NOW));
        let mut count = 0;
        while let Some(()) = schedule.next(NOW, || Ok(())).unwrap() {
            count += 1;
        }
        assert_eq!(count, TURN);
        assert_eq!(schedule.due(), Some(Duration::ZERO), "more may wait");
        assert!(schedule.begin(NOW));
        let none = schedule.next(NOW, || Err::<(), _>(ErrorKind::WouldBlock.into()));
        assert_eq!((none.unwrap(), schedule.due()), (None, None));
    }

    #[test]
    fn errors_of_one_connection_are_passed_over() {
        let mut schedule = AcceptSchedule::default();
        schedule.note_listener();
        assert!(schedule.begin(NOW));
        let mut results = [
            Err(ErrorKind::ConnectionAborted.into()),
            Err(ErrorKind::Interrupted.into()),
            Ok(7),
        ]
        .into_iter();
        let accepted = schedule.next(NOW, || results.next().expect("one is left"));
        assert_eq!(accepted.unwrap(), Some(7));
    }

    #[test]
    fn accepting_pauses_when_the_system_lacks_a_resource() {
        let mut schedule = AcceptSchedule::default();
        schedule.note_listener();
        assert!(schedule.begin(NOW));
        let lacking = || Err::<(), _>(io::Error::other("no descriptors"));
        assert!(schedule.next(NOW, lacking).is_err());
        schedule.note_listener();
        assert!(!schedule.begin(NOW + PAUSE / 2), "an event ends no pause");
        assert!(schedule.begin(NOW + PAUSE));
        schedule.stop();
        assert_eq!(schedule.due(), None);
    }
}
