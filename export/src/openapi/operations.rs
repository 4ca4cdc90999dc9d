//! What answers at each path.

use super::parameters::Of;
use super::pull::BEGINNING;
use super::responses::Answer;
use crate::api::summary::SummaryQuery;
use crate::api::{campaign_devices, timeline};
use crate::appsflyer::pull_api;
use crate::query::ExportQuery;

/// A path that is read with `GET` and `HEAD`.
pub(super) struct Operation {
    /// As the router has it.
    pub path: &'static str,
    /// Stable: clients that are made from the description call it so.
    pub id: &'static str,
    pub summary: &'static str,
    /// What else is to be said; may be empty.
    pub description: &'static str,
    /// The names of its parameters that are no part of the path.
    pub query: &'static [&'static str],
    /// By which those of one name differ.
    pub of: Of,
    pub answer: Answer,
    /// Without a token.
    pub is_open: bool,
}

impl Operation {
    /// The names in braces.
    pub fn path_parameters(&self) -> impl Iterator<Item = &'static str> {
        self.path.split('{').skip(1).filter_map(|rest| Some(rest.split_once('}')?.0))
    }

    pub fn is_download(&self) -> bool {
        matches!(self.answer, Answer::Rows(_) | Answer::Report)
    }

    /// Whether it is AppsFlyer's, and so what it refuses with.
    pub fn is_pull(&self) -> bool {
        self.path.starts_with(BEGINNING)
    }

    /// The statuses that it may have beside 200.
    pub fn refusals(&self) -> impl Iterator<Item = u16> {
        let has_path = self.path_parameters().next().is_some();
        [
            (400, true),
            (401, !self.is_open),
            (404, has_path),
            (414, true),
            (429, self.is_download()),
            (431, true),
            (500, self.answer.is_read_from_store()),
            (503, self.answer.is_read_from_store() && !self.is_pull()),
            (505, self.is_download()),
        ]
        .into_iter()
        .filter_map(|(status, may_be)| may_be.then_some(status))
    }
}

/// All paths, each once. One that is missing here, or has gone, fails the test of the description.
pub(super) const OPERATIONS: &[Operation] = &[
    Operation {
        path: "/openapi.json",
        id: "description",
        summary: "This description",
        description: "",
        query: &[],
        of: Of::Nothing,
        answer: Answer::Json("Description"),
        is_open: true,
    },
    Operation {
        path: "/v1/apps",
        id: "apps",
        summary: "The apps that the token may see",
        description: "",
        query: &[],
        of: Of::Nothing,
        answer: Answer::Json("Apps"),
        is_open: false,
    },
    Operation {
        path: "/v1/apps/{app}/events.csv",
        id: "events_csv",
        summary: "An app's rows as CSV",
        description: "All rows of the range as they were at one moment, in the order of event_time. \
            There is no most of rows, and no longest range.",
        query: ExportQuery::PARAMETERS,
        of: Of::Csv,
        answer: Answer::Rows("text/csv"),
        is_open: false,
    },
    Operation {
        path: "/v1/apps/{app}/events.ndjson",
        id: "events_ndjson",
        summary: "An app's rows as JSON lines",
        description: "The rows of events.csv, each a line that is a JSON object: the schema Event.",
        query: ExportQuery::NDJSON_PARAMETERS,
        of: Of::Ndjson,
        answer: Answer::Rows("application/x-ndjson"),
        is_open: false,
    },
    Operation {
        path: "/v1/apps/{app}/summary",
        id: "summary",
        summary: "An app's rows counted, and their revenue added up",
        description: "What counting the rows of the same query gives.",
        query: SummaryQuery::PARAMETERS,
        of: Of::Csv,
        answer: Answer::Range("Summary"),
        is_open: false,
    },
    Operation {
        path: "/v1/apps/{app}/summary.csv",
        id: "summary_csv",
        summary: "The summary as CSV",
        description: "A line for each group and currency: what is told apart by, then currency, count \
            and revenue.",
        query: SummaryQuery::PARAMETERS,
        of: Of::Csv,
        answer: Answer::Table,
        is_open: false,
    },
    Operation {
        path: "/v1/apps/{app}/campaigns",
        id: "campaigns",
        summary: "The campaigns of an app",
        description: "",
        query: &[],
        of: Of::Nothing,
        answer: Answer::Json("Campaigns"),
        is_open: false,
    },
    Operation {
        path: "/v1/apps/{app}/campaigns/{spreadid}/devices",
        id: "campaign_devices",
        summary: "The activations that a campaign brought, newest first",
        description: "",
        query: campaign_devices::PARAMETERS,
        of: Of::Page,
        answer: Answer::PagedRange("Brought"),
        is_open: false,
    },
    Operation {
        path: "/v1/apps/{app}/devices/{kind}/{value}",
        id: "device",
        summary: "What is known of a device, newest first",
        description: "",
        query: timeline::PARAMETERS,
        of: Of::Page,
        answer: Answer::Paged("Timeline"),
        is_open: false,
    },
    Operation {
        path: "/v1/apps/{app}/activations/{event_id}/explain",
        id: "explain",
        summary: "Why an activation is credited as it is",
        description: "What adtrail explain --json prints, by the present settings.",
        query: &[],
        of: Of::Nothing,
        answer: Answer::Read("Explanation"),
        is_open: false,
    },
    Operation {
        path: "/api/raw-data/export/app/{app}/{report}/v5",
        id: "raw_data",
        summary: "AppsFlyer's Pull API: a report as CSV with its columns",
        description: "The rows of the report, newest first.",
        query: pull_api::PARAMETERS,
        of: Of::Pull,
        answer: Answer::Report,
        is_open: false,
    },
    Operation {
        path: "/v1/exports/{id}",
        id: "export",
        summary: "What became of an export",
        description: "The last 10,000 are known, until the service ends.",
        query: &[],
        of: Of::Nothing,
        answer: Answer::Json("Export"),
        is_open: false,
    },
];
