//! What a server says that went wrong, and what is to be done about it. Nothing here knows a
//! socket: classes and texts in, a decision out.

use std::fmt;

use crate::names::Server;
use crate::proto::common::NameBytesPair;
use crate::proto::rpc::ExceptionResponse;

/// What is to be done about a call that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryAction {
    /// The region is not where it was looked for: locate it again.
    Relocate,
    /// The server will be able to, later.
    BackOff,
    /// The server did a part and would do the rest.
    AtOnce,
    /// The server is gone, with whatever was on it.
    DropServer,
    /// The scanner is gone: open one after the last complete row.
    Reopen,
    /// Whatever is done, it would fail again.
    Fail,
}

/// An exception of HBase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteException {
    /// As `org.apache.hadoop.hbase.NotServingRegionException`.
    pub class: String,
    /// Its first line, without the class.
    pub message: String,
    /// What the server thinks of another try; it does not say it of a row in a batch.
    pub do_not_retry: bool,
    /// Where the region went, if it says so.
    pub moved_to: Option<Server>,
}

const BATCH_RANGE: &str = "Requested row out of range";
/// Of a call with more rows than the server takes, which it says with no class of its own.
const TOO_MANY_ROWS: &str = "Rejecting large batch operation";

impl RemoteException {
    pub fn from_exception(exception: &ExceptionResponse) -> Self {
        let class = exception.exception_class_name.clone().unwrap_or_default();
        let text = exception.stack_trace.as_deref().unwrap_or_default();
        let fields = exception.hostname.as_deref().zip(exception.port);
        let named = fields.and_then(|(host, port)| Server::new(host, u16::try_from(port).ok()?));
        Self {
            message: first_line(text, &class),
            do_not_retry: exception.do_not_retry.unwrap_or(false),
            moved_to: named.or_else(|| moved_to(&class, text)),
            class,
        }
    }

    /// Of a region or a row in the answer to a batch, where only the text tells where a region went.
    pub fn from_pair(pair: &NameBytesPair) -> Self {
        Self::from_exception(&ExceptionResponse::from_pair(pair))
    }

    /// The class without its package.
    pub fn name(&self) -> &str {
        self.class.rsplit('.').next().unwrap_or(&self.class)
    }

    pub fn retry_action(&self) -> RetryAction {
        match self.name() {
            // Before `do_not_retry` is looked at: scanners that are gone say that too.
            "UnknownScannerException"
            | "OutOfOrderScannerNextException"
            | "ScannerResetException"
            | "LeaseException" => RetryAction::Reopen,
            "NotServingRegionException" | "WrongRegionException" | "RegionMovedException" => {
                RetryAction::Relocate
            }
            "FailedSanityCheckException" if self.message.contains(BATCH_RANGE) => {
                RetryAction::Relocate
            }
            "MultiActionResultTooLarge" | "RetryImmediatelyException" => RetryAction::AtOnce,
            "RegionServerAbortedException" | "RegionServerStoppedException" => {
                RetryAction::DropServer
            }
            name if self.do_not_retry || is_final(name) || self.is_of_too_many_rows() => {
                RetryAction::Fail
            }
            // Busy, opening, throttled, starting; and what is not known, until the deadline.
            _ => RetryAction::BackOff,
        }
    }

    fn is_of_too_many_rows(&self) -> bool {
        self.message.contains(TOO_MANY_ROWS)
    }

    /// What a person can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self.name() {
            _ if self.is_of_too_many_rows() => {
                "send fewer rows a call (call_actions_max), or let the servers take more \
                 (hbase.rpc.rows.warning.threshold)"
            }
            "NoSuchColumnFamilyException" => {
                "name a family that the table was created with, or add it to the table"
            }
            "AccessDeniedException" => {
                "grant this user the permission (hbase shell: grant), or set another user"
            }
            "TableExistsException" => "choose another name, or use the table that is there",
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

/// Of the answer to a batch, which does not say `do_not_retry`: what HBase derives from
/// `DoNotRetryIOException`, and what Java throws over an argument.
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

/// The servers send the whole stack: its first line says it all, after the class.
fn first_line(text: &str, class: &str) -> String {
    /// A message may repeat a whole row.
    const CHARS_MAX: usize = 500;
    let line = text.lines().next().unwrap_or_default();
    let line = line.strip_prefix(class).unwrap_or(line);
    line.trim_start_matches(':').trim().chars().take(CHARS_MAX).collect()
}

/// From `Region moved to: hostname=H port=P startCode=…`.
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

    fn fault(class: &str, text: &str, do_not_retry: bool) -> RemoteException {
        RemoteException::from_exception(&ExceptionResponse {
            exception_class_name: Some(class.to_owned()),
            stack_trace: Some(text.to_owned()),
            do_not_retry: Some(do_not_retry),
            ..ExceptionResponse::default()
        })
    }

    #[track_caller]
    fn check(class: &str, text: &str, do_not_retry: bool, expected: RetryAction) {
        assert_eq!(fault(class, text, do_not_retry).retry_action(), expected, "{class}: {text}");
    }

    #[test]
    fn regions_that_are_elsewhere_are_located_again() {
        let hbase = "org.apache.hadoop.hbase";
        check(&format!("{hbase}.NotServingRegionException"), "", false, RetryAction::Relocate);
        check(
            &format!("{hbase}.exceptions.RegionMovedException"),
            "",
            false,
            RetryAction::Relocate,
        );
        let wrong = format!("{hbase}.regionserver.WrongRegionException");
        check(&wrong, "", false, RetryAction::Relocate);
        let sanity = format!("{hbase}.exceptions.FailedSanityCheckException");
        let text = format!("{sanity}: Requested row out of range for doMiniBatchMutate on HRegion");
        check(&sanity, &text, false, RetryAction::Relocate);
        check(&sanity, "timestamp too far in the future", false, RetryAction::Fail);
    }

    #[test]
    fn what_passes_is_waited_for() {
        for class in [
            "org.apache.hadoop.hbase.exceptions.RegionOpeningException",
            "org.apache.hadoop.hbase.CallQueueTooBigException",
            "org.apache.hadoop.hbase.CallDroppedException",
            "org.apache.hadoop.hbase.RegionTooBusyException",
            "org.apache.hadoop.hbase.quotas.RpcThrottlingException",
            "org.apache.hadoop.hbase.PleaseHoldException",
            "org.apache.hadoop.hbase.ipc.ServerNotRunningYetException",
            "java.io.IOException",
            "com.example.NeverHeardOf",
        ] {
            check(class, "", false, RetryAction::BackOff);
        }
        check("org.apache.hadoop.hbase.MultiActionResultTooLarge", "", false, RetryAction::AtOnce);
    }

    #[test]
    fn servers_that_end_are_dropped() {
        let package = "org.apache.hadoop.hbase.regionserver";
        check(
            &format!("{package}.RegionServerAbortedException"),
            "",
            false,
            RetryAction::DropServer,
        );
        check(
            &format!("{package}.RegionServerStoppedException"),
            "",
            true,
            RetryAction::DropServer,
        );
    }

    #[test]
    fn scanners_are_opened_again_whatever_the_server_thinks_of_it() {
        for class in [
            "org.apache.hadoop.hbase.UnknownScannerException",
            "org.apache.hadoop.hbase.exceptions.OutOfOrderScannerNextException",
            "org.apache.hadoop.hbase.exceptions.ScannerResetException",
            "org.apache.hadoop.hbase.regionserver.LeaseException",
        ] {
            check(class, "", true, RetryAction::Reopen);
        }
    }

    #[test]
    fn what_is_final_fails_whether_it_is_said_or_not() {
        let family = "org.apache.hadoop.hbase.regionserver.NoSuchColumnFamilyException";
        check(family, "", false, RetryAction::Fail);
        let denied = "org.apache.hadoop.hbase.security.AccessDeniedException";
        check(denied, "", false, RetryAction::Fail);
        check("org.apache.hadoop.hbase.DoNotRetryIOException", "", true, RetryAction::Fail);
        check("org.apache.hadoop.hbase.TableExistsException", "", true, RetryAction::Fail);
        check("java.io.IOException", "", true, RetryAction::Fail);
    }

    #[test]
    fn call_with_too_many_rows_is_not_sent_again_as_it_is() {
        let text = "java.io.IOException: Rejecting large batch operation for current batch with \
                    firstRegionName: t,,1.a. , Requested Number of Rows: 1001 , Size Threshold: 1000";
        let fault = fault("java.io.IOException", text, false);
        assert_eq!(fault.retry_action(), RetryAction::Fail);
        assert!(fault.to_string().contains("call_actions_max"), "{fault}");
    }

    #[test]
    fn moved_region_tells_where_in_fields_or_in_text() {
        let class = "org.apache.hadoop.hbase.exceptions.RegionMovedException";
        let text = format!(
            "{class}: Region moved to: hostname=h2 port=16020 startCode=1. As of 5.\n at x"
        );
        let pair =
            NameBytesPair { name: class.to_owned(), value: Some(text.clone().into_bytes().into()) };
        let wanted = Server::new("h2", 16_020);
        assert_eq!(RemoteException::from_pair(&pair).moved_to, wanted);
        let exception = ExceptionResponse {
            exception_class_name: Some(class.to_owned()),
            hostname: Some("h3".to_owned()),
            port: Some(1),
            ..ExceptionResponse::default()
        };
        assert_eq!(RemoteException::from_exception(&exception).moved_to, Server::new("h3", 1));
        assert_eq!(fault("java.io.IOException", &text, false).moved_to, None);
        assert_eq!(fault(class, "Region moved to: hostname=h2 port=x", false).moved_to, None);
    }

    #[test]
    fn message_is_the_first_line_without_the_class() {
        let fault = fault("a.B", "a.B: went wrong\n\tat c.D\n", false);
        assert_eq!(fault.to_string(), "a.B: went wrong");
    }

    #[test]
    fn message_says_what_to_do() {
        let class = "org.apache.hadoop.hbase.regionserver.NoSuchColumnFamilyException";
        assert!(fault(class, "", true).to_string().contains("name a family"));
    }
}
