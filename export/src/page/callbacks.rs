//! The page of callbacks: what was sent to each endpoint, what failed and why, with the last request and its response.

use std::collections::BTreeMap;

use attribution::facts::event::{EventTime, Family, Pid};
use attribution::facts::keys::{FactKey, MatchKey};
use attribution::facts::printable::printable;
use attribution::ledger::Facts;
use attribution::ledger::record::FactRecord;
use attribution::outbox::newest::{Cursor, Limits, newest};
use attribution::outbox::port::{Filter, Outbox};
use attribution::outbox::record::{EndpointId, EntryState, OutboxEntry};
use attribution::rules::policy::Policy;
use axum::http::StatusCode;
use axum::response::Response;
use minijinja::context;
use serde::Serialize;
use store::reader::Reader;

use super::export_form::options::APP;
use super::format;
use super::http::request::PageRequest;
use super::http::respond;
use super::layout::choose;
use super::lookup::{audited, no_app};
use crate::http::problem::Problem;
use crate::http::respond::read;
use crate::query::parameter::AFTER;
use crate::{ExportError, Zone};

const ENDPOINT: &str = "endpoint";
const STATE: &str = "state";
/// What a page shows, and how many events are read for it.
const LIMITS: Limits = Limits { entries: 50, records: 100_000 };

/// A callback.
#[derive(Debug, Serialize)]
struct Line {
    endpoint: String,
    kind: &'static str,
    state: &'static str,
    event_type: &'static str,
    /// `None` if the event has expired.
    event_id: Option<String>,
    event_time: Option<String>,
    /// 0 without a campaign.
    spreadid: u32,
    /// The name of the campaign; empty without one.
    campaign: String,
    channel: String,
    attempts: u32,
    changed: String,
    /// When a pending one is due.
    due: Option<String>,
    /// When the endpoint was last sent one about the event, unless that is the state.
    sent_before: Option<String>,
    /// What the last attempt has led to, and then its response and request.
    note: Vec<String>,
}

/// The callbacks of an endpoint, about events of all apps.
#[derive(Debug, Serialize)]
struct Counted {
    endpoint: String,
    made: u64,
    /// Names and numbers of states.
    states: Vec<(&'static str, u64)>,
}

#[derive(Debug, Default, Serialize)]
struct Found {
    lines: Vec<Line>,
    /// The cursor of the next page.
    next: Option<String>,
    /// Empty for a caller that may not read all apps.
    counted: Vec<Counted>,
}

pub(crate) async fn callbacks(page_request: PageRequest) -> Result<Response, Problem> {
    let (app, apps) = choose(&page_request.apps(), page_request.value(APP));
    let mut wrong: BTreeMap<&str, String> = BTreeMap::new();
    if app.is_none() && !page_request.value(APP).is_empty() {
        wrong.extend(no_app(&page_request));
    }
    let (state, endpoint) = (page_request.value(STATE), page_request.value(ENDPOINT));
    let after = page_request.value(AFTER);
    if !state.is_empty() && EntryState::from_name(state).is_none() {
        wrong.insert(STATE, "Choose one of these.".to_owned());
    }
    if !after.is_empty() && parse_cursor(after).is_none() {
        wrong.insert(AFTER, "This page does not exist. Choose again.".to_owned());
    }
    let mut found = Found::default();
    if let Some(app) = app.filter(|_| wrong.is_empty()) {
        let filter = Filter {
            endpoint: Some(endpoint).filter(|name| !name.is_empty()).map(EndpointId::new),
            pid: Some(app.pid),
            state: EntryState::from_name(state),
            ..Filter::default()
        };
        let policy = &page_request.state.policy;
        let sees_all = policy.apps().all(|app| page_request.caller.can_read(app.pid));
        let cursor = parse_cursor(after).unwrap_or_default();
        let list =
            move |reader: &Reader, policy: &Policy| list(reader, policy, &filter, cursor, sees_all);
        found = read(&page_request.state, app, list).await?;
    }
    let status = match wrong.contains_key(APP) {
        true => StatusCode::NOT_FOUND,
        false if wrong.is_empty() => StatusCode::OK,
        false => StatusCode::BAD_REQUEST,
    };
    let states = EntryState::ALL.map(|known| (known.name(), known.name() == state));
    let shell = page_request.shell("Callbacks", "/callbacks");
    let page = context! {
        apps, states, state, endpoint, wrong, found,
        app_key => app.map(|app| &*app.key), is_first => after.is_empty(),
    };
    Ok(audited(respond::page(status, "callbacks.html", &shell, page)?, app))
}

fn list(
    reader: &Reader,
    policy: &Policy,
    filter: &Filter,
    cursor: Cursor,
    sees_all: bool,
) -> Result<Found, ExportError> {
    let mut outbox = reader.outbox();
    let page = newest(&mut outbox, filter, cursor, LIMITS)?;
    let events: Vec<FactKey> = page.entries.iter().map(|(event, _)| *event).collect();
    let records = reader.clone().records(&events)?;
    let lines = page.entries.iter().zip(records);
    let lines = lines.map(|((event, entry), record)| line(policy, event, entry, record.as_ref()));
    // A shared store would read all callbacks to count them.
    let counts = match reader {
        Reader::Embedded(_) if sees_all => outbox.counts()?,
        Reader::Embedded(_) | Reader::Shared(_) => BTreeMap::new(),
    };
    let counted = counts.into_iter().map(|(endpoint, tally)| Counted {
        endpoint: endpoint.as_str().to_owned(),
        made: tally.made,
        states: vec![
            (EntryState::Pending.name(), tally.pending()),
            (EntryState::Sent.name(), tally.sent),
            (EntryState::Dropped.name(), tally.dropped),
            (EntryState::Withheld.name(), tally.withheld),
            (EntryState::TooOld.name(), tally.too_old),
            (EntryState::Dead.name(), tally.dead),
        ],
    });
    let next = page.next.as_ref().map(cursor_text);
    Ok(Found { lines: lines.collect(), next, counted: counted.collect() })
}

fn line(
    policy: &Policy,
    event: &FactKey,
    entry: &OutboxEntry,
    record: Option<&FactRecord>,
) -> Line {
    let text = |time: EventTime| format::date_time(time, &Zone::utc());
    let campaign = policy.campaign(event.pid, entry.credit.spreadid);
    Line {
        endpoint: entry.endpoint.as_str().to_owned(),
        kind: entry.kind.name(),
        state: entry.state.name(),
        event_type: event.family.name(),
        event_id: record.map(|record| record.id().to_owned()),
        event_time: record.map(|record| text(record.time())),
        spreadid: entry.credit.spreadid.0,
        campaign: campaign.map(|of| printable(&of.name).into()).unwrap_or_default(),
        channel: campaign.map(|of| printable(&of.channel).into()).unwrap_or_default(),
        attempts: entry.attempt,
        changed: text(entry.changed),
        due: entry.is_pending().then(|| text(entry.due)),
        sent_before: entry
            .sent
            .filter(|_| entry.state != EntryState::Sent)
            .map(|sent| text(sent.at)),
        note: entry.note.lines().map(str::to_owned).collect(),
    }
}

/// Returns the cursor as links have it: keys of events, and in between a time.
fn cursor_text(cursor: &Cursor) -> String {
    let part = cursor.part.as_ref().map(key_text).unwrap_or_default();
    match &cursor.after {
        Some((changed, event)) => format!("{part}_{:x}_{}", changed.millis(), key_text(event)),
        None => part,
    }
}

fn parse_cursor(text: &str) -> Option<Cursor> {
    let mut texts = text.split('_');
    let part = match texts.next()? {
        "" => None,
        part => Some(parse_key(part)?),
    };
    let after = match texts.next() {
        Some(changed) => {
            let changed = EventTime::from_millis(i64::from_str_radix(changed, 16).ok()?)?;
            Some((changed, parse_key(texts.next()?)?))
        }
        None => None,
    };
    let is_whole = texts.next().is_none() && (part.is_some() || after.is_some());
    is_whole.then_some(Cursor { part, after })
}

/// Returns the parts of a key, none of which is an id.
fn key_text(event: &FactKey) -> String {
    let FactKey { family, id, pid, tag } = event;
    format!("{}-{:x}-{:x}-{tag:x}", family.name(), id.0, pid.0)
}

fn parse_key(text: &str) -> Option<FactKey> {
    let mut parts = text.split('-');
    let family = Family::from_name(parts.next()?)?;
    let mut number = || u64::from_str_radix(parts.next()?, 16).ok();
    let (id, pid, tag) = (MatchKey(number()?), Pid(u32::try_from(number()?).ok()?), number()?);
    parts.next().is_none().then_some(FactKey { family, id, pid, tag })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_was_written() {
        let (id, pid) = (MatchKey(u64::MAX), Pid(7));
        let event = FactKey { family: Family::Effect, id, pid, tag: 9 };
        let keys = Family::ALL.map(|family| Some(FactKey { family, ..event }));
        for part in keys.into_iter().chain([None]) {
            for after in [Some((EventTime::MAX, event)), Some((EventTime::default(), event)), None]
            {
                let cursor = Cursor { part, after };
                let expected = Some(cursor).filter(|cursor| *cursor != Cursor::default());
                assert_eq!(parse_cursor(&cursor_text(&cursor)), expected);
            }
        }
        for wrong in [
            "",
            "effect",
            "effect-1-1",
            "effect-1-1-1-1",
            "x-1-1-1",
            "effect-g-1-1",
            "_",
            "effect-1-1-1_",
            "_1",
            "_-1_effect-1-1-1",
            "_fffffffffffff_effect-1-1-1",
            "_1_effect-1-1",
            "_1_effect-1-1-1_",
        ] {
            assert_eq!(parse_cursor(wrong), None, "{wrong}");
        }
    }
}
