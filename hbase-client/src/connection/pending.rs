//! The calls of a connection that wait for their answers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::SendPermit;
use crate::error::Error;
use crate::names::Server;
use crate::remote_exception::RemoteException;
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
    /// Those without an answer, whether or not anybody still waits for it.
    unanswered: HashMap<u32, InFlight>,
    first_method: &'static str,
    closed: Option<Error>,
}

#[derive(Debug)]
struct InFlight {
    /// Nothing once nobody waits any more.
    waiting: Option<oneshot::Sender<Outcome>>,
    /// Its bytes are on their way, or with the server, as long as it is here.
    room: SendPermit,
}

impl Pending {
    pub fn new(server: Server, service: &'static str) -> Self {
        Self { server, service, calls: Mutex::default(), heard: AtomicU64::new(0) }
    }

    pub fn heard(&self) -> u64 {
        self.heard.load(Ordering::Relaxed)
    }

    pub fn is_closed(&self) -> bool {
        self.calls.lock().closed.is_some()
    }

    /// What the answer to a call will be, which is handed over to be written at once. Who no longer waits for
    /// it is forgotten; the call itself only once it is answered, or was not written until then.
    pub fn expect(
        &self,
        call_id: u32,
        method: &'static str,
        room: SendPermit,
    ) -> Result<impl Future<Output = Outcome> + use<'_>, Error> {
        let mut calls = self.calls.lock();
        if let Some(error) = &calls.closed {
            return Err(self.not_sent(error));
        }
        if calls.first_method.is_empty() {
            calls.first_method = method;
        }
        let (sender, receiver) = oneshot::channel();
        calls.unanswered.insert(call_id, InFlight { waiting: Some(sender), room });
        let waiter = Waiter { pending: self, call_id };
        Ok(async move {
            let outcome = receiver.await.unwrap_or(Err(Error::Closed));
            drop(waiter);
            outcome
        })
    }

    /// Whether a call is to be written: not once nobody waits for it.
    pub fn is_wanted(&self, call_id: u32) -> bool {
        let mut calls = self.calls.lock();
        let is_wanted = calls.unanswered.get(&call_id).is_some_and(|call| call.waiting.is_some());
        if !is_wanted {
            calls.unanswered.remove(&call_id);
        }
        is_wanted
    }

    /// Of calls for whose answers nobody waits any more, and which may never come: servers drop calls whose
    /// time is over.
    pub fn abandoned_bytes(&self) -> usize {
        let calls = self.calls.lock();
        let abandoned = calls.unanswered.values().filter(|call| call.waiting.is_none());
        abandoned.map(|call| call.room.num_permits()).sum()
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
        let known = self.calls.lock().unanswered.remove(&answer.call_id);
        let outcome = answer.outcome.map_err(|exception| {
            let fault = RemoteException::from_exception(&exception);
            Error::Refused { server: self.server.clone(), fault }
        });
        match (known, outcome) {
            // Before who waits goes on: it may send the next one.
            (Some(InFlight { waiting, room }), outcome) => {
                drop(room);
                // Nobody may wait for it any more.
                waiting.into_iter().for_each(|waiting| drop(waiting.send(outcome.clone())));
            }
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
        let first_method = self.calls.lock().first_method;
        self.close(if self.heard() == 0 && !first_method.is_empty() {
            Error::Unanswered { server, service: self.service, method: first_method }
        } else {
            Error::Connection { server, reason: reason.to_owned() }
        });
    }

    /// Tells it to all who wait, and to all who come; the first error stays.
    pub fn close(&self, error: Error) {
        let mut calls = self.calls.lock();
        let error = calls.closed.get_or_insert(error).clone();
        for (_, InFlight { waiting, .. }) in calls.unanswered.drain() {
            waiting.into_iter().for_each(|waiting| drop(waiting.send(Err(error.clone()))));
        }
    }
}

struct Waiter<'a> {
    pending: &'a Pending,
    call_id: u32,
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        if let Some(call) = self.pending.calls.lock().unanswered.get_mut(&self.call_id) {
            call.waiting = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::Semaphore;

    use super::*;

    const BYTES: u32 = 70;

    /// A call that nobody waits for any more, after that; and what is left of 100 bytes.
    fn abandoned(after: impl FnOnce(&Pending)) -> (Pending, impl Fn() -> usize) {
        let pending = Pending::new("h:1".parse().unwrap(), "ClientService");
        let budget = Arc::new(Semaphore::new(100));
        let room = budget.clone().try_acquire_many_owned(BYTES).unwrap();
        let answer = pending.expect(7, "Multi", room).unwrap();
        after(&pending);
        drop(answer);
        (pending, move || budget.available_permits())
    }

    #[test]
    fn call_that_was_not_written_takes_no_room_once_nobody_waits() {
        let (pending, left) = abandoned(|_| ());
        assert_eq!((left(), pending.abandoned_bytes()), (30, 70), "it is queued");
        assert!(!pending.is_wanted(7));
        assert_eq!((left(), pending.abandoned_bytes()), (100, 0));
    }

    #[test]
    fn call_that_was_written_takes_room_until_it_is_answered_or_the_connection_ends() {
        let written = |pending: &Pending| {
            assert!(pending.is_wanted(7));
            assert_eq!(pending.abandoned_bytes(), 0);
        };
        let (pending, left) = abandoned(written);
        assert_eq!((left(), pending.abandoned_bytes()), (30, 70));
        pending.answered(Answer { call_id: 7, outcome: Ok(Payload::default()) });
        assert_eq!((left(), pending.abandoned_bytes()), (100, 0));
        let (pending, left) = abandoned(written);
        pending.close(Error::Closed);
        assert_eq!((left(), pending.abandoned_bytes()), (100, 0));
    }
}
