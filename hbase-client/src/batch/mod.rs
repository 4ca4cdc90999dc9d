//! Runs many actions at once: groups them by region and server, and retries only those that failed. Start with [`run`];
//! `multi` encodes a call, `tracker` decides what is retried.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::cluster::{Cluster, range_contains};
use crate::connection::{Call, Service};
use crate::error::{Error, backoff};
use crate::names::{Server, TableName};
use crate::proto::data::MultiResponse;
use crate::rows::{Action, Outcome};

pub(crate) mod multi;
mod tracker;
use multi::{Group, Multi};
use tracker::{Retry, Sent, Tracker};

/// Results of actions, with the index of each action in the batch. Errors are boxed because they are large and rare.
type ActionResults = Vec<(u32, Result<Outcome, Box<Error>>)>;

/// The data that all calls of a batch share.
#[derive(Debug)]
struct Batch {
    cluster: Arc<Cluster>,
    table: TableName,
    actions: Vec<Action>,
    deadline: Instant,
}

/// The result of one task of a batch.
#[derive(Debug)]
enum Step {
    /// Actions whose regions were located, and those whose were not.
    Located { groups: Vec<Group>, unlocated: Vec<Unlocated> },
    /// A call ended, with a result per row or with one error.
    Called { server: Server, groups: Vec<Group>, outcome: Result<ActionResults, Error> },
}

/// Actions on a range of rows whose region could not be located.
#[derive(Debug)]
struct Unlocated {
    range: Range<Bytes>,
    ids: Vec<u32>,
    error: Error,
}

impl Unlocated {
    /// A region without a server does not affect other regions. Any other error applies to all rows of the table,
    /// because it would occur again.
    fn new(error: Error, id: u32) -> Self {
        let range = match &error {
            Error::NoServer { region, .. } => region.clone(),
            _ => Range::default(),
        };
        Self { range, ids: vec![id], error }
    }
}

/// Runs the actions and returns their outcomes, in the same order.
pub(crate) async fn run(
    cluster: &Arc<Cluster>,
    table: &TableName,
    actions: Vec<Action>,
) -> impl Iterator<Item = Result<Outcome, Error>> {
    let deadline = cluster.config.operation_deadline();
    let mut tracker = Tracker::new(&actions);
    let bytes_max = cluster.config.in_flight_bytes_max;
    let mut valid_ids = Vec::with_capacity(actions.len());
    for (id, action) in actions.iter().enumerate() {
        match action.check(bytes_max) {
            Ok(()) => valid_ids.push(id as u32),
            Err(error) => tracker.set_outcome(id as u32, Err(Box::new(error))),
        }
    }
    let (cluster, table) = (cluster.clone(), table.clone());
    let batch = Arc::new(Batch { cluster, table, actions, deadline });
    // If the caller drops this future, it drops the set, which cancels all tasks.
    let mut steps = JoinSet::new();
    let located = batch.locate(valid_ids).await;
    batch.handle(located, &mut tracker, &mut steps);
    loop {
        let step = tokio::select! {
            step = steps.join_next() => step,
            () = sleep_until(deadline) => None,
        };
        match step {
            Some(Ok(step)) => batch.handle(step, &mut tracker, &mut steps),
            // The actions of a task that panicked get no outcome, and time out.
            Some(Err(_)) => {}
            None => break,
        }
    }
    tracker.into_outcomes(batch.cluster.config.operation_timeout)
}

impl Batch {
    /// Groups actions by region. Consecutive rows are often in the same region, so the last region is tried first.
    async fn locate(&self, ids: Vec<u32>) -> Step {
        let mut groups: Vec<Group> = Vec::new();
        let mut by_start: BTreeMap<Bytes, usize> = BTreeMap::new();
        let mut unlocated: Vec<Unlocated> = Vec::new();
        let mut last: Option<usize> = None;
        for id in ids {
            let row = self.actions[id as usize].row();
            let contains_row = |index: &usize| groups[*index].region.contains(row);
            let at_or_before =
                || by_start.range::<Bytes, _>(..=row).next_back().map(|(_, index)| *index);
            let found = last.filter(contains_row).or_else(|| at_or_before().filter(contains_row));
            if let Some(index) = found {
                groups[index].ids.push(id);
                last = Some(index);
                continue;
            }
            let has_failed = |failed: &&mut Unlocated| {
                range_contains(&failed.range.start, &failed.range.end, row)
            };
            if let Some(failed) = unlocated.iter_mut().find(has_failed)
                && self.cluster.cached(&self.table, row).is_none()
            {
                failed.ids.push(id);
                continue;
            }
            match self.cluster.locate(&self.table, row, self.deadline).await {
                Ok(region) => {
                    by_start.insert(region.start.clone(), groups.len());
                    last = Some(groups.len());
                    groups.push(Group { region, ids: vec![id] });
                }
                Err(error) => unlocated.push(Unlocated::new(error, id)),
            }
        }
        Step::Located { groups, unlocated }
    }

    /// Records the result of a task, and spawns the next calls and retries.
    fn handle(self: &Arc<Self>, step: Step, tracker: &mut Tracker, steps: &mut JoinSet<Step>) {
        match step {
            Step::Located { groups, unlocated } => {
                for Unlocated { ids, error, .. } in unlocated {
                    let retry = tracker.fail(&ids, &error);
                    self.retry(retry, steps);
                }
                for (server, groups) in self.calls(groups) {
                    let (batch, sent) = (self.clone(), Sent::default());
                    groups.iter().for_each(|group| tracker.start_call(&group.ids, &sent));
                    steps.spawn(async move {
                        let outcome = batch.call(&server, &groups, &sent).await;
                        Step::Called { server, groups, outcome }
                    });
                }
            }
            Step::Called { server, groups, outcome: Err(error) } => {
                tracing::debug!(%server, %error, "batch call failed");
                for group in groups {
                    self.cluster.handle_error(&self.table, &group.region, &error);
                    let retry = tracker.fail(&group.ids, &error);
                    self.retry(retry, steps);
                }
            }
            Step::Called { groups, outcome: Ok(results), server } => {
                tracker.record(results);
                for group in groups {
                    let (retry, errors) = tracker.finish_call(&group.ids, &server);
                    for error in errors {
                        self.cluster.handle_error(&self.table, &group.region, &error);
                    }
                    self.retry(retry, steps);
                }
            }
        }
    }

    fn retry(self: &Arc<Self>, retry: Retry, steps: &mut JoinSet<Step>) {
        let Retry { ids, earlier_failures } = retry;
        if ids.is_empty() {
            return;
        }
        let delay = earlier_failures.map_or(Duration::ZERO, backoff::delay);
        let batch = self.clone();
        steps.spawn(async move {
            sleep(delay).await;
            batch.locate(ids).await
        });
    }

    /// Divides groups into calls of limited size, each to one server.
    fn calls(&self, groups: Vec<Group>) -> Vec<(Server, Vec<Group>)> {
        let mut by_server: BTreeMap<Server, Vec<Group>> = BTreeMap::new();
        for group in groups {
            by_server.entry(group.region.server.clone()).or_default().push(group);
        }
        let mut calls = Vec::new();
        for (server, groups) in by_server {
            calls.extend(self.split(groups).into_iter().map(|groups| (server.clone(), groups)));
        }
        calls
    }

    /// Divides the groups of one server into calls.
    fn split(&self, groups: Vec<Group>) -> Vec<Vec<Group>> {
        let config = &self.cluster.config;
        let mut calls = vec![Vec::new()];
        let (mut actions, mut bytes) = (0, 0);
        for group in groups {
            // The index in the current call of the group of this region.
            let mut open: Option<usize> = None;
            for id in group.ids {
                let action_bytes = self.actions[id as usize].bytes();
                let is_full = actions >= config.call_actions_max.max(1)
                    || (actions > 0 && bytes + action_bytes > config.call_bytes_max);
                if is_full {
                    calls.push(Vec::new());
                    (actions, bytes, open) = (0, 0, None);
                }
                (actions, bytes) = (actions + 1, bytes + action_bytes);
                let Some(call) = calls.last_mut() else { continue };
                let index = *open.get_or_insert_with(|| {
                    call.push(Group { region: group.region.clone(), ids: Vec::new() });
                    call.len() - 1
                });
                call[index].ids.push(id);
            }
        }
        calls.retain(|call| !call.is_empty());
        calls
    }

    async fn call(
        &self,
        server: &Server,
        groups: &[Group],
        sent: &Sent,
    ) -> Result<ActionResults, Error> {
        let connection = self.cluster.connections.get(server, Service::Rows).await?;
        // Acquired before the request is built and the call's deadline starts: waiting takes no memory and none of
        // the call's time.
        let ids = groups.iter().flat_map(|group| &group.ids);
        let bytes = ids.map(|&id| self.actions[id as usize].bytes()).sum();
        let permit = Some(connection.acquire(bytes).await?);
        let deadline = self.cluster.config.call_deadline(self.deadline);
        let mut multi = Multi::build(&self.actions, groups);
        let cells = std::mem::take(&mut multi.cells);
        let call = Call { cells, permit, ..Call::new("Multi", &multi.request, deadline) };
        sent.set();
        let (response, cells) = connection.call::<_, MultiResponse>(call).await?;
        let results = multi.read(&response, cells);
        let results =
            results.map_err(|source| Error::Protocol { server: server.clone(), source })?;
        let refused = |exception| Box::new(Error::Refused { server: server.clone(), exception });
        Ok(results.into_iter().map(|(id, outcome)| (id, outcome.map_err(refused))).collect())
    }
}
