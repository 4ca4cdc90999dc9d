//! The calls of a connection that wait for their answers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::error::Error;
use crate::fault::Fault;
use crate::names::Server;
use crate::wire::WireError;
use crate::wire::frame::{Answer, Payload};

type Outcome = Result<Payload, Error>;

#[derive(Debug)]
pub struct Pending {
    server: Server,
    service: &'static str,
    calls: Mutex<Calls>,
    /// Answers that came, to whatever call.
    heard: AtomicU64,
}

#[derive(Debug, Default)]
struct Calls {
    waiting: HashMap<u32, oneshot::Sender<Outcome>>,
    first_method: &'static str,
    closed: Option<Error>,
}

impl Pending {
    pub fn new(server: Server, service: &'static str) -> Self {
        Self { server, service, calls: Mutex::default(), heard: AtomicU64::new(0) }
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        // Nothing in here panics half-way.
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn heard(&self) -> u64 {
        self.heard.load(Ordering::Relaxed)
    }

    pub fn is_closed(&self) -> bool {
        self.calls().closed.is_some()
    }

    /// What the answer to a call will be. Who no longer waits for it is forgotten.
    pub fn expect(
        &self,
        call_id: u32,
        method: &'static str,
    ) -> Result<impl Future<Output = Outcome> + use<'_>, Error> {
        let mut calls = self.calls();
        if let Some(error) = &calls.closed {
            return Err(self.not_sent(error));
        }
        if calls.first_method.is_empty() {
            calls.first_method = method;
        }
        let (sender, receiver) = oneshot::channel();
        calls.waiting.insert(call_id, sender);
        let waiter = Waiter { pending: self, call_id };
        Ok(async move {
            let outcome = receiver.await.unwrap_or(Err(Error::Closed));
            drop(waiter);
            outcome
        })
    }

    /// What ended the connection may have left others' calls in doubt, and not this one.
    fn not_sent(&self, error: &Error) -> Error {
        match error.may_be_done() {
            true => Error::Unreachable { server: self.server.clone(), reason: error.to_string() },
            false => error.clone(),
        }
    }

    pub fn answered(&self, answer: Answer) {
        self.heard.fetch_add(1, Ordering::Relaxed);
        let waiting = self.calls().waiting.remove(&answer.call_id);
        let outcome = answer.outcome.map_err(|exception| {
            let fault = Fault::from_exception(&exception);
            Error::Refused { server: self.server.clone(), fault }
        });
        match (waiting, outcome) {
            // Nobody may wait for it any more.
            (Some(waiting), outcome) => drop(waiting.send(outcome)),
            // To no call, as they are counted from 0: the server says why it ends the connection.
            (None, Err(error)) if answer.call_id > i32::MAX as u32 => self.close(error),
            (None, _) => {}
        }
    }

    /// What came is not HBase's.
    pub fn misspoke(&self, source: WireError) {
        self.close(Error::Protocol { server: self.server.clone(), source });
    }

    /// The connection ended.
    pub fn break_off(&self, reason: &str) {
        let server = self.server.clone();
        let first_method = self.calls().first_method;
        self.close(if self.heard() == 0 && !first_method.is_empty() {
            Error::Unanswered { server, service: self.service, method: first_method }
        } else {
            Error::Connection { server, reason: reason.to_owned() }
        });
    }

    /// Tells it to all who wait, and to all who come; the first error stays.
    pub fn close(&self, error: Error) {
        let mut calls = self.calls();
        let error = calls.closed.get_or_insert(error).clone();
        for (_, waiting) in calls.waiting.drain() {
            let _ = waiting.send(Err(error.clone()));
        }
    }
}

struct Waiter<'a> {
    pending: &'a Pending,
    call_id: u32,
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.pending.calls().waiting.remove(&self.call_id);
    }
}
