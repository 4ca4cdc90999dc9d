//! The pages that look something up by an id: an activation, a device. Start with `device`.

pub(super) mod device;
pub(crate) mod recent;
