//! Describes a decision to an endpoint.

use std::collections::{BTreeMap, HashMap};

use attribution::facts::device_ids::{self, Form, IdKind};
use attribution::facts::event::{Pairs, Pid, SpreadId, TextPairs, Touch, TouchKind, value};
use attribution::facts::keys::FactKey;
use attribution::facts::match_keys::fact_key;
use attribution::ledger::Facts;
use attribution::ledger::record::{ActivationRecord, FactRecord};
use attribution::outbox::port::Claim;
use attribution::outbox::record::{CallbackKind, CreditMark, SentCredit};
use attribution::rules::policy::{AppPolicy, Policy};
use attribution::rules::row::{
    AD_PARAMS, AdDetails, CALLBACK_PARAM, CreditedTouch, EventType, InstallType, MatchType,
    RejectReason, SUB_PARAMS,
};
use attribution::rules::winner::Credit;
use callback::{CallbackEvent, Earlier};
use store::StoreError;
use store::layout::codec::row::{RowView, TextCell};
use store::reader::Reader;

use super::decided::{Decided, millis, read_readable};

const SUB_CELLS: [TextCell; SUB_PARAMS.len()] = [
    TextCell::TouchSub1,
    TextCell::TouchSub2,
    TextCell::TouchSub3,
    TextCell::TouchSub4,
    TextCell::TouchSub5,
];
/// The first character of an identity that is a hash, of a touch without a click id.
const HASHED: char = '#';

/// The records beside those of the events themselves: the activations whose credit effects carry, and the touches that
/// have the credit, as far as they have not expired.
pub struct Related(HashMap<FactKey, FactRecord>);

impl Related {
    pub fn read<'d>(
        reader: &mut Reader,
        decided: impl Iterator<Item = (FactKey, &'d Decided)>,
    ) -> Result<Self, StoreError> {
        let mut keys = Vec::new();
        for (event, decided) in decided {
            let row = decided.row()?;
            keys.extend(holder_key(event.pid, &row));
            keys.extend(touch_key(event.pid, &row));
        }
        keys.sort_unstable();
        keys.dedup();
        let mut found = HashMap::new();
        // What is damaged is as good as expired.
        let records = read_readable(&keys, |keys| reader.records(keys), || None)?;
        for (key, record) in keys.iter().zip(records) {
            found.extend(record.map(|record| (*key, record)));
        }
        Ok(Self(found))
    }

    /// Returns the activation whose credit an effect carries.
    fn holder(&self, pid: Pid, row: &RowView<'_>) -> Option<&ActivationRecord> {
        self.0.get(&holder_key(pid, row)?)?.activation()
    }

    fn touch(&self, pid: Pid, row: &RowView<'_>) -> Option<&Touch> {
        match self.0.get(&touch_key(pid, row)?)? {
            FactRecord::Touch(touch) => Some(touch),
            FactRecord::Activation(_) | FactRecord::Effect(_) => None,
        }
    }
}

/// The key of the activation that has the credit of an effect; `None` for an activation.
pub fn holder_key(pid: Pid, row: &RowView<'_>) -> Option<FactKey> {
    let id = [TextCell::CreditOf, TextCell::ActivationId].map(|cell| row.text(cell));
    let id = id.into_iter().find(|id| !id.is_empty())?;
    (row.event_type == EventType::Effect).then(|| fact_key(EventType::Activation, pid, id))
}

fn touch_key(pid: Pid, row: &RowView<'_>) -> Option<FactKey> {
    row.touch_kind.map(|kind| fact_key(kind, pid, row.text(TextCell::ClickId)))
}

/// What an endpoint is notified of.
pub struct Report<'a> {
    pub claim: &'a Claim,
    pub decided: &'a Decided,
    pub app: &'a AppPolicy,
    /// What the endpoint was last notified of, or may have been.
    pub reported_before: Option<SentCredit>,
    pub earlier: Vec<Earlier>,
    /// The channels whose credit the endpoint may see; empty means all.
    pub channels: &'a [Box<str>],
}

impl Report<'_> {
    /// # Errors
    /// If the row is damaged.
    pub fn event(self, related: &Related, policy: &Policy) -> Result<CallbackEvent, StoreError> {
        let Self { claim, decided, app, reported_before, earlier, channels } = self;
        let (pid, record, row) = (app.pid, &decided.record, decided.row()?);
        let credit_of = CreditOf { policy, pid, spreadid: decided.mark.spreadid };
        // An endpoint that has lost the credit learns only that: the ids and the click are those of another channel.
        let sees =
            |channel: &str| channels.is_empty() || channels.iter().any(|seen| **seen == *channel);
        let is_visible = sees(&credit_of.campaign().channel);
        let touch = related.touch(pid, &row).filter(|_| is_visible);
        let received = received(record);
        let text = |cell: TextCell| -> Box<str> { row.text(cell).into() };
        Ok(CallbackEvent {
            id: CallbackEvent::id_of(claim),
            kind: claim.key.kind,
            revision: row.revision,
            app: app.key.clone(),
            app_name: app.name.clone(),
            event_id: text(TextCell::EventId),
            name: text(TextCell::EventName),
            time_ms: millis(record.time()),
            status: row.status.name().into(),
            install_type: row.install_type.map_or("", InstallType::name).into(),
            reject_reason: row.reject_reason.map_or("", RejectReason::name).into(),
            activation_id: text(TextCell::ActivationId),
            activation_time_ms: row.activation_time.map(millis),
            credit: match is_visible {
                true => {
                    let token = token(record, &row, related.holder(pid, &row), touch);
                    credit_of.of_row(&row, token, touch)
                }
                false => callback::Credit::default(),
            },
            previous: match claim.key.kind {
                CallbackKind::ActivationChanged => {
                    let previous = reported_before.map(|sent| previous(record, sent, policy, pid));
                    previous.filter(|previous| sees(&previous.channel))
                }
                _ => None,
            },
            ids: ids(received.ids, touch),
            ip: text(TextCell::Ip),
            ua: text(TextCell::Ua),
            device_model: text(TextCell::DeviceModel),
            os: text(TextCell::Os),
            os_version: text(TextCell::OsVersion),
            app_version: text(TextCell::AppVersion),
            revenue: text(TextCell::Revenue),
            currency: text(TextCell::Currency),
            props: received.props.iter().cloned().collect(),
            earlier,
        })
    }
}

/// What an activation or an effect has, as received.
struct Received<'a> {
    ids: &'a Pairs,
    props: &'a Pairs,
}

static NONE: Pairs = Vec::new();

fn received(record: &FactRecord) -> Received<'_> {
    match record {
        FactRecord::Activation(record) => {
            Received { ids: &record.fact.ids, props: &record.fact.props }
        }
        FactRecord::Effect(record) => Received { ids: &record.fact.ids, props: &record.fact.props },
        FactRecord::Touch(_) => Received { ids: &NONE, props: &NONE },
    }
}

/// Returns the token by which the network recognises the touch: that of the decision, which outlives the touch, or that
/// of the touch while the decision on the activation of an effect is about to be another one.
fn token(
    record: &FactRecord,
    row: &RowView<'_>,
    holder: Option<&ActivationRecord>,
    touch: Option<&Touch>,
) -> Box<str> {
    let decision = record.activation().or(holder).and_then(|record| record.decision.as_ref());
    let credited = decision.and_then(|decision| decision.credit.touch.as_ref());
    let is_same = |credited: &&CreditedTouch| {
        Some(credited.kind) == row.touch_kind && *credited.click_id == *row.text(TextCell::ClickId)
    };
    let details = credited.filter(is_same).and_then(|credited| credited.details.ad.as_deref());
    match (details, touch) {
        (Some(AdDetails { callback, .. }), _) if !callback.is_empty() => callback.clone(),
        (_, Some(touch)) => value(touch.params(), CALLBACK_PARAM).into(),
        (_, None) => Box::default(),
    }
}

/// A credit of a campaign.
struct CreditOf<'p> {
    policy: &'p Policy,
    pid: Pid,
    spreadid: SpreadId,
}

impl CreditOf<'_> {
    fn of_row(
        &self,
        row: &RowView<'_>,
        callback: Box<str>,
        touch: Option<&Touch>,
    ) -> callback::Credit {
        let mut params = BTreeMap::new();
        for (name, value) in touch.into_iter().flat_map(Touch::params) {
            add(&mut params, name, value);
        }
        let cells = SUB_PARAMS.into_iter().zip(SUB_CELLS);
        for (name, cell) in cells.chain(AD_PARAMS.into_iter().zip(TextCell::AD_PARAMS)) {
            add(&mut params, name, row.text(cell));
        }
        callback::Credit {
            touch_type: row.touch_kind.map_or("", TouchKind::name).into(),
            touch_time_ms: row.touch_time.map(millis),
            match_type: row.match_type.map_or("", MatchType::name).into(),
            purpose: row.text(TextCell::TouchPurpose).into(),
            click_id: click_id(row.text(TextCell::ClickId)),
            callback,
            site: row.text(TextCell::TouchSite).into(),
            params,
            ..self.campaign()
        }
    }

    fn of_decision(&self, credit: &Credit) -> callback::Credit {
        let Some(touch) = &credit.touch else { return self.campaign() };
        let mut params = BTreeMap::new();
        let subs = SUB_PARAMS.into_iter().zip(touch.details.subs.iter().map(|sub| &**sub));
        let ad = touch.details.ad.as_deref();
        for (name, value) in subs.chain(ad.into_iter().flat_map(AdDetails::named_params)) {
            add(&mut params, name, value);
        }
        callback::Credit {
            touch_type: touch.kind.name().into(),
            touch_time_ms: Some(millis(touch.time)),
            match_type: touch.match_type.name().into(),
            purpose: touch.details.purpose.name().into(),
            click_id: click_id(&touch.click_id),
            callback: ad.map(|ad| ad.callback.clone()).unwrap_or_default(),
            site: touch.details.site.clone(),
            params,
            ..self.campaign()
        }
    }

    /// Returns what the catalogue has of the credit.
    fn campaign(&self) -> callback::Credit {
        let campaign = self.policy.campaign(self.pid, self.spreadid);
        callback::Credit {
            channel: campaign.map(|campaign| campaign.channel.clone()).unwrap_or_default(),
            spreadid: self.spreadid.0,
            campaign: campaign.map(|campaign| campaign.name.clone()).unwrap_or_default(),
            ..callback::Credit::default()
        }
    }
}

/// Returns the credit that the endpoint knows. Its touch is known if it is that of the previous decision.
fn previous(record: &FactRecord, sent: SentCredit, policy: &Policy, pid: Pid) -> callback::Credit {
    let credit_of = CreditOf { policy, pid, spreadid: sent.credit.spreadid };
    let before = record.activation().and_then(|record| record.previous.as_ref());
    let before = before.map(|decision| &decision.credit);
    match before.filter(|credit| CreditMark::of_credit(credit) == sent.credit) {
        Some(credit) => credit_of.of_decision(credit),
        None => credit_of.campaign(),
    }
}

fn click_id(identity: &str) -> Box<str> {
    if identity.starts_with(HASHED) { Box::default() } else { identity.into() }
}

/// Adds a value that is not empty; the callback token is not among the params.
fn add(params: &mut BTreeMap<Box<str>, Box<str>>, name: &str, value: &str) {
    if !value.is_empty() && name != CALLBACK_PARAM {
        params.insert(name.into(), value.into());
    }
}

/// Returns the ids of an event, normalised and by the names of received ids. Those of the touch complete them.
fn ids(received: &Pairs, touch: Option<&Touch>) -> BTreeMap<Box<str>, Box<str>> {
    let mut ids = BTreeMap::new();
    add_ids(&mut ids, received.into());
    if let Some(touch) = touch {
        add_ids(&mut ids, touch.ids());
    }
    ids
}

fn add_ids(ids: &mut BTreeMap<Box<str>, Box<str>>, received: TextPairs<'_>) {
    for (name, value) in received {
        let Some((kind, form)) = IdKind::parse(name) else { continue };
        let name = match form {
            Form::Raw => kind.name(),
            Form::Md5 => kind.md5_name(),
        };
        let normalised = device_ids::display(&vec![(name.into(), value.into())], kind);
        if !normalised.is_empty() {
            ids.entry(name.into()).or_insert(normalised);
        }
    }
}
