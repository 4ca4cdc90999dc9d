//! The metrics of this crate. What is pending, and what was made of it in the end, is counted by the outbox.

use std::time::Duration;

use metrics::{counter, histogram};

use crate::delivery::queue::Outcome;

config::describe_metrics! {
    /// What became of claimed callbacks, by endpoint and outcome: sent, dropped, dead, retry or postponed; and those that
    /// have become too old while they waited for their first attempt: too_old.
    describe_counter OUTCOMES = "adtrail_callbacks_outcomes_total";
    /// Responses of endpoints, by endpoint and status; the status of a request without a response is none.
    describe_counter RESPONSES = "adtrail_callbacks_responses_total";
    /// Time from the lookup of a name to the end of the response.
    describe_histogram REQUEST = "adtrail_callbacks_request_seconds";
    /// Failures of the outbox, by operation.
    describe_counter OUTBOX_ERRORS = "adtrail_callbacks_outbox_errors_total";
}

pub(crate) fn register() {
    describe();
}

pub(crate) fn finished(endpoint: &str, outcome: Outcome) {
    let (endpoint, outcome) = (endpoint.to_owned(), outcome.name());
    counter!(OUTCOMES, "endpoint" => endpoint, "outcome" => outcome).increment(1);
}

/// Counts callbacks whose events have become too old while they waited for their first attempt. The outbox ends them.
pub fn count_too_old(endpoint: &str, count: u64) {
    if count > 0 {
        counter!(OUTCOMES, "endpoint" => endpoint.to_owned(), "outcome" => "too_old")
            .increment(count);
    }
}

pub(crate) fn responded(endpoint: &str, status: Option<u16>, elapsed: Duration) {
    let status = status.map_or("none".to_owned(), |status| status.to_string());
    counter!(RESPONSES, "endpoint" => endpoint.to_owned(), "status" => status).increment(1);
    histogram!(REQUEST).record(elapsed.as_secs_f64());
}

pub(crate) fn outbox_failed(operation: &'static str) {
    counter!(OUTBOX_ERRORS, "operation" => operation).increment(1);
}
