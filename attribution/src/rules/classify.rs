//! Classes of activations (section 2 of the contract).

use super::policy::AppPolicy;
use super::row::InstallType;
use crate::facts::event::{Activation, EventTime};

/// The sort key of an activation within an install chain.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ActivationKey {
    pub time: EventTime,
    pub id: Box<str>,
}

/// The class of an activation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Class {
    pub install_type: InstallType,
    /// The id of the last `install` of the chain; only for a reinstall.
    pub original: Option<Box<str>>,
}

/// The state of an install chain after one of its activations. The class of the next activation depends only on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstallChain {
    /// The last `install`.
    pub install: ActivationKey,
    /// The last activation that is not a duplicate.
    pub last_counted: ActivationKey,
}

/// The install chains after one activation. Each device id of the activation has the chain of all activations with
/// this id; ids that have the same activations share a chain.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InstallChains {
    /// For each device id, in sorted order, the index of its chain; empty if all ids have the first chain.
    pub chain_indexes: Vec<u8>,
    pub chains: Vec<InstallChain>,
}

impl ActivationKey {
    pub fn of(activation: &Activation) -> Self {
        Self { time: activation.time, id: activation.id.clone() }
    }
}

impl InstallChain {
    /// Returns the chain after the next activation, and the activation's class.
    pub fn advance(
        before: Option<&Self>,
        app: &AppPolicy,
        activation_key: ActivationKey,
    ) -> (Self, Class) {
        let since = |earlier: &ActivationKey| activation_key.time.since(earlier.time).unwrap_or(0);
        let Some(before) = before else {
            return Self::new_install(activation_key);
        };
        let Self { install, last_counted } = before.clone();
        if since(&last_counted) < app.duplicate_within_ms {
            let class = Class { install_type: InstallType::Duplicate, original: None };
            return (Self { install, last_counted }, class);
        }
        if since(&install) > app.reattribution_window_ms {
            return Self::new_install(activation_key);
        }
        let original = Some(install.id.clone());
        let class = Class { install_type: InstallType::Reinstall, original };
        (Self { install, last_counted: activation_key }, class)
    }

    fn new_install(activation_key: ActivationKey) -> (Self, Class) {
        let class = Class { install_type: InstallType::Install, original: None };
        (Self { install: activation_key.clone(), last_counted: activation_key }, class)
    }
}

impl InstallChains {
    /// Checks whether the next activation gets the same class from both, whichever device id links it to them. The
    /// ids that share a chain can differ, because activations that made their chains differ may have expired.
    pub fn is_equivalent_to(&self, other: &Self) -> bool {
        let ids = self.chain_indexes.len().max(other.chain_indexes.len()).max(1);
        let chain = |chains: &Self, position| chains.at(position).map(|(_, chain)| chain.clone());
        (0..ids).all(|position| chain(self, position) == chain(other, position))
    }

    /// Returns the approximate size in memory.
    pub fn bytes(&self) -> usize {
        let chains = self.chains.iter().map(|chain| {
            size_of::<InstallChain>() + chain.install.id.len() + chain.last_counted.id.len()
        });
        self.chain_indexes.len() + chains.sum::<usize>()
    }

    /// Returns the chain of the device id at this position, and the chain's index.
    pub fn at(&self, position: usize) -> Option<(u8, &InstallChain)> {
        let index = match self.chain_indexes.get(position) {
            Some(index) => *index,
            None if self.chain_indexes.is_empty() => 0,
            None => return None,
        };
        Some((index, self.chains.get(usize::from(index))?))
    }
}
