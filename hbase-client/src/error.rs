//! What can go wrong, in words that say what to do.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::names::{InvalidName, Server, TableName};
use crate::remote_exception::{RemoteException, RetryAction};
use crate::wire::WireError;

/// All errors of this crate. Cloned freely, since one failure may end many calls.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// None of the configured servers could be asked for the cluster.
    #[error(
        "no server of HBase answers: {tried}; name masters or region servers as host:port, with the \
         ports of their RPC (hbase.master.port, hbase.regionserver.port: 16000, 16020), not those \
         of ZooKeeper, web pages, Thrift or REST"
    )]
    Bootstrap { tried: String },

    /// It answers, but does not know what HBase 2.5 knows.
    #[error("{server} is HBase before 2.5, which does not know {method}; 2.5 or later is needed")]
    OldServer { server: Server, method: &'static str },

    /// There is no connection, so nothing was sent.
    #[error("{server}: {reason}")]
    Unreachable { server: Server, reason: String },

    /// A connection ended, whatever was sent on it.
    #[error("{server}: {reason}")]
    Connection { server: Server, reason: String },

    /// The server closed a connection on which it had answered nothing.
    #[error(
        "{server} closed the connection without an answer to {method} of {service}: it may be no \
         HBase, an older one than 2.5, one that wants TLS or Kerberos, or not serve what was asked"
    )]
    Unanswered { server: Server, service: &'static str, method: &'static str },

    /// The server sends what is not HBase's protocol.
    #[error("{server} does not speak as HBase does: {source}")]
    Protocol { server: Server, source: WireError },

    /// HBase said no.
    #[error("{server}: {fault}")]
    Refused { server: Server, fault: RemoteException },

    #[error("{what} was not done within {limit:?}{}", after(last))]
    Deadline {
        what: &'static str,
        limit: Duration,
        /// What went wrong before, if anything did.
        last: Option<Arc<Error>>,
    },

    #[error("there is no table {table}: create it, or correct its name")]
    NoTable { table: TableName },

    #[error("table {table} is disabled: enable it first")]
    Disabled { table: TableName },

    /// A region has no server now.
    #[error("no server has the region of table {table} that begins at {:?} now", shown(&region.start))]
    NoServer {
        table: TableName,
        /// From the first row of the region to the one after its last, as far as that is known.
        region: Range<Bytes>,
    },

    /// What was begun in an earlier try, or by somebody else.
    #[error("a change of table {table} has not come to its end")]
    Unfinished { table: TableName },

    #[error("the cluster has no master now; tables can not be changed until it has one")]
    NoMaster,

    /// A try of a conditional change was not answered and may have made it, and no later one told for
    /// certain: its condition did not hold, which that try itself may have brought about, or it ended with
    /// an error. That error is within, else why the answer was lost.
    #[error("it is not known whether the conditional change was made: read the row again ({last})")]
    Uncertain { last: Arc<Error> },

    /// A scan came to a row of which parts came and came.
    #[error(
        "row {:?} takes more than {most} bytes of memory, which a scan does not put together: select fewer of \
         its columns, or raise Config::row_bytes_max",
        shown(row)
    )]
    RowTooLong { row: Bytes, most: usize },

    /// What was asked for can not be sent.
    #[error("{0}")]
    Input(String),

    /// The client was closed.
    #[error("the client is closed")]
    Closed,
}

fn shown(row: &[u8]) -> String {
    row.escape_ascii().to_string()
}

fn after(last: &Option<Arc<Error>>) -> String {
    last.as_ref().map_or(String::new(), |last| format!("; last: {last}"))
}

/// What a caller can do about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryAdvice {
    /// The same may succeed later; it was tried until the deadline.
    TryLater,
    /// Read what is there, then decide again.
    ReadAgain,
    /// The same will fail again: a setting, a name, a permission or the data is wrong.
    Change,
}

impl From<InvalidName> for Error {
    fn from(name: InvalidName) -> Self {
        Self::Input(name.to_string())
    }
}

impl Error {
    pub(crate) fn input(reason: impl Into<String>) -> Self {
        Self::Input(reason.into())
    }

    pub fn advice(&self) -> RetryAdvice {
        match self {
            Self::Uncertain { .. } => RetryAdvice::ReadAgain,
            Self::Refused { fault, .. } if fault.retry_action() == RetryAction::Fail => {
                RetryAdvice::Change
            }
            Self::OldServer { .. }
            | Self::NoTable { .. }
            | Self::Disabled { .. }
            | Self::RowTooLong { .. }
            | Self::Input(_)
            | Self::Closed => RetryAdvice::Change,
            Self::Bootstrap { .. }
            | Self::Unreachable { .. }
            | Self::Connection { .. }
            | Self::Unanswered { .. }
            | Self::Protocol { .. }
            | Self::Refused { .. }
            | Self::Deadline { .. }
            | Self::NoServer { .. }
            | Self::Unfinished { .. }
            | Self::NoMaster => RetryAdvice::TryLater,
        }
    }

    /// What is tried before a caller hears of it.
    pub(crate) fn retry_action(&self) -> RetryAction {
        match self {
            Self::Refused { fault, .. } => fault.retry_action(),
            Self::Unreachable { .. }
            | Self::Connection { .. }
            | Self::Unanswered { .. }
            | Self::Protocol { .. } => RetryAction::DropServer,
            Self::NoServer { .. }
            | Self::Unfinished { .. }
            | Self::NoMaster
            | Self::Bootstrap { .. } => RetryAction::Relocate,
            // Of one call: its server may hang, and the region be elsewhere by now.
            Self::Deadline { .. } => RetryAction::Relocate,
            Self::OldServer { .. }
            | Self::NoTable { .. }
            | Self::Disabled { .. }
            | Self::Uncertain { .. }
            | Self::RowTooLong { .. }
            | Self::Input(_)
            | Self::Closed => RetryAction::Fail,
        }
    }

    /// Whether the server may have done what was asked although there was no good answer.
    pub(crate) fn may_be_done(&self) -> bool {
        match self {
            Self::Connection { .. }
            | Self::Unanswered { .. }
            | Self::Protocol { .. }
            | Self::Deadline { .. } => true,
            // A bare exception of Java may come from after the write.
            Self::Refused { fault, .. } => {
                fault.retry_action() == RetryAction::BackOff && !is_before(fault)
            }
            _ => false,
        }
    }
}

/// Whether the server says so before it begins.
fn is_before(fault: &RemoteException) -> bool {
    matches!(
        fault.name(),
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
    use crate::proto::rpc::ExceptionResponse;

    fn refused(class: &str) -> Error {
        let fault = RemoteException::from_exception(&ExceptionResponse {
            exception_class_name: Some(class.to_owned()),
            ..ExceptionResponse::default()
        });
        Error::Refused { server: Server::new("h", 1).unwrap(), fault }
    }

    #[track_caller]
    fn check(error: &Error, advice: RetryAdvice, may_be_done: bool) {
        assert_eq!((error.advice(), error.may_be_done()), (advice, may_be_done), "{error}");
    }

    #[test]
    fn each_error_says_what_to_do() {
        check(&refused("a.NoSuchColumnFamilyException"), RetryAdvice::Change, false);
        check(&refused("a.NotServingRegionException"), RetryAdvice::TryLater, false);
        check(&refused("a.RegionTooBusyException"), RetryAdvice::TryLater, false);
        check(&refused("java.io.IOException"), RetryAdvice::TryLater, true);
        let server = Server::new("h", 1).unwrap();
        let refused = Error::Unreachable { server: server.clone(), reason: "refused".to_owned() };
        check(&refused, RetryAdvice::TryLater, false);
        let reset = Error::Connection { server, reason: "reset".to_owned() };
        check(&reset, RetryAdvice::TryLater, true);
        let uncertain = Error::Uncertain { last: Arc::new(reset.clone()) };
        check(&uncertain, RetryAdvice::ReadAgain, false);
        let last = Some(Arc::new(reset));
        let deadline = Error::Deadline { what: "Multi", limit: Duration::from_secs(1), last };
        check(&deadline, RetryAdvice::TryLater, true);
        assert_eq!(deadline.to_string(), "Multi was not done within 1s; last: h:1: reset");
    }
}
