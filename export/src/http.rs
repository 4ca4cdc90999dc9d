//! What all routes share.

pub(crate) mod extract;
pub(crate) mod refusal;
pub(crate) mod state;
