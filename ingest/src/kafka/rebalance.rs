//! Changes of the partitions that a member of the group has.

use super::partitions::Partitions;

/// What the group has changed.
#[derive(Debug)]
pub enum Rebalance {
    /// These partitions are this member's now, and no others.
    Assigned(Partitions),
    /// It has none any more. Somebody else may read them already if they are lost.
    Revoked { is_lost: bool },
}
