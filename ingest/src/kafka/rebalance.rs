//! Rebalances of the consumer group.

use super::partitions::Partitions;

/// A change of the partitions that are assigned to this member.
#[derive(Debug)]
pub enum Rebalance {
    /// The complete new assignment.
    Assigned(Partitions),
    /// All partitions were revoked. If they are lost, another member may read them already.
    Revoked { is_lost: bool },
}
