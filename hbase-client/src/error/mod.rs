//! Errors, with messages that say what to do. Start with [`Error`]; `remote_exception` decides how to retry after an
//! exception of HBase, and `backoff` how long to wait.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::names::{InvalidName, Server, TableName};
use crate::wire::WireError;

pub mod backoff;
mod remote_exception;
pub use remote_exception::{RemoteException, RetryAction};

/// An error of this crate. It can be cloned, because one failure may fail many calls.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No known server responded to a call to the cluster's registry.
    #[error(
        "no HBase server responds: {tried}; list masters or region servers as host:port, with their RPC ports \
         (hbase.master.port, hbase.regionserver.port: 16000, 16020), not those of ZooKeeper, web pages, Thrift or REST"
    )]
    Bootstrap { tried: String },

    /// A server lacks a method that exists since HBase 2.5.
    #[error("{server} runs HBase before 2.5, which lacks {method}; 2.5 or later is required")]
    OldServer { server: Server, method: &'static str },

    /// A connection could not be opened, so nothing was sent.
    #[error("{server}: {reason}")]
    Unreachable { server: Server, reason: String },

    /// A connection ended while calls were in flight.
    #[error("{server}: {reason}")]
    Connection { server: Server, reason: String },

    /// The server closed a connection before its first response.
    #[error(
        "{server} closed the connection without a response to {method} of {service}: it may not be HBase, be older \
         than 2.5, require TLS or Kerberos, or not provide this service"
    )]
    Unanswered { server: Server, service: &'static str, method: &'static str },

    /// The server sent bytes that are invalid in HBase's protocol.
    #[error("{server} sent an invalid HBase response: {source}")]
    Protocol { server: Server, source: WireError },

    /// HBase returned an exception.
    #[error("{server}: {exception}")]
    Refused { server: Server, exception: RemoteException },

    #[error("{operation} timed out after {limit:?}{}", last_error(last))]
    Deadline {
        operation: &'static str,
        limit: Duration,
        /// The last error of an attempt, if any failed.
        last: Option<Arc<Error>>,
    },

    #[error("table {table} does not exist: create it, or correct its name")]
    NoTable { table: TableName },

    #[error("table {table} is disabled: enable it first")]
    Disabled { table: TableName },

    /// A region is not open on any server.
    #[error("the region of table {table} with start row {:?} is not open on any server", escaped(&region.start))]
    NoServer {
        table: TableName,
        /// The row range of the region; unbounded if it is unknown.
        region: Range<Bytes>,
    },

    /// The table is being enabled or disabled, by an earlier attempt or another client.
    #[error("table {table} is still being enabled or disabled")]
    Unfinished { table: TableName },

    #[error("the cluster has no active master; tables cannot be changed until it has one")]
    NoMaster,

    /// An attempt of a conditional change got no response and may have applied it, and a later attempt either failed or
    /// found that the condition does not hold, possibly because of the first attempt. `last` is the error of the later
    /// attempt if it failed, otherwise that of the lost response.
    #[error("unknown whether the conditional change was applied: read the row again ({last})")]
    Uncertain { last: Arc<Error> },

    /// A row that arrives in parts exceeds the memory limit of a scan.
    #[error(
        "row {:?} takes more than {bytes_max} bytes of memory: select fewer of its columns, or raise \
         Config::row_bytes_max",
        escaped(row)
    )]
    RowTooLong { row: Bytes, bytes_max: usize },

    /// The request is invalid and was not sent.
    #[error("{0}")]
    Input(String),

    /// The client or its runtime was shut down.
    #[error("the client is closed")]
    Closed,

    /// A task of the client panicked.
    #[error("{operation} panicked, which is a bug in hbase-client: see the panic message")]
    Panicked { operation: &'static str },
}

fn escaped(row: &[u8]) -> String {
    row.escape_ascii().to_string()
}

fn last_error(last: &Option<Arc<Error>>) -> String {
    last.as_ref().map_or(String::new(), |last| format!("; last error: {last}"))
}

/// What a caller can do about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryAdvice {
    /// The same request may succeed later; it was retried until the deadline.
    TryLater,
    /// Read the current rows, then decide again.
    ReadAgain,
    /// The same request will fail again: a setting, a name, a permission or the data is wrong.
    Change,
}

impl From<InvalidName> for Error {
    fn from(name: InvalidName) -> Self {
        Self::Input(name.to_string())
    }
}

impl Error {
    /// Returns an exception of this class, without a message.
    #[cfg(test)]
    pub(crate) fn refused(class: &str) -> Self {
        let pair = crate::proto::common::NameBytesPair { name: class.to_owned(), value: None };
        let exception = RemoteException::from_pair(&pair);
        Self::Refused { server: Server { host: "h".into(), port: 1 }, exception }
    }

    pub(crate) fn input(reason: impl Into<String>) -> Self {
        Self::Input(reason.into())
    }

    /// Returns what the caller can do about this error.
    pub fn advice(&self) -> RetryAdvice {
        match self {
            Self::Uncertain { .. } => RetryAdvice::ReadAgain,
            _ if self.retry_action() == RetryAction::Fail => RetryAdvice::Change,
            _ => RetryAdvice::TryLater,
        }
    }

    /// Returns how the client itself retries after this error.
    pub(crate) fn retry_action(&self) -> RetryAction {
        match self {
            Self::Refused { exception, .. } => exception.retry_action(),
            Self::Unreachable { .. }
            | Self::Connection { .. }
            | Self::Unanswered { .. }
            | Self::Protocol { .. } => RetryAction::DropServer,
            Self::NoServer { .. }
            | Self::Unfinished { .. }
            | Self::NoMaster
            | Self::Bootstrap { .. } => RetryAction::Relocate,
            // A call reached its deadline: its server may be hung, and the region may have moved.
            Self::Deadline { .. } => RetryAction::Relocate,
            Self::OldServer { .. }
            | Self::NoTable { .. }
            | Self::Disabled { .. }
            | Self::Uncertain { .. }
            | Self::RowTooLong { .. }
            | Self::Input(_)
            | Self::Closed
            | Self::Panicked { .. } => RetryAction::Fail,
        }
    }

    /// Returns whether the server may have executed the request despite this error.
    pub(crate) fn may_have_executed(&self) -> bool {
        match self {
            Self::Connection { .. }
            | Self::Unanswered { .. }
            | Self::Protocol { .. }
            | Self::Deadline { .. } => true,
            // A plain Java exception may have been thrown after the write.
            Self::Refused { exception, .. } => {
                exception.retry_action() == RetryAction::BackOff
                    && !is_thrown_before_execution(exception)
            }
            _ => false,
        }
    }
}

/// Returns whether a server throws this exception before it executes a request.
fn is_thrown_before_execution(exception: &RemoteException) -> bool {
    matches!(
        exception.name(),
        "RegionOpeningException"
            | "CallQueueTooBigException"
            | "CallDroppedException"
            | "RegionTooBusyException"
            | "RpcThrottlingException"
            | "PleaseHoldException"
            | "ServerNotRunningYetException"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(error: &Error, advice: RetryAdvice, may_have_executed: bool) {
        assert_eq!(
            (error.advice(), error.may_have_executed()),
            (advice, may_have_executed),
            "{error}"
        );
    }

    #[test]
    fn each_error_has_its_advice() {
        check(&Error::refused("a.NoSuchColumnFamilyException"), RetryAdvice::Change, false);
        check(&Error::refused("a.NotServingRegionException"), RetryAdvice::TryLater, false);
        check(&Error::refused("a.RegionTooBusyException"), RetryAdvice::TryLater, false);
        check(&Error::refused("java.io.IOException"), RetryAdvice::TryLater, true);
        let server = Server::new("h", 1).unwrap();
        let refused = Error::Unreachable { server: server.clone(), reason: "refused".to_owned() };
        check(&refused, RetryAdvice::TryLater, false);
        let reset = Error::Connection { server, reason: "reset".to_owned() };
        check(&reset, RetryAdvice::TryLater, true);
        let uncertain = Error::Uncertain { last: Arc::new(reset.clone()) };
        check(&uncertain, RetryAdvice::ReadAgain, false);
        let last = Some(Arc::new(reset));
        let deadline = Error::Deadline { operation: "Multi", limit: Duration::from_secs(1), last };
        check(&deadline, RetryAdvice::TryLater, true);
        assert_eq!(deadline.to_string(), "Multi timed out after 1s; last error: h:1: reset");
    }
}
