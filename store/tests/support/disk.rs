//! One store on disk for many runs, because opening one takes 0.1 s. Each run has its own apps, which differ from those
//! of other runs only by their pids.

use std::cell::RefCell;
use std::sync::Arc;

use adtrail_store::embedded::Embedded;
use attribution::facts::event::{Fact, Pid};
use attribution::ledger::Ledger;
use attribution::parallelism::Parallelism;
use attribution::rules::policy::{AppPolicy, Campaign, Policy};
use attribution::worker::{Batch, Worker};
use tempfile::TempDir;

use super::crashing_on_commit::CrashingOnCommit;
use super::folders::temp_folder;
use super::row_text::RowText;
use super::rules;
use super::run::{open, rows_of};

/// The number of runs per store, after which a new store is opened.
const RUNS: u32 = 4_000;

thread_local! {
    static DISK: RefCell<Disk> = RefCell::new(Disk::new());
}

/// Processes the batches on a store on disk, with a [`Restart`] before each, and returns the rows.
pub fn rows_on_disk(policy: &Policy, batches: &[(Restart, Vec<Fact>)]) -> Vec<RowText> {
    rows_on_disk_with(policy, batches, |_| Parallelism::default())
}

/// [`rows_on_disk`], with each batch divided among threads, depending on its index.
pub fn rows_on_disk_with(
    policy: &Policy,
    batches: &[(Restart, Vec<Fact>)],
    parallelism: impl Fn(usize) -> Parallelism,
) -> Vec<RowText> {
    DISK.with_borrow_mut(|disk| disk.rows(policy, batches, parallelism))
}

/// What happens to the process before a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restart {
    No,
    /// None, and the commit of the batch before is still in flight.
    InFlight,
    /// The store is closed and reopened.
    BeforeBatch,
    /// The process crashes before it commits the batch; the batch is redelivered.
    BeforeCommit,
}

struct Disk {
    store: Option<Embedded>,
    /// The apps of all runs.
    all_apps: Policy,
    runs: u32,
    parallelism: Parallelism,
    dir: TempDir,
}

impl Disk {
    fn new() -> Self {
        let apps = (0..RUNS).flat_map(|run| rules::apps().map(|app| app_in(run, app)));
        let all_apps = Policy::new(apps.collect(), Vec::new());
        let dir = temp_folder();
        Self { store: None, all_apps, runs: 0, parallelism: Parallelism::default(), dir }
    }

    fn rows(
        &mut self,
        policy: &Policy,
        batches: &[(Restart, Vec<Fact>)],
        parallelism: impl Fn(usize) -> Parallelism,
    ) -> Vec<RowText> {
        if self.runs == RUNS {
            *self = Self::new();
        }
        let run = self.runs;
        self.runs += 1;
        let policy = Arc::new(policy_in(run, policy));
        for (index, (restart, facts)) in batches.iter().enumerate() {
            let parallelism = parallelism(index);
            self.parallelism = parallelism;
            if *restart == Restart::No {
                self.store().wait_for_commit().expect("the store works");
            }
            let facts: Vec<_> = facts.iter().map(|fact| fact_in(run, fact)).collect();
            let batch = || Batch { facts: facts.clone(), ..Batch::default() };
            if *restart == Restart::BeforeCommit {
                let ledger = CrashingOnCommit { ledger: self.store(), crashes_after: Some(0) };
                let worker = Worker::new(ledger, Arc::clone(&policy));
                let mut worker = worker.with_parallelism(parallelism);
                worker.process(batch()).expect_err("the process crashes");
            }
            if matches!(restart, Restart::BeforeBatch | Restart::BeforeCommit) {
                self.store = None;
            }
            let ledger = CrashingOnCommit { ledger: self.store(), crashes_after: None };
            let worker = Worker::new(ledger, Arc::clone(&policy));
            let mut worker = worker.with_parallelism(parallelism);
            worker.process_ahead(batch()).expect("the store works");
        }
        self.store().wait_for_commit().expect("the store works");
        let apps = rules::apps();
        let shown =
            |app: &AppPolicy| rows_of(&self.store().reader(), &app_in(run, app.clone()), app.pid);
        apps.iter().map(shown).collect::<Vec<_>>().concat()
    }

    fn store(&mut self) -> &mut Embedded {
        let store = self.store.get_or_insert_with(|| {
            let mut store = open(self.dir.path(), &self.all_apps);
            store.defer_writes();
            store
        });
        store.set_parallelism(self.parallelism);
        store
    }
}

pub fn pid_in(run: u32, pid: Pid) -> Pid {
    Pid(pid.0 + run * 2)
}

fn app_in(run: u32, app: AppPolicy) -> AppPolicy {
    AppPolicy { pid: pid_in(run, app.pid), ..app }
}

pub fn policy_in(run: u32, policy: &Policy) -> Policy {
    let campaigns = policy
        .campaigns()
        .map(|campaign| Campaign { pid: pid_in(run, campaign.pid), ..campaign.clone() });
    let channels = policy.campaigns().map(|campaign| campaign.channel.clone());
    let signed = channels.filter(|channel| policy.is_signed_channel(channel));
    let apps = policy.apps().map(|app| app_in(run, app.clone()));
    Policy::new(apps.collect(), campaigns.collect()).with_signed_channels(signed)
}

pub fn fact_in(run: u32, fact: &Fact) -> Fact {
    let mut fact = fact.clone();
    let pid = match &mut fact {
        Fact::Touch(touch) => &mut touch.pid,
        Fact::Activation(activation) => &mut activation.pid,
        Fact::Effect(effect) => &mut effect.pid,
    };
    *pid = pid_in(run, *pid);
    fact
}
