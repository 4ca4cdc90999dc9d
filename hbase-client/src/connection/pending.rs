//! The calls of a connection that wait for their responses.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::SendPermit;
use crate::error::{Error, RemoteException};
use crate::names::Server;
use crate::wire::WireError;
use crate::wire::frame::{Payload, Response};

type Outcome = Result<Payload, Error>;

#[derive(Debug)]
pub struct Pending {
    server: Server,
    service: &'static str,
    calls: Mutex<Calls>,
    /// Responses received, to any call.
    responses: AtomicU64,
}

#[derive(Debug, Default)]
struct Calls {
    /// Calls without a response, including abandoned ones.
    in_flight: HashMap<u32, InFlight>,
    first_method: &'static str,
    /// The error with which the connection was closed.
    closed: Option<Error>,
}

#[derive(Debug)]
struct InFlight {
    /// `None` once the caller has abandoned the call.
    caller: Option<oneshot::Sender<Outcome>>,
    /// Held until the response: until then, the bytes are in transit or at the server.
    permit: SendPermit,
}

impl Pending {
    pub fn new(server: Server, service: &'static str) -> Self {
        Self { server, service, calls: Mutex::default(), responses: AtomicU64::new(0) }
    }

    /// Returns the number of responses received.
    pub fn responses(&self) -> u64 {
        self.responses.load(Ordering::Relaxed)
    }

    pub fn is_closed(&self) -> bool {
        self.calls.lock().closed.is_some()
    }

    /// Registers a call, whose frame the caller must queue at once, and returns its future response. Dropping the
    /// future abandons the call, which stays registered until its response arrives, unless it was not written yet.
    pub fn register(
        &self,
        call_id: u32,
        method: &'static str,
        permit: SendPermit,
    ) -> Result<impl Future<Output = Outcome> + use<'_>, Error> {
        let mut calls = self.calls.lock();
        if let Some(error) = &calls.closed {
            return Err(self.not_sent(error));
        }
        if calls.first_method.is_empty() {
            calls.first_method = method;
        }
        let (sender, receiver) = oneshot::channel();
        calls.in_flight.insert(call_id, InFlight { caller: Some(sender), permit });
        let waiter = Waiter { pending: self, call_id };
        Ok(async move {
            let outcome = receiver.await.unwrap_or(Err(Error::Closed));
            drop(waiter);
            outcome
        })
    }

    /// Returns whether a queued call still has a caller and should be written; forgets it otherwise.
    pub fn is_awaited(&self, call_id: u32) -> bool {
        let mut calls = self.calls.lock();
        let is_awaited = calls.in_flight.get(&call_id).is_some_and(|call| call.caller.is_some());
        if !is_awaited {
            calls.in_flight.remove(&call_id);
        }
        is_awaited
    }

    /// Returns the bytes of abandoned calls. Their responses may never arrive, because servers drop expired calls.
    pub fn abandoned_bytes(&self) -> usize {
        let calls = self.calls.lock();
        let abandoned = calls.in_flight.values().filter(|call| call.caller.is_none());
        abandoned.map(|call| call.permit.num_permits()).sum()
    }

    /// Returns the error of a new call on a closed connection: it was not sent, even if `error` says that the calls in
    /// flight may have been executed.
    fn not_sent(&self, error: &Error) -> Error {
        match error.may_have_executed() {
            true => Error::Unreachable { server: self.server.clone(), reason: error.to_string() },
            false => error.clone(),
        }
    }

    /// Passes a response to its caller.
    pub fn complete(&self, response: Response) {
        self.responses.fetch_add(1, Ordering::Relaxed);
        let known = self.calls.lock().in_flight.remove(&response.call_id);
        let outcome = response.outcome.map_err(|exception| {
            let exception = RemoteException::from_exception(&exception);
            Error::Refused { server: self.server.clone(), exception }
        });
        match (known, outcome) {
            (Some(InFlight { caller, permit }), outcome) => {
                // Released first: the caller may send its next call at once.
                drop(permit);
                // The caller may have abandoned the call.
                caller.into_iter().for_each(|caller| drop(caller.send(outcome.clone())));
            }
            // Call ids are not negative. With a negative one, the server says why it closes the connection.
            (None, Err(error)) if response.call_id > i32::MAX as u32 => self.close(error),
            (None, _) => {}
        }
    }

    /// Closes the connection after invalid bytes.
    pub fn protocol_error(&self, source: WireError) {
        self.close(Error::Protocol { server: self.server.clone(), source });
    }

    /// Closes the connection after an I/O error, or after the server closed it.
    pub fn disconnect(&self, reason: &str) {
        let server = self.server.clone();
        let first_method = self.calls.lock().first_method;
        self.close(if self.responses() == 0 && !first_method.is_empty() {
            Error::Unanswered { server, service: self.service, method: first_method }
        } else {
            Error::Connection { server, reason: reason.to_owned() }
        });
    }

    /// Fails all current and future calls with this error, or with that of an earlier close.
    pub fn close(&self, error: Error) {
        let mut calls = self.calls.lock();
        let error = calls.closed.get_or_insert(error).clone();
        for (_, InFlight { caller, .. }) in calls.in_flight.drain() {
            caller.into_iter().for_each(|caller| drop(caller.send(Err(error.clone()))));
        }
    }
}

/// Abandons its call when dropped.
struct Waiter<'a> {
    pending: &'a Pending,
    call_id: u32,
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        if let Some(call) = self.pending.calls.lock().in_flight.get_mut(&self.call_id) {
            call.caller = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::Semaphore;

    use super::*;
    use crate::proto::rpc::ExceptionResponse;

    const BYTES: u32 = 70;

    /// Registers a call, runs `while_registered` and abandons the call. Also returns a function that returns the
    /// available bytes of a budget of 100.
    fn abandoned(while_registered: impl FnOnce(&Pending)) -> (Pending, impl Fn() -> usize) {
        let pending = Pending::new("h:1".parse().unwrap(), "ClientService");
        let budget = Arc::new(Semaphore::new(100));
        let permit = budget.clone().try_acquire_many_owned(BYTES).unwrap();
        let response = pending.register(7, "Multi", permit).unwrap();
        while_registered(&pending);
        drop(response);
        (pending, move || budget.available_permits())
    }

    #[test]
    fn unwritten_abandoned_call_releases_its_bytes() {
        let (pending, available) = abandoned(|_| ());
        assert_eq!((available(), pending.abandoned_bytes()), (30, 70), "the call is queued");
        assert!(!pending.is_awaited(7));
        assert_eq!((available(), pending.abandoned_bytes()), (100, 0));
    }

    #[test]
    fn written_abandoned_call_keeps_its_bytes_until_its_response_or_a_close() {
        let written = |pending: &Pending| {
            assert!(pending.is_awaited(7));
            assert_eq!(pending.abandoned_bytes(), 0);
        };
        let (pending, available) = abandoned(written);
        assert_eq!((available(), pending.abandoned_bytes()), (30, 70));
        pending.complete(Response { call_id: 7, outcome: Ok(Payload::default()) });
        assert_eq!((available(), pending.abandoned_bytes()), (100, 0));
        let (pending, available) = abandoned(written);
        pending.close(Error::Closed);
        assert_eq!((available(), pending.abandoned_bytes()), (100, 0));
    }

    #[tokio::test]
    async fn reason_for_closing_a_connection_is_reported() {
        let pending = Pending::new("h:1".parse().unwrap(), "ClientService");
        let permit = Arc::new(Semaphore::new(100)).try_acquire_owned().unwrap();
        let response = pending.register(7, "Multi", permit).unwrap();
        let class = "org.apache.hadoop.hbase.security.AccessDeniedException";
        let exception = ExceptionResponse {
            exception_class_name: Some(class.to_owned()),
            stack_trace: Some(format!("{class}: Authentication is required")),
            ..ExceptionResponse::default()
        };
        // -1, which is not the id of a call.
        pending.complete(Response { call_id: u32::MAX, outcome: Err(exception) });
        let error = response.await.unwrap_err().to_string();
        assert!(error.contains("Authentication is required"), "{error}");
    }
}
