//! What monitors get: the lines of the commands of a turn.

use std::sync::Arc;

use reactor::Network;

use super::Runtime;

impl<N: Network> Runtime<N> {
    /// Gives the lines of this turn to the runtimes that have monitors.
    pub(super) fn send_monitored(&mut self) {
        if self.executor.context.monitored.is_empty() {
            return;
        }
        let lines: Arc<[u8]> = std::mem::take(&mut self.executor.context.monitored).into();
        let shared = Arc::clone(&self.executor.context.shared);
        for runtime in shared.monitors.runtimes() {
            match runtime == self.index {
                true => self.deliver_monitored(&lines),
                false => shared.signals[runtime].send_monitored(Arc::clone(&lines)),
            }
        }
    }

    /// Adds lines to the output of this runtime's monitors. Lines of more bytes than a monitor may leave untaken
    /// are not whole: it is closed.
    pub(super) fn deliver_monitored(&mut self, lines: &[u8]) {
        let context = &mut self.executor.context;
        let most = context.shared.config.limits.subscriber_output;
        for key in context.monitors.clone() {
            let Some(connection) = self.connections.get_mut(key) else {
                continue;
            };
            if lines.len() > most {
                let text = "closed: it monitors more at once than it may leave untaken (--max-subscriber-output)";
                context.warn(connection.session.client.address, text, text);
                connection.state.dead = true;
                self.lists.touched(key, connection);
                continue;
            }
            let session = &mut connection.session;
            // One that has more than the limit is closed at the end of the turn.
            if session.closing || session.output.pending() > most {
                continue;
            }
            session.output.borrow_buffer(&mut self.pool);
            session.output.buffer().extend_from_slice(lines);
            self.lists.touched(key, connection);
        }
    }
}
