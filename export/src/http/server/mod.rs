//! The limits of the listeners of this crate. `listener` serves the connections.

use listener::Limits;

/// Connections of one listener; further clients wait to be accepted. The process needs file descriptors for other
/// things, too.
pub const CONNECTIONS_MAX: usize = if cfg!(test) { 64 } else { 512 };

/// A URL has at most 65,534 bytes, enough for ten thousand campaigns.
const HEAD_BYTES_MAX: usize = 80 << 10;

pub(crate) const LIMITS: Limits =
    Limits { connections_max: CONNECTIONS_MAX, head_bytes_max: HEAD_BYTES_MAX };

#[cfg(test)]
mod tests;
