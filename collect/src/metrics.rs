//! The metrics of this crate. For every kind, received = produced + spooled + refused + those in progress.

use std::time::Duration;

use metrics::{Histogram, counter, histogram};

use crate::signature::Outcome;

config::describe_metrics! {
    /// Events received by the collector, by kind and channel; the channel of activations and effects is empty.
    describe_counter RECEIVED = "adtrail_collect_received_total";
    /// Events that Kafka has acknowledged, by kind and channel.
    describe_counter PRODUCED = "adtrail_collect_produced_total";
    /// Events that Kafka had not acknowledged, and that were written to the spool, by kind and channel.
    describe_counter SPOOLED = "adtrail_collect_spooled_total";
    /// Events that were answered with an error, by kind, channel and reason.
    describe_counter REFUSED = "adtrail_collect_refused_total";
    /// Requests that were refused before their events were read, by reason.
    describe_counter REFUSED_REQUESTS = "adtrail_collect_refused_requests_total";
    /// Macros that a network did not replace, by channel and parameter of the link.
    describe_counter UNEXPANDED = "adtrail_collect_unexpanded_macros_total";
    /// Clicks and impressions whose signature was checked, by channel and outcome.
    describe_counter SIGNATURES = "adtrail_collect_signatures_total";
    /// People who were redirected by a link before their click was in Kafka or in the spool.
    describe_counter UNACKNOWLEDGED_REDIRECTS = "adtrail_collect_unacknowledged_redirects_total";
    /// Time until Kafka has acknowledged an event.
    describe_histogram ACKNOWLEDGEMENT = "adtrail_collect_acknowledgement_seconds";
}

/// The code, and the reason in metrics, of an event that can be sent again.
pub(crate) const UNAVAILABLE: &str = "unavailable";

/// What an event is, in metrics.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Labels<'a> {
    pub kind: &'static str,
    /// Empty for activations and effects.
    pub channel: &'a str,
}

impl Labels<'_> {
    pub fn into_owned(self) -> OwnedLabels {
        OwnedLabels { kind: self.kind, channel: self.channel.into() }
    }
}

/// [`Labels`] of an event that outlives its request.
#[derive(Debug, Clone)]
pub(crate) struct OwnedLabels {
    kind: &'static str,
    channel: Box<str>,
}

impl OwnedLabels {
    pub fn as_labels(&self) -> Labels<'_> {
        Labels { kind: self.kind, channel: &self.channel }
    }
}

pub(crate) fn spooled(Labels { kind, channel }: Labels<'_>) {
    counter!(SPOOLED, "kind" => kind, "channel" => channel.to_owned()).increment(1);
}

pub(crate) fn refused(Labels { kind, channel }: Labels<'_>, reason: &'static str) {
    let channel = channel.to_owned();
    counter!(REFUSED, "kind" => kind, "channel" => channel, "reason" => reason).increment(1);
}

pub(crate) struct Metrics {
    acknowledgement: Histogram,
}

impl Metrics {
    pub fn new() -> Self {
        describe();
        Self { acknowledgement: histogram!(ACKNOWLEDGEMENT) }
    }

    pub fn received(&self, Labels { kind, channel }: Labels<'_>) {
        counter!(RECEIVED, "kind" => kind, "channel" => channel.to_owned()).increment(1);
    }

    pub fn produced(&self, Labels { kind, channel }: Labels<'_>, after: Duration) {
        self.acknowledgement.record(after);
        counter!(PRODUCED, "kind" => kind, "channel" => channel.to_owned()).increment(1);
    }

    pub fn refused_request(&self, reason: &'static str) {
        counter!(REFUSED_REQUESTS, "reason" => reason).increment(1);
    }

    pub fn checked_signature(&self, channel: &str, outcome: Outcome) {
        let channel = channel.to_owned();
        counter!(SIGNATURES, "channel" => channel, "outcome" => outcome.name()).increment(1);
    }

    pub fn redirected_unacknowledged(&self) {
        counter!(UNACKNOWLEDGED_REDIRECTS).increment(1);
    }

    pub fn unexpanded(&self, channel: &str, parameter: &str) {
        let (channel, parameter) = (channel.to_owned(), parameter.to_owned());
        counter!(UNEXPANDED, "channel" => channel, "parameter" => parameter).increment(1);
    }
}
