//! Many actions at once: each is sent to the server that has its row, those of one server together,
//! and only what failed is sent again.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::action::{Action, Outcome};
use crate::backoff;
use crate::cluster::Cluster;
use crate::connection::{Call, Service};
use crate::error::Error;
use crate::location::Region;
use crate::multi::{Group, Multi};
use crate::names::{Server, TableName};
use crate::proto::data::MultiResponse;

mod tracker;
use tracker::{Ledger, Retry, Sent};

/// What was said of actions, by their places. Errors are large, and few.
type Said = Vec<(u32, Result<Outcome, Box<Error>>)>;

/// What is the same for all calls of a batch.
#[derive(Debug)]
struct Batch {
    cluster: Arc<Cluster>,
    table: TableName,
    actions: Vec<Action>,
    deadline: Instant,
}

/// What a step of a batch ends with.
#[derive(Debug)]
enum Step {
    /// Regions were found for these, and not for those.
    Placed { groups: Vec<Group>, lost: Vec<Lost> },
    /// A call was answered, row by row, or as a whole.
    Called { server: Server, groups: Vec<Group>, outcome: Result<Said, Error> },
}

/// Actions on rows of a range of which it is not known now where it is.
#[derive(Debug)]
struct Lost {
    range: Range<Bytes>,
    ids: Vec<u32>,
    error: Error,
}

impl Lost {
    /// A region without a server says nothing about others; whatever else went wrong would again.
    fn new(error: Error) -> Self {
        let range = match &error {
            Error::NoServer { region, .. } => region.clone(),
            _ => Range::default(),
        };
        Self { range, ids: Vec::new(), error }
    }

    fn holds(&self, row: &[u8]) -> bool {
        self.range.start <= row && (self.range.end.is_empty() || row < &self.range.end[..])
    }
}

/// What came of each action, in their order.
pub(crate) async fn run(
    cluster: &Arc<Cluster>,
    table: &TableName,
    actions: Vec<Action>,
) -> impl Iterator<Item = Result<Outcome, Error>> {
    let deadline = cluster.operation_deadline();
    let mut ledger = Ledger::new(&actions);
    let bytes_max = cluster.config.in_flight_bytes_max;
    let mut wanted = Vec::with_capacity(actions.len());
    for (id, action) in actions.iter().enumerate() {
        match action.check(bytes_max) {
            Ok(()) => wanted.push(id as u32),
            Err(error) => ledger.settle(id as u32, Err(Box::new(error))),
        }
    }
    let (cluster, table) = (cluster.clone(), table.clone());
    let batch = Arc::new(Batch { cluster, table, actions, deadline });
    // Dropped with all that is under way, when the caller no longer waits.
    let mut steps = JoinSet::new();
    let placed = batch.place(wanted).await;
    batch.follow(placed, &mut ledger, &mut steps);
    loop {
        let step = tokio::select! {
            step = steps.join_next() => step,
            () = sleep_until(deadline) => None,
        };
        match step {
            Some(Ok(step)) => batch.follow(step, &mut ledger, &mut steps),
            // A step that panicked leaves its actions open.
            Some(Err(_)) => {}
            None => break,
        }
    }
    ledger.close(batch.cluster.config.operation_timeout)
}

impl Batch {
    /// Finds the regions of rows, which often stand together.
    async fn place(&self, ids: Vec<u32>) -> Step {
        let mut groups: Vec<Group> = Vec::new();
        let mut by_start: BTreeMap<Bytes, usize> = BTreeMap::new();
        let (mut lost, mut last) = (Vec::<Lost>::new(), None::<usize>);
        for id in ids {
            let row = self.actions[id as usize].row();
            let has_row = |index: &usize| groups[*index].region.contains(row);
            let at_or_before =
                || by_start.range::<Bytes, _>(..=row).next_back().map(|(_, index)| *index);
            let found = last.filter(has_row).or_else(|| at_or_before().filter(has_row));
            if let Some(index) = found {
                groups[index].ids.push(id);
                last = Some(index);
                continue;
            }
            let region = match self.find(row, &lost).await {
                Ok(region) => region,
                Err(index) => {
                    let index = index.unwrap_or_else(|error| {
                        lost.push(Lost::new(error));
                        lost.len() - 1
                    });
                    lost[index].ids.push(id);
                    continue;
                }
            };
            by_start.insert(region.start.clone(), groups.len());
            last = Some(groups.len());
            groups.push(Group { region, ids: vec![id] });
        }
        Step::Placed { groups, lost }
    }

    /// Else where it is lost, already or for this reason.
    async fn find(&self, row: &[u8], lost: &[Lost]) -> Result<Arc<Region>, Result<usize, Error>> {
        if let Some(region) = self.cluster.known(&self.table, row) {
            return Ok(region);
        }
        if let Some(index) = lost.iter().position(|lost| lost.holds(row)) {
            return Err(Ok(index));
        }
        self.cluster.locate(&self.table, row, self.deadline).await.map_err(Err)
    }

    fn follow(self: &Arc<Self>, step: Step, ledger: &mut Ledger, steps: &mut JoinSet<Step>) {
        match step {
            Step::Placed { groups, lost } => {
                for Lost { ids, error, .. } in lost {
                    let retry = ledger.fail(&ids, &error);
                    self.retry(retry, steps);
                }
                for (server, groups) in self.calls(groups) {
                    let (batch, sent) = (self.clone(), Sent::default());
                    groups.iter().for_each(|group| ledger.begin(&group.ids, &sent));
                    steps.spawn(async move { batch.call(server, groups, &sent).await });
                }
            }
            Step::Called { server, groups, outcome: Err(error) } => {
                tracing::debug!(%server, %error, "a batch failed");
                for group in groups {
                    self.cluster.learn(&self.table, &group.region, &error);
                    let retry = ledger.fail(&group.ids, &error);
                    self.retry(retry, steps);
                }
            }
            Step::Called { groups, outcome: Ok(said), server } => {
                ledger.hear(said);
                for group in groups {
                    let (retry, errors) = ledger.judge(&group.ids, &server);
                    for error in errors {
                        self.cluster.learn(&self.table, &group.region, &error);
                    }
                    self.retry(retry, steps);
                }
            }
        }
    }

    fn retry(self: &Arc<Self>, retry: Retry, steps: &mut JoinSet<Step>) {
        let Retry { ids, failed_before } = retry;
        if ids.is_empty() {
            return;
        }
        let delay = failed_before.map_or(Duration::ZERO, backoff::delay);
        let batch = self.clone();
        steps.spawn(async move {
            sleep(delay).await;
            batch.place(ids).await
        });
    }

    /// Calls of bounded size, each to one server.
    fn calls(&self, groups: Vec<Group>) -> Vec<(Server, Vec<Group>)> {
        let mut by_server: BTreeMap<Server, Vec<Group>> = BTreeMap::new();
        for group in groups {
            by_server.entry(group.region.server.clone()).or_default().push(group);
        }
        let mut calls = Vec::new();
        for (server, groups) in by_server {
            calls.extend(self.cut(groups).into_iter().map(|groups| (server.clone(), groups)));
        }
        calls
    }

    fn cut(&self, groups: Vec<Group>) -> Vec<Vec<Group>> {
        let config = &self.cluster.config;
        let mut calls = vec![Vec::new()];
        let (mut actions, mut bytes) = (0, 0);
        for group in groups {
            let mut open: Option<usize> = None;
            for id in group.ids {
                let more = self.actions[id as usize].bytes();
                let is_full = actions >= config.call_actions_max.max(1)
                    || (actions > 0 && bytes + more > config.call_bytes_max);
                if is_full {
                    calls.push(Vec::new());
                    (actions, bytes, open) = (0, 0, None);
                }
                (actions, bytes) = (actions + 1, bytes + more);
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

    async fn call(&self, server: Server, groups: Vec<Group>, sent: &Sent) -> Step {
        let outcome = self.exchange(&server, &groups, sent).await;
        Step::Called { server, groups, outcome }
    }

    async fn exchange(
        &self,
        server: &Server,
        groups: &[Group],
        sent: &Sent,
    ) -> Result<Said, Error> {
        let connection = self.cluster.connection(server, Service::Rows).await?;
        // Before it is put together: what waits takes no memory, and none of the call's time.
        let ids = groups.iter().flat_map(|group| &group.ids);
        let bytes = ids.map(|&id| self.actions[id as usize].bytes()).sum();
        let room = Some(connection.room(bytes).await?);
        let deadline = self.cluster.call_deadline(self.deadline);
        let mut multi = Multi::build(&self.actions, groups);
        let cells = std::mem::take(&mut multi.cells);
        let call = Call { cells, room, ..Call::new("Multi", &multi.request, deadline) };
        sent.set();
        let answer = connection.call::<_, MultiResponse>(call).await?;
        let said = multi.read(&answer.0, answer.1);
        let said = said.map_err(|source| Error::Protocol { server: server.clone(), source })?;
        let refused = |fault| Box::new(Error::Refused { server: server.clone(), fault });
        Ok(said.into_iter().map(|(id, outcome)| (id, outcome.map_err(refused))).collect())
    }
}
