//! The state of every handler: the store's reader, the settings, and the limits of requests.

use std::sync::Arc;

use attribution::facts::event::EventTime;
use attribution::rules::policy::Policy;
use axum::http::StatusCode;
use store::reader::Reader;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::access::{Access, Caller};
use super::audit::{AuditedRequest, Refusals};
use super::problem::Problem;
use super::refusal::Refusal;
use crate::download::cpu_slots::CpuSlots;
use crate::download::registry::Exports;
use crate::metrics::Metrics;
use crate::page::lookup::recent::DeviceLookups;
use crate::{ExportError, TrackingLinks};

/// Concurrent scans, each on a thread of its own; far below the limit of the runtime's blocking threads.
pub(crate) const SCANS_MAX: usize = 64;

/// The caller's permit and the service's. They are released when neither the scan nor the body needs them: a body that
/// a client does not read holds chunks, and the scan of an aborted download goes on to the end of its turn.
pub(crate) type Permits = Arc<[OwnedSemaphorePermit; 2]>;

/// State of all handlers; cheap to clone.
#[derive(Clone)]
pub struct ExportState {
    pub(crate) reader: Reader,
    pub(crate) policy: Arc<Policy>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) exports: Arc<Exports>,
    pub(crate) lookups: Arc<DeviceLookups>,
    pub(crate) complete_until: CompleteUntil,
    pub(crate) access: Arc<Access>,
    pub(crate) refusals: Arc<Refusals>,
    pub(crate) scans: Arc<Semaphore>,
    pub(crate) cpu_slots: CpuSlots,
    /// `None` if the settings have no URL of the collector.
    pub(crate) links: Option<Arc<dyn TrackingLinks>>,
}

/// Returns the event time up to which everything that Kafka received is in the store, if that is known.
pub type CompleteUntil = Arc<dyn Fn() -> Option<EventTime> + Send + Sync>;

impl ExportState {
    /// Registers the metrics with the installed recorder.
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
            refusals: Arc::default(),
            complete_until,
            scans: Arc::new(Semaphore::new(SCANS_MAX)),
            cpu_slots: CpuSlots::new(),
            links: None,
        }
    }

    /// Adds the links of the collector.
    #[must_use]
    pub fn with_links(self, links: Option<Arc<dyn TrackingLinks>>) -> Self {
        Self { links, ..self }
    }

    /// Takes one of the caller's downloads and one of the service's scans, until the permits are dropped.
    pub(crate) fn start_download(
        &self,
        caller: &Caller,
        request: &AuditedRequest<'_>,
    ) -> Result<Permits, Problem> {
        let of_caller = caller.start_download().map_err(|refusal| self.refuse(refusal, request))?;
        let of_service = Arc::clone(&self.scans).try_acquire_owned();
        let of_service = of_service.map_err(|_| ExportError::Busy { scans_max: SCANS_MAX })?;
        Ok(Arc::new([of_caller, of_service]))
    }

    /// Counts and logs a refusal, and converts it into a problem.
    pub(crate) fn refuse(&self, refusal: Refusal, request: &AuditedRequest<'_>) -> Problem {
        let problem = Problem::from(refusal);
        self.refused(refusal.reason(), problem.status(), request);
        problem
    }

    /// Counts and logs a refusal.
    pub(crate) fn refused(
        &self,
        reason: &'static str,
        status: StatusCode,
        request: &AuditedRequest<'_>,
    ) {
        self.metrics.refused(reason);
        self.refusals.write(reason, status, request);
    }
}
