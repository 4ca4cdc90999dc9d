//! What every handler needs: the reading side of the store, the settings, and what limits requests.

use std::sync::Arc;

use attribution::facts::event::EventTime;
use attribution::rules::policy::Policy;
use store::reader::Reader;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::access::{Access, Caller};
use super::problem::Problem;
use super::refusal::Refusal;
use crate::ExportError;
use crate::download::cpu_slots::CpuSlots;
use crate::download::registry::Exports;
use crate::metrics::Metrics;
use crate::page::recent_lookups::Lookups;

/// Scans at one time, each with a thread of its own; far below the number of threads that the
/// runtime has for them.
pub(crate) const SCANS_MAX: usize = 64;

/// What answers need; cheap to clone.
#[derive(Clone)]
pub struct ExportState {
    pub(crate) reader: Reader,
    pub(crate) policy: Arc<Policy>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) exports: Arc<Exports>,
    pub(crate) lookups: Arc<Lookups>,
    pub(crate) complete_until: CompleteUntil,
    pub(crate) access: Arc<Access>,
    pub(crate) scans: Arc<Semaphore>,
    pub(crate) turns: CpuSlots,
}

/// Up to when all that Kafka received is in the store, if that is known.
pub type CompleteUntil = Arc<dyn Fn() -> Option<EventTime> + Send + Sync>;

impl ExportState {
    /// Registers the metrics with the recorder that is installed.
    pub fn new(
        reader: Reader,
        policy: Arc<Policy>,
        access: Access,
        complete_until: CompleteUntil,
    ) -> Self {
        Self {
            reader,
            policy,
            metrics: Arc::new(Metrics::new()),
            exports: Arc::default(),
            lookups: Arc::default(),
            access: Arc::new(access),
            complete_until,
            scans: Arc::new(Semaphore::new(SCANS_MAX)),
            turns: CpuSlots::new(),
        }
    }

    /// A place among the caller's downloads and one among all, until both are dropped.
    pub(crate) fn start_download(
        &self,
        caller: &Caller,
    ) -> Result<[OwnedSemaphorePermit; 2], Problem> {
        let own = caller.start_download().map_err(|refusal| self.refuse(refusal))?;
        let of_all = Arc::clone(&self.scans).try_acquire_owned();
        Ok([own, of_all.map_err(|_| ExportError::Busy { scans_max: SCANS_MAX })?])
    }

    /// The problem that a refusal is answered with, counted.
    pub(crate) fn refuse(&self, refusal: Refusal) -> Problem {
        self.metrics.refused(refusal.reason());
        refusal.into()
    }
}
