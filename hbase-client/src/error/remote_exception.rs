//! Exceptions of HBase, and how to retry after each. No I/O.

use std::fmt;

use crate::names::Server;
use crate::proto::common::NameBytesPair;
use crate::proto::rpc::ExceptionResponse;

/// How to retry a failed call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryAction {
    /// Locate the region again, because it is not on this server.
    Relocate,
    /// Retry later on the same server.
    BackOff,
    /// Request the rest at once, because the server returned only a part.
    AtOnce,
    /// Locate all regions of the server again, because it has stopped.
    DropServer,
    /// Open a new scanner after the last complete row, because the old one is closed.
    Reopen,
    /// Do not retry, because the call would fail again.
    Fail,
}

/// An exception of HBase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteException {
    /// The class, such as `org.apache.hadoop.hbase.NotServingRegionException`.
    pub class: String,
    /// The first line of the text, without the class.
    pub message: String,
    /// Set if the server advises against a retry; never set for a single row of a batch.
    pub do_not_retry: bool,
    /// The new server of a region that moved, if the exception names it.
    pub moved_to: Option<Server>,
}

/// Part of the message for a row that is outside of the region.
const ROW_OUT_OF_RANGE: &str = "Requested row out of range";
/// Part of the message for a call with more rows than the server accepts, which is thrown as a plain `IOException`.
const TOO_MANY_ROWS: &str = "Rejecting large batch operation";

impl RemoteException {
    pub fn from_exception(exception: &ExceptionResponse) -> Self {
        let class = exception.exception_class_name.clone().unwrap_or_default();
        let text = exception.stack_trace.as_deref().unwrap_or_default();
        let fields = exception.hostname.as_deref().zip(exception.port);
        let server = fields.and_then(|(host, port)| Server::new(host, u16::try_from(port).ok()?));
        Self {
            message: first_line(text, &class),
            do_not_retry: exception.do_not_retry.unwrap_or(false),
            moved_to: server.or_else(|| moved_to(&class, text)),
            class,
        }
    }

    /// Converts the exception of a region or row in a batch: the class, and a text that starts with the class. Only the
    /// text names the new server of a moved region.
    pub fn from_pair(pair: &NameBytesPair) -> Self {
        let text = pair.value.as_ref().map(|text| String::from_utf8_lossy(text).into_owned());
        Self::from_exception(&ExceptionResponse {
            exception_class_name: Some(pair.name.clone()),
            stack_trace: text,
            ..ExceptionResponse::default()
        })
    }

    /// Returns the class without its package.
    pub fn name(&self) -> &str {
        self.class.rsplit('.').next().unwrap_or(&self.class)
    }

    /// Returns how to retry after this exception.
    pub fn retry_action(&self) -> RetryAction {
        match self.name() {
            // Precedes the check of `do_not_retry`, because exceptions of closed scanners set it too.
            "UnknownScannerException"
            | "OutOfOrderScannerNextException"
            | "ScannerResetException"
            | "LeaseException" => RetryAction::Reopen,
            "NotServingRegionException" | "WrongRegionException" | "RegionMovedException" => {
                RetryAction::Relocate
            }
            "FailedSanityCheckException" if self.message.contains(ROW_OUT_OF_RANGE) => {
                RetryAction::Relocate
            }
            "MultiActionResultTooLarge" | "RetryImmediatelyException" => RetryAction::AtOnce,
            "RegionServerAbortedException" | "RegionServerStoppedException" => {
                RetryAction::DropServer
            }
            name if self.do_not_retry || is_final(name) || self.is_too_many_rows() => {
                RetryAction::Fail
            }
            // The server is busy, opening the region, throttling or starting; unknown classes are retried too.
            _ => RetryAction::BackOff,
        }
    }

    fn is_too_many_rows(&self) -> bool {
        self.message.contains(TOO_MANY_ROWS)
    }

    /// Returns what the user can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self.name() {
            _ if self.is_too_many_rows() => {
                "send fewer rows per call (call_actions_max), or raise \
                 hbase.rpc.rows.warning.threshold on the servers"
            }
            "NoSuchColumnFamilyException" => {
                "use a family that the table has, or add this one to it"
            }
            "AccessDeniedException" => {
                "grant this user the permission (hbase shell: grant), or set another user"
            }
            "TableExistsException" => "choose another name, or use the existing table",
            "TableNotFoundException" => "create the table first, or correct its name",
            "TableNotEnabledException" => "enable the table first",
            "TableNotDisabledException" => "disable the table first",
            "NamespaceNotFoundException" => {
                "create the namespace first (hbase shell: create_namespace)"
            }
            "FailedSanityCheckException" | "DoNotRetryIOException"
                if self.message.contains("native") =>
            {
                "the servers lack this compression: choose GZ or SNAPPY, or install its library"
            }
            _ => return None,
        })
    }
}

impl fmt::Display for RemoteException {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.class)?;
        if !self.message.is_empty() {
            write!(f, ": {}", self.message)?;
        }
        self.hint().map_or(Ok(()), |hint| write!(f, "; {hint}"))
    }
}

/// Returns whether this class is a subclass of `DoNotRetryIOException`, or Java's exception for an invalid argument: a
/// retry would fail again. Needed for rows of a batch, whose exceptions do not set `do_not_retry`.
fn is_final(name: &str) -> bool {
    matches!(
        name,
        "DoNotRetryIOException"
            | "NoSuchColumnFamilyException"
            | "FailedSanityCheckException"
            | "AccessDeniedException"
            | "TableNotFoundException"
            | "TableNotEnabledException"
            | "TableNotDisabledException"
            | "TableExistsException"
            | "InvalidFamilyOperationException"
            | "ConstraintException"
            | "QuotaExceededException"
            | "SpaceLimitingException"
            | "CorruptHFileException"
            | "UnsupportedOperationException"
            | "IllegalArgumentException"
    )
}

/// Returns the message from a stack trace: its first line, without the class.
fn first_line(text: &str, class: &str) -> String {
    /// Limited, because a message may contain a whole row.
    const CHARS_MAX: usize = 500;
    let line = text.lines().next().unwrap_or_default();
    let line = line.strip_prefix(class).unwrap_or(line);
    line.trim_start_matches(':').trim().chars().take(CHARS_MAX).collect()
}

/// Parses `Region moved to: hostname=H port=P startCode=…`.
fn moved_to(class: &str, text: &str) -> Option<Server> {
    if !class.ends_with("RegionMovedException") {
        return None;
    }
    let value = |name: &str| {
        let rest = &text[text.find(name)? + name.len()..];
        rest.split(|c: char| c.is_whitespace() || c == ',').next()
    };
    Server::new(value("hostname=")?, value("port=")?.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HBASE: &str = "org.apache.hadoop.hbase";

    fn exception(class: &str, text: &str, do_not_retry: bool) -> RemoteException {
        RemoteException::from_exception(&ExceptionResponse {
            exception_class_name: Some(class.to_owned()),
            stack_trace: Some(text.to_owned()),
            do_not_retry: Some(do_not_retry),
            ..ExceptionResponse::default()
        })
    }

    /// Checks classes in the package of HBase.
    #[track_caller]
    fn check(classes: &[&str], do_not_retry: bool, expected: RetryAction) {
        for class in classes {
            let exception = exception(&format!("{HBASE}.{class}"), "", do_not_retry);
            assert_eq!(exception.retry_action(), expected, "{class}");
        }
    }

    #[test]
    fn regions_on_another_server_are_located_again() {
        let classes = [
            "NotServingRegionException",
            "exceptions.RegionMovedException",
            "regionserver.WrongRegionException",
        ];
        check(&classes, false, RetryAction::Relocate);
        let sanity = |text| exception("a.FailedSanityCheckException", text, false).retry_action();
        let range = "Requested row out of range for doMiniBatchMutate on HRegion";
        assert_eq!(sanity(range), RetryAction::Relocate);
        assert_eq!(sanity("timestamp too far in the future"), RetryAction::Fail);
    }

    #[test]
    fn temporary_and_unknown_exceptions_are_retried_later() {
        let classes = [
            "exceptions.RegionOpeningException",
            "CallQueueTooBigException",
            "CallDroppedException",
            "RegionTooBusyException",
            "quotas.RpcThrottlingException",
            "PleaseHoldException",
            "ipc.ServerNotRunningYetException",
            "NeverHeardOf",
        ];
        check(&classes, false, RetryAction::BackOff);
        let java = |do_not_retry| exception("java.io.IOException", "", do_not_retry).retry_action();
        assert_eq!([java(false), java(true)], [RetryAction::BackOff, RetryAction::Fail]);
        check(&["MultiActionResultTooLarge"], false, RetryAction::AtOnce);
    }

    #[test]
    fn stopped_servers_are_dropped() {
        check(&["regionserver.RegionServerAbortedException"], false, RetryAction::DropServer);
        check(&["regionserver.RegionServerStoppedException"], true, RetryAction::DropServer);
    }

    #[test]
    fn closed_scanners_are_reopened_despite_do_not_retry() {
        let classes = [
            "UnknownScannerException",
            "exceptions.OutOfOrderScannerNextException",
            "exceptions.ScannerResetException",
            "regionserver.LeaseException",
        ];
        check(&classes, true, RetryAction::Reopen);
    }

    #[test]
    fn final_exceptions_are_not_retried_with_or_without_do_not_retry() {
        let classes =
            ["regionserver.NoSuchColumnFamilyException", "security.AccessDeniedException"];
        check(&classes, false, RetryAction::Fail);
        check(&["DoNotRetryIOException", "TableExistsException"], true, RetryAction::Fail);
    }

    #[test]
    fn call_with_too_many_rows_is_not_retried() {
        let text = "java.io.IOException: Rejecting large batch operation for current batch with \
                    firstRegionName: t,,1.a. , Requested Number of Rows: 1001 , Size Threshold: 1000";
        let exception = exception("java.io.IOException", text, false);
        assert_eq!(exception.retry_action(), RetryAction::Fail);
        assert!(exception.to_string().contains("call_actions_max"), "{exception}");
    }

    #[test]
    fn new_server_of_a_moved_region_is_read_from_fields_or_text() {
        let class = "org.apache.hadoop.hbase.exceptions.RegionMovedException";
        let text = format!("{class}: Region moved to: hostname=h2 port=16020 startCode=1.\n at x");
        assert_eq!(exception(class, &text, false).moved_to, Server::new("h2", 16_020));
        let fields = ExceptionResponse {
            exception_class_name: Some(class.to_owned()),
            hostname: Some("h3".to_owned()),
            port: Some(1),
            ..ExceptionResponse::default()
        };
        assert_eq!(RemoteException::from_exception(&fields).moved_to, Server::new("h3", 1));
        assert_eq!(exception("java.io.IOException", &text, false).moved_to, None);
        assert_eq!(exception(class, "Region moved to: hostname=h2 port=x", false).moved_to, None);
    }

    #[test]
    fn message_is_the_first_line_without_the_class_with_a_hint() {
        let unknown = exception("a.B", "a.B: went wrong\n\tat c.D\n", false);
        assert_eq!(unknown.to_string(), "a.B: went wrong");
        let family = exception("a.NoSuchColumnFamilyException", "", true);
        assert!(family.to_string().contains("use a family"), "{family}");
    }
}
