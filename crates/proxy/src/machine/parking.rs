//! Connections whose next request has no room with its node, in the order in which they came.
//!
//! Whoever waits for a node is woken when that node has answered, and no more of them than there is
//! room for: a node that is slow costs those that ask for others nothing.

use std::collections::VecDeque;

use super::face::Room;
use super::query::NodeIndex;

/// See the module's page.
#[derive(Debug, Default)]
pub(crate) struct Parking {
    /// By node.
    queues: Vec<VecDeque<usize>>,
    /// Those that wait for something else than a node, which a reply may bring.
    others: VecDeque<usize>,
    /// Nodes that have room again, perhaps.
    freed: Vec<NodeIndex>,
    /// Something has come back.
    answered: bool,
}

impl Parking {
    /// A connection waits for room with a node, or until anything comes back.
    pub(crate) fn park(&mut self, node: Option<NodeIndex>, place: usize) {
        let Some(node) = node else {
            return self.others.push_back(place);
        };
        let at = node.0 as usize;
        if at >= self.queues.len() {
            self.queues.resize_with(at + 1, VecDeque::new);
        }
        // What is left of its room is not enough for this one: the next reply will tell.
        self.freed.retain(|freed| *freed != node);
        let queue = &mut self.queues[at];
        if !queue.contains(&place) {
            queue.push_back(place);
        }
    }

    /// A node has answered.
    pub(crate) fn freed(&mut self, node: NodeIndex) {
        self.answered = true;
        let waited_for = self
            .queues
            .get(node.0 as usize)
            .is_some_and(|queue| !queue.is_empty());
        if waited_for && !self.freed.contains(&node) {
            self.freed.push(node);
        }
    }

    /// Has `wake` woken those for whom there is room. A node is looked at again in the next turn as
    /// long as there is room left and somebody waits for it: who was woken may have gone, or may not
    /// have needed it.
    pub(crate) fn wake(&mut self, room: &mut Room, mut wake: impl FnMut(usize)) {
        if std::mem::take(&mut self.answered) {
            self.others.drain(..).for_each(&mut wake);
        }
        self.freed.retain(|node| {
            let queue = &mut self.queues[node.0 as usize];
            for _ in 0..room.left(*node) {
                let Some(place) = queue.pop_front() else {
                    return false;
                };
                wake(place);
            }
            !queue.is_empty() && room.left(*node) > 0
        });
    }

    /// Whether somebody is to be woken in the next turn.
    pub(crate) fn has_freed(&self) -> bool {
        !self.freed.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn woken(parking: &mut Parking, room: &mut Room) -> Vec<usize> {
        let mut places = Vec::new();
        parking.wake(room, |place| places.push(place));
        places
    }

    #[test]
    fn as_many_are_woken_as_there_is_room_for_and_no_others() {
        let (slow, quick) = (NodeIndex(0), NodeIndex(1));
        let mut room = Room::new(2);
        let mut parking = Parking::default();
        for place in 0..5 {
            parking.park(Some(slow), place);
        }
        parking.park(Some(quick), 9);
        parking.park(Some(quick), 9);
        parking.freed(quick);
        assert_eq!(woken(&mut parking, &mut room), [9]);
        parking.freed(slow);
        assert_eq!(woken(&mut parking, &mut room), [0, 1]);
        // Those two did not take the room: the next ones get it, without another reply.
        assert!(parking.has_freed());
        assert_eq!(woken(&mut parking, &mut room), [2, 3]);
        assert_eq!(woken(&mut parking, &mut room), [4]);
        assert!(!parking.has_freed());
        // Who needs more room than there is does not have the thread look again and again.
        parking.park(Some(slow), 5);
        parking.freed(slow);
        parking.park(Some(slow), 6);
        assert!(!parking.has_freed());
        parking.freed(slow);
        assert_eq!(woken(&mut parking, &mut room), [5, 6]);
        parking.park(None, 7);
        assert_eq!(woken(&mut parking, &mut room), []);
        parking.freed(quick);
        assert_eq!(woken(&mut parking, &mut room), [7]);
    }
}
