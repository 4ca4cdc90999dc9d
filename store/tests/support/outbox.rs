//! Endpoints, and access to the outbox of any ledger.

use adtrail_store::StoreError;
use adtrail_store::embedded::Embedded;
use adtrail_store::hbase::cluster::Cluster;
use adtrail_store::hbase::ledger::SharedLedger;
use adtrail_store::hbase::outbox::SharedOutbox;
use adtrail_store::memory::Memory;
use attribution::facts::event::{EventTime, SpreadId};
use attribution::ledger::Ledger;
use attribution::outbox::interest::{Interest, LateCredit, PlannedCallback};
use attribution::outbox::port::Outbox;
use attribution::outbox::record::{CallbackKind, CreditMark, EndpointId};
use attribution::rules::row::Status;

pub const LEASE_MS: u64 = 30_000;
/// Tests use events of the past.
const MAX_AGE_MS: u64 = 1 << 47;

/// Returns the interest of an ad network in all decisions, which are sent at once.
pub fn interest(name: &str) -> Interest {
    Interest {
        endpoint: EndpointId::new(name),
        apps: Vec::new(),
        channels: Vec::new(),
        kinds: vec![CallbackKind::Activation, CallbackKind::Effect],
        event_names: Vec::new(),
        settle_ms: 0,
        max_age_ms: MAX_AGE_MS,
        late_credit: LateCredit::Withhold,
    }
}

pub fn credit(fingerprint: u64) -> CreditMark {
    CreditMark { fingerprint, status: Status::Attributed, spreadid: SpreadId(7) }
}

/// Returns a callback of an activation that is due at once.
pub fn planned(name: &str, fingerprint: u64) -> PlannedCallback {
    PlannedCallback {
        endpoint: EndpointId::new(name),
        kind: CallbackKind::Activation,
        credit: credit(fingerprint),
        revision: 1,
        event_time: EventTime::default(),
        settle_ms: 0,
        max_age_ms: MAX_AGE_MS,
    }
}

/// A ledger whose outbox tests can use.
pub trait LedgerWithOutbox: Ledger<Error = StoreError> {
    fn with_outbox<R>(&mut self, work: impl FnOnce(&mut dyn Outbox<Error = StoreError>) -> R) -> R;
}

impl LedgerWithOutbox for Memory {
    fn with_outbox<R>(&mut self, work: impl FnOnce(&mut dyn Outbox<Error = StoreError>) -> R) -> R {
        work(self)
    }
}

impl LedgerWithOutbox for Embedded {
    fn with_outbox<R>(&mut self, work: impl FnOnce(&mut dyn Outbox<Error = StoreError>) -> R) -> R {
        work(&mut self.outbox())
    }
}

impl LedgerWithOutbox for SharedLedger<Cluster> {
    fn with_outbox<R>(&mut self, work: impl FnOnce(&mut dyn Outbox<Error = StoreError>) -> R) -> R {
        work(&mut SharedOutbox::new(self.cells().clone()))
    }
}
