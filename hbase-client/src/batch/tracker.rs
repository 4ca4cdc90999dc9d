//! Tracks each action of a batch and decides what is retried. No I/O.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::ActionResults;
use crate::error::{Error, RetryAction};
use crate::names::Server;
use crate::rows::{Action, Outcome};

/// Actions to retry.
#[derive(Debug, PartialEq, Eq)]
pub struct Retry {
    pub ids: Vec<u32>,
    /// The largest number of failures of any of them, without the last one; `None` to retry at once.
    pub earlier_failures: Option<u32>,
}

#[derive(Debug)]
pub struct Tracker {
    entries: Vec<Entry>,
}

#[derive(Debug, Default)]
struct Entry {
    is_repeatable: bool,
    failures: u32,
    /// The error of an attempt that may have been executed although it got no result.
    in_doubt: Option<Arc<Error>>,
    /// The call in flight, if the action is not repeatable.
    sent: Option<Sent>,
    last_error: Option<Arc<Error>>,
    /// The result of the last call, until `decide` takes it.
    response: Option<Result<Outcome, Box<Error>>>,
    /// The final outcome.
    outcome: Option<Result<Outcome, Box<Error>>>,
}

/// A flag that the task of a call sets right before it sends the call: from then on the server may execute it.
#[derive(Debug, Clone, Default)]
pub struct Sent(Arc<AtomicBool>);

impl Sent {
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Tracker {
    pub fn new(actions: &[Action]) -> Self {
        let entry =
            |action: &Action| Entry { is_repeatable: action.is_repeatable(), ..Entry::default() };
        Self { entries: actions.iter().map(entry).collect() }
    }

    pub fn set_outcome(&mut self, id: u32, outcome: Result<Outcome, Box<Error>>) {
        self.entries[id as usize].outcome = Some(outcome);
    }

    /// Marks actions as part of a call.
    pub fn start_call(&mut self, ids: &[u32], sent: &Sent) {
        for &id in ids {
            let entry = &mut self.entries[id as usize];
            entry.sent = (!entry.is_repeatable).then(|| sent.clone());
        }
    }

    /// Records the results of a call. [`Self::finish_call`] must follow for each of its regions.
    pub fn record(&mut self, results: ActionResults) {
        for (id, result) in results {
            self.entries[id as usize].response = Some(result);
        }
    }

    /// Records the same error for several actions, and returns those to retry.
    pub fn fail(&mut self, ids: &[u32], error: &Error) -> Retry {
        self.record(ids.iter().map(|&id| (id, Err(Box::new(error.clone())))).collect());
        self.decide(ids, &mut Vec::new())
    }

    /// Returns which actions of one region to retry after a response, and their errors, one of each class.
    pub fn finish_call(&mut self, ids: &[u32], server: &Server) -> (Retry, Vec<Error>) {
        for &id in ids {
            self.entries[id as usize].response.get_or_insert_with(|| {
                let reason = "sent no result for a row of the request".to_owned();
                Err(Box::new(Error::Connection { server: server.clone(), reason }))
            });
        }
        let mut errors = Vec::new();
        let retry = self.decide(ids, &mut errors);
        (retry, errors)
    }

    fn decide(&mut self, ids: &[u32], errors: &mut Vec<Error>) -> Retry {
        let mut retried = Vec::new();
        // Errors with `AtOnce` need no backoff if the same response completed other actions.
        let (mut backoff, mut has_success) = (None, false);
        for &id in ids {
            let entry = &mut self.entries[id as usize];
            let Some(result) = entry.response.take() else { continue };
            entry.sent = None;
            let retry_action = match &result {
                Ok(_) => RetryAction::Fail,
                Err(error) => error.retry_action(),
            };
            has_success |= result.is_ok();
            if retry_action == RetryAction::Fail {
                entry.outcome = Some(entry.conclude(result));
                continue;
            }
            if let Err(error) = result {
                add_distinct(errors, &error);
                let earlier_failures = entry.failures;
                entry.record_failure(*error);
                if retry_action != RetryAction::AtOnce {
                    backoff = backoff.max(Some(earlier_failures));
                }
            }
            retried.push(id);
        }
        let failures = retried.iter().map(|&id| self.entries[id as usize].failures).max();
        let earlier_failures = match backoff {
            None if has_success => None,
            None => failures.map(|failures| failures.saturating_sub(1)),
            backoff => backoff,
        };
        Retry { ids: retried, earlier_failures }
    }

    /// Returns the outcomes. Actions without one have timed out.
    pub fn into_outcomes(self, limit: Duration) -> impl Iterator<Item = Result<Outcome, Error>> {
        self.entries.into_iter().map(move |mut entry| {
            let outcome = entry.outcome.take().unwrap_or_else(|| entry.time_out(limit));
            outcome.map_err(|error| *error)
        })
    }
}

impl Entry {
    fn record_failure(&mut self, error: Error) {
        self.failures += 1;
        let error = Arc::new(error);
        if error.may_have_executed() {
            self.in_doubt = Some(error.clone());
        }
        self.last_error = Some(error);
    }

    /// Returns the final outcome. After an attempt in doubt, an error or a condition that does not hold leaves it
    /// uncertain: that attempt itself may have changed the cell of the condition.
    fn conclude(&mut self, outcome: Result<Outcome, Box<Error>>) -> Result<Outcome, Box<Error>> {
        match (outcome, self.in_doubt.take()) {
            (outcome, _) if self.is_repeatable => outcome,
            (Ok(Outcome::Checked(false)), Some(last)) => Err(Box::new(Error::Uncertain { last })),
            (Err(error), Some(_)) => Err(Box::new(Error::Uncertain { last: Arc::from(error) })),
            (outcome, _) => outcome,
        }
    }

    /// Returns the outcome of an action without a result at the deadline. A call in flight may still be executed.
    fn time_out(&mut self, limit: Duration) -> Result<Outcome, Box<Error>> {
        let operation = "a batch of rows";
        let error = Error::Deadline { operation, limit, last: self.last_error.take() };
        if self.sent.take().is_some_and(|sent| sent.0.load(Ordering::Relaxed)) {
            self.in_doubt = Some(Arc::new(error.clone()));
        }
        self.conclude(Err(Box::new(error)))
    }
}

/// Adds an error unless there is one of its class: thousands of rows may fail with the same error.
fn add_distinct(errors: &mut Vec<Error>, error: &Error) {
    let kind = |error: &Error| match error {
        Error::Refused { exception, .. } => exception.class.clone(),
        _ => String::new(),
    };
    if !errors.iter().any(|known| kind(known) == kind(error)) {
        errors.push(error.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::{CheckAndMutate, Mutation, Put};

    fn server() -> Server {
        "h:1".parse().unwrap()
    }

    fn reset() -> Error {
        Error::Connection { server: server(), reason: "reset".to_owned() }
    }

    fn puts(count: usize) -> Vec<Action> {
        let put = Put::new("r").cell("f", "q", "v");
        vec![Action::Mutate(Mutation::from(put).change); count]
    }

    fn check() -> Vec<Action> {
        let put = Put::new("r").cell("f", "q", "v");
        vec![Action::Check(CheckAndMutate::where_absent("f", "q", put))]
    }

    fn retry(ids: &[u32], earlier_failures: Option<u32>) -> Retry {
        Retry { ids: ids.to_vec(), earlier_failures }
    }

    #[test]
    fn only_failed_actions_are_retried() {
        let mut tracker = Tracker::new(&puts(4));
        tracker.record(vec![
            (0, Ok(Outcome::Row(None))),
            (1, Err(Error::refused("a.RegionTooBusyException").into())),
            (2, Err(Error::refused("a.NoSuchColumnFamilyException").into())),
        ]);
        let (retried, errors) = tracker.finish_call(&[0, 1, 2, 3], &server());
        // The response has no result for 3.
        assert_eq!(retried, retry(&[1, 3], Some(0)));
        assert_eq!(errors.len(), 2);
        let retried = tracker.fail(&[1, 3], &reset());
        assert_eq!(retried, retry(&[1, 3], Some(1)));
        let outcomes: Vec<_> = tracker.into_outcomes(Duration::from_secs(1)).collect();
        assert!(matches!(outcomes[0], Ok(Outcome::Row(None))));
        assert!(matches!(outcomes[1], Err(Error::Deadline { last: Some(_), .. })));
        assert!(matches!(&outcomes[2], Err(Error::Refused { exception, .. })
            if exception.name() == "NoSuchColumnFamilyException"));
    }

    #[test]
    fn rest_of_a_large_response_is_requested_at_once_while_each_response_has_some_rows() {
        let mut tracker = Tracker::new(&puts(2));
        let rest = || Err(Error::refused("a.MultiActionResultTooLarge").into());
        tracker.record(vec![(0, Ok(Outcome::Row(None))), (1, rest())]);
        assert_eq!(tracker.finish_call(&[0, 1], &server()).0, retry(&[1], None));
        tracker.record(vec![(1, rest())]);
        assert_eq!(tracker.finish_call(&[1], &server()).0, retry(&[1], Some(1)));
    }

    #[track_caller]
    fn check_doubt(first: &Error, later: Outcome, expected: Result<Outcome, ()>) {
        let mut tracker = Tracker::new(&check());
        tracker.fail(&[0], first);
        tracker.record(vec![(0, Ok(later))]);
        tracker.finish_call(&[0], &server());
        let outcome = tracker.into_outcomes(Duration::from_secs(1)).next().unwrap();
        let shown =
            outcome.map_err(|error| assert!(matches!(error, Error::Uncertain { .. }), "{error}"));
        assert_eq!(shown, expected, "after {first}");
    }

    #[test]
    fn check_that_does_not_hold_after_a_lost_response_is_uncertain() {
        let (applied, failed) = (Outcome::Checked(true), Outcome::Checked(false));
        check_doubt(&reset(), failed.clone(), Err(()));
        check_doubt(&reset(), applied.clone(), Ok(applied));
        check_doubt(
            &Error::refused("a.NotServingRegionException"),
            failed.clone(),
            Ok(failed.clone()),
        );
        check_doubt(&Error::refused("java.io.IOException"), failed, Err(()));
    }

    #[test]
    fn error_after_a_lost_response_makes_a_check_uncertain_but_not_a_put() {
        let outcome = |actions: &[Action], lost: &Error, later: &Error| {
            let mut tracker = Tracker::new(actions);
            tracker.fail(&[0], lost);
            tracker.fail(&[0], later);
            tracker.into_outcomes(Duration::from_secs(60)).next().unwrap()
        };
        let refused = Error::refused("a.NoSuchColumnFamilyException");
        let disabled = Error::Disabled { table: "t".parse().unwrap() };
        // Retried until the deadline.
        let busy = Error::refused("a.RegionTooBusyException");
        for (later, expected) in [
            (&refused, "NoSuchColumnFamilyException"),
            (&disabled, "table t is disabled"),
            (&busy, "timed out after 60s; last error: h:1: a.RegionTooBusyException"),
        ] {
            let uncertain = outcome(&check(), &reset(), later).unwrap_err();
            assert!(matches!(uncertain, Error::Uncertain { .. }), "{uncertain}");
            assert!(uncertain.to_string().contains(expected), "{uncertain}");
        }
        let unreachable = Error::Unreachable { server: server(), reason: "refused".to_owned() };
        for certain in
            [outcome(&check(), &unreachable, &refused), outcome(&puts(1), &reset(), &refused)]
        {
            assert!(matches!(certain, Err(Error::Refused { .. })), "{certain:?}");
        }
    }

    #[test]
    fn check_in_flight_at_the_deadline_is_uncertain_if_it_was_sent() {
        // A put can be repeated safely, so its error is just the deadline.
        for (actions, is_sent, is_uncertain) in
            [(check(), true, true), (check(), false, false), (puts(1), true, false)]
        {
            let (mut tracker, sent) = (Tracker::new(&actions), Sent::default());
            tracker.start_call(&[0], &sent);
            if is_sent {
                sent.set();
            }
            let outcome = tracker.into_outcomes(Duration::from_secs(1)).next().unwrap();
            let error = outcome.unwrap_err();
            assert_eq!(matches!(error, Error::Uncertain { .. }), is_uncertain, "{error}");
        }
    }
}
