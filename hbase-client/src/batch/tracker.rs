//! What is known of each action of a batch, and what is decided about it. No IO.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::Said;
use crate::action::{Action, Outcome};
use crate::error::Error;
use crate::names::Server;
use crate::remote_exception::RetryAction;

/// Actions that are tried again.
#[derive(Debug, PartialEq, Eq)]
pub struct Retry {
    pub ids: Vec<u32>,
    /// How often the most unlucky of them failed; nothing where it is tried at once.
    pub failed_before: Option<u32>,
}

#[derive(Debug)]
pub struct Ledger {
    entries: Vec<Entry>,
}

#[derive(Debug, Clone)]
struct Entry {
    is_repeatable: bool,
    failed: u32,
    /// A try that ended without an answer, which may have been done all the same.
    in_doubt: Option<Arc<Error>>,
    /// The call that is under way, of what is not repeatable.
    sent: Option<Sent>,
    last: Option<Arc<Error>>,
    heard: Option<Result<Outcome, Box<Error>>>,
    settled: Option<Result<Outcome, Box<Error>>>,
}

/// Whether a call went out, as the task says that makes it: from then on it may be done.
#[derive(Debug, Clone, Default)]
pub struct Sent(Arc<AtomicBool>);

impl Sent {
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Ledger {
    pub fn new(actions: &[Action]) -> Self {
        Self { entries: actions.iter().map(Entry::new).collect() }
    }

    pub fn settle(&mut self, id: u32, outcome: Result<Outcome, Box<Error>>) {
        self.entries[id as usize].settled = Some(outcome);
    }

    /// A call is made with these.
    pub fn begin(&mut self, ids: &[u32], sent: &Sent) {
        for &id in ids {
            let entry = &mut self.entries[id as usize];
            entry.sent = (!entry.is_repeatable).then(|| sent.clone());
        }
    }

    /// Of calls that were answered; an action's region is judged as a whole.
    pub fn hear(&mut self, said: Said) {
        for (id, outcome) in said {
            self.entries[id as usize].heard = Some(outcome);
        }
    }

    /// The same went wrong with all of these.
    pub fn fail(&mut self, ids: &[u32], error: &Error) -> Retry {
        self.hear(ids.iter().map(|&id| (id, Err(Box::new(error.clone())))).collect());
        self.decide(ids, &mut Vec::new())
    }

    /// After an answer: what is tried again of one region's actions, and what was said of them, each
    /// class once.
    pub fn judge(&mut self, ids: &[u32], server: &Server) -> (Retry, Vec<Error>) {
        for &id in ids {
            self.entries[id as usize].heard.get_or_insert_with(|| {
                let reason = "said nothing of a row that it was sent".to_owned();
                Err(Box::new(Error::Connection { server: server.clone(), reason }))
            });
        }
        let mut errors = Vec::new();
        let retry = self.decide(ids, &mut errors);
        (retry, errors)
    }

    fn decide(&mut self, ids: &[u32], errors: &mut Vec<Error>) -> Retry {
        let mut again = Vec::new();
        // Where a server has done some of it, it does the rest if it says so.
        let (mut waits, mut has_done) = (None, false);
        for &id in ids {
            let entry = &mut self.entries[id as usize];
            let Some(outcome) = entry.heard.take() else { continue };
            entry.sent = None;
            let retry_action = match &outcome {
                Ok(_) => RetryAction::Fail,
                Err(error) => error.retry_action(),
            };
            has_done |= outcome.is_ok();
            if retry_action == RetryAction::Fail {
                entry.settled = Some(entry.conclude(outcome));
                continue;
            }
            if let Err(error) = outcome {
                note(errors, &error);
                let failed_before = entry.failed;
                entry.note(*error);
                if retry_action != RetryAction::AtOnce {
                    waits = waits.max(Some(failed_before));
                }
            }
            again.push(id);
        }
        let failed = again.iter().map(|&id| self.entries[id as usize].failed).max();
        let failed_before = match waits {
            None if has_done => None,
            None => failed.map(|failed| failed.saturating_sub(1)),
            waits => waits,
        };
        Retry { ids: again, failed_before }
    }

    /// The time is over, or all is settled.
    pub fn close(self, limit: Duration) -> impl Iterator<Item = Result<Outcome, Error>> {
        self.entries.into_iter().map(move |mut entry| {
            let outcome = entry.settled.take().unwrap_or_else(|| entry.run_out(limit));
            outcome.map_err(|error| *error)
        })
    }
}

impl Entry {
    fn new(action: &Action) -> Self {
        let is_repeatable = action.is_repeatable();
        let (in_doubt, sent, last) = (None, None, None);
        Self { is_repeatable, failed: 0, in_doubt, sent, last, heard: None, settled: None }
    }

    fn note(&mut self, error: Error) {
        self.failed += 1;
        let error = Arc::new(error);
        if error.may_be_done() {
            self.in_doubt = Some(error.clone());
        }
        self.last = Some(error);
    }

    /// An error is no answer to what an earlier try may have done, nor is a condition that does not hold:
    /// that try may be what changed what it is about.
    fn conclude(&mut self, outcome: Result<Outcome, Box<Error>>) -> Result<Outcome, Box<Error>> {
        match (outcome, self.in_doubt.take()) {
            (outcome, _) if self.is_repeatable => outcome,
            (Ok(Outcome::Checked(false)), Some(last)) => Err(Box::new(Error::Uncertain { last })),
            (Err(error), Some(_)) => Err(Box::new(Error::Uncertain { last: Arc::from(error) })),
            (outcome, _) => outcome,
        }
    }

    /// Without an answer until now: a call that is still under way may be done as well.
    fn run_out(&mut self, limit: Duration) -> Result<Outcome, Box<Error>> {
        let what = "a batch of rows";
        let error = Error::Deadline { what, limit, last: self.last.take() };
        if self.sent.take().is_some_and(|sent| sent.0.load(Ordering::Relaxed)) {
            self.in_doubt = Some(Arc::new(error.clone()));
        }
        self.conclude(Err(Box::new(error)))
    }
}

/// Thousands of rows say the same.
fn note(errors: &mut Vec<Error>, error: &Error) {
    let kind = |error: &Error| match error {
        Error::Refused { fault, .. } => fault.class.clone(),
        _ => String::new(),
    };
    if !errors.iter().any(|known| kind(known) == kind(error)) {
        errors.push(error.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::{CheckAndMutate, Mutation, Put};
    use crate::proto::rpc::ExceptionResponse;
    use crate::remote_exception::RemoteException;

    fn server() -> Server {
        "h:1".parse().unwrap()
    }

    fn refused(class: &str) -> Error {
        let exception = ExceptionResponse {
            exception_class_name: Some(class.to_owned()),
            ..ExceptionResponse::default()
        };
        Error::Refused { server: server(), fault: RemoteException::from_exception(&exception) }
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

    fn retry(ids: &[u32], failed_before: Option<u32>) -> Retry {
        Retry { ids: ids.to_vec(), failed_before }
    }

    #[test]
    fn only_what_failed_is_tried_again() {
        let mut ledger = Ledger::new(&puts(4));
        ledger.hear(vec![
            (0, Ok(Outcome::Row(None))),
            (1, Err(refused("a.RegionTooBusyException").into())),
            (2, Err(refused("a.NoSuchColumnFamilyException").into())),
        ]);
        let (again, errors) = ledger.judge(&[0, 1, 2, 3], &server());
        // Of 3 nothing was said.
        assert_eq!(again, retry(&[1, 3], Some(0)));
        assert_eq!(errors.len(), 2);
        let again = ledger.fail(&[1, 3], &reset());
        assert_eq!(again, retry(&[1, 3], Some(1)));
        let outcomes: Vec<_> = ledger.close(Duration::from_secs(1)).collect();
        assert!(matches!(outcomes[0], Ok(Outcome::Row(None))));
        assert!(matches!(outcomes[1], Err(Error::Deadline { last: Some(_), .. })));
        assert!(matches!(&outcomes[2], Err(Error::Refused { fault, .. })
            if fault.name() == "NoSuchColumnFamilyException"));
    }

    #[test]
    fn rest_of_a_long_answer_is_asked_for_at_once_while_some_of_it_comes() {
        let mut ledger = Ledger::new(&puts(2));
        let rest = || Err(refused("a.MultiActionResultTooLarge").into());
        ledger.hear(vec![(0, Ok(Outcome::Row(None))), (1, rest())]);
        assert_eq!(ledger.judge(&[0, 1], &server()).0, retry(&[1], None));
        ledger.hear(vec![(1, rest())]);
        assert_eq!(ledger.judge(&[1], &server()).0, retry(&[1], Some(1)));
    }

    #[track_caller]
    fn check_doubt(first: &Error, then: Outcome, expected: Result<Outcome, ()>) {
        let mut ledger = Ledger::new(&check());
        ledger.fail(&[0], first);
        ledger.hear(vec![(0, Ok(then))]);
        ledger.judge(&[0], &server());
        let outcome = ledger.close(Duration::from_secs(1)).next().unwrap();
        let shown =
            outcome.map_err(|error| assert!(matches!(error, Error::Uncertain { .. }), "{error}"));
        assert_eq!(shown, expected, "after {first}");
    }

    #[test]
    fn check_that_fails_after_a_lost_answer_is_in_doubt() {
        let (held, failed) = (Outcome::Checked(true), Outcome::Checked(false));
        check_doubt(&reset(), failed.clone(), Err(()));
        check_doubt(&reset(), held.clone(), Ok(held));
        check_doubt(&refused("a.NotServingRegionException"), failed.clone(), Ok(failed.clone()));
        check_doubt(&refused("java.io.IOException"), failed, Err(()));
    }

    #[test]
    fn check_that_ends_with_an_error_after_a_lost_answer_is_in_doubt_and_a_put_is_not() {
        let refused = refused("a.NoSuchColumnFamilyException");
        let outcome = |actions: &[Action], lost: &Error| {
            let mut ledger = Ledger::new(actions);
            ledger.fail(&[0], lost);
            ledger.fail(&[0], &refused);
            ledger.close(Duration::from_secs(1)).next().unwrap()
        };
        let doubted = outcome(&check(), &reset()).unwrap_err();
        assert!(matches!(doubted, Error::Uncertain { .. }), "{doubted}");
        assert!(doubted.to_string().contains("NoSuchColumnFamilyException"), "{doubted}");
        let unreachable = Error::Unreachable { server: server(), reason: "refused".to_owned() };
        for certain in [outcome(&check(), &unreachable), outcome(&puts(1), &reset())] {
            assert!(matches!(certain, Err(Error::Refused { .. })), "{certain:?}");
        }
    }

    #[test]
    fn check_under_way_when_the_time_is_over_is_in_doubt_once_it_went_out() {
        for is_sent in [true, false] {
            let (mut ledger, sent) = (Ledger::new(&check()), Sent::default());
            ledger.begin(&[0], &sent);
            if is_sent {
                sent.set();
            }
            let outcome = ledger.close(Duration::from_secs(1)).next().unwrap();
            let error = outcome.unwrap_err();
            assert_eq!(matches!(error, Error::Uncertain { .. }), is_sent, "{error}");
        }
    }
}
