//! Tokens under which the network reports events of a thread's sockets.

/// The token of a thread's listener.
pub(crate) const LISTENER: usize = usize::MAX - 1;

/// Returns the token of a client's connection. Tokens of clients are even, those of nodes are odd.
pub(crate) fn client_token(place: usize) -> usize {
    2 * place
}

/// Returns the token of a connection to a node.
pub(crate) fn link_token(link: usize) -> usize {
    2 * link + 1
}
