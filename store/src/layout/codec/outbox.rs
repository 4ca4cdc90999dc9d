//! The encoding of outbox records, and of the tallies of endpoints.

use attribution::facts::event::{EventTime, Family, SpreadId};
use attribution::facts::keys::{FactKey, MatchKey};
use attribution::outbox::record::{
    CallbackKind, CreditMark, EndpointId, EntryState, OutboxEntry, OutboxRecord, SentCredit, Tally,
};
use attribution::rules::row::Status;

use super::{Input, chosen, code, event_time, put_text, put_varint};
use crate::StoreError;
use crate::layout::key::{FactTableKey, Key, decode_fact};

const VERSION: u8 = 1;
/// The families of events, by their stored code.
const FAMILIES: [Family; 2] = [Family::Activation, Family::Effect];

pub fn encode(record: &OutboxRecord, out: &mut Vec<u8>) {
    out.push(VERSION);
    out.push(code(&FAMILIES, Some(&record.event.family)));
    put_varint(out, record.entries.len() as u64);
    record.entries.iter().for_each(|entry| put_entry(out, entry));
}

/// Decodes the record under the key of its event.
pub fn decode(key: &Key, value: &[u8]) -> Result<OutboxRecord, StoreError> {
    let damage = || StoreError::corrupt("an outbox record");
    let Some(FactTableKey::FactRecord { id, pid, tag }) = decode_fact(key) else {
        return Err(damage());
    };
    let mut input = Input::new(value);
    if input.byte()? != VERSION {
        return Err(damage());
    }
    let family = chosen(&FAMILIES, &mut input)?;
    let mut record = OutboxRecord::new(FactKey { family, id: MatchKey(id), pid, tag });
    for _ in 0..input.varint()? {
        record.entries.push(entry(&mut input)?);
    }
    input.end()?;
    let keys = record.entries.iter().map(|entry| (&entry.endpoint, entry.kind));
    if keys.is_sorted_by(|a, b| a < b) { Ok(record) } else { Err(damage()) }
}

fn put_entry(out: &mut Vec<u8>, entry: &OutboxEntry) {
    put_text(out, entry.endpoint.as_str());
    out.push(code(&CallbackKind::ALL, Some(&entry.kind)));
    out.push(code(&EntryState::ALL, Some(&entry.state)));
    put_credit(out, &entry.credit);
    put_varint(out, u64::from(entry.revision));
    put_varint(out, entry.due.millis());
    put_varint(out, entry.expires.millis());
    put_varint(out, u64::from(entry.attempt));
    put_varint(out, entry.sent_before);
    put_sent(out, entry.sent.as_ref());
    put_sent(out, entry.maybe_sent.as_ref());
    put_varint(out, entry.changed.millis());
    put_tally(out, &entry.tally);
    put_text(out, &entry.note);
}

fn entry(input: &mut Input<'_>) -> Result<OutboxEntry, StoreError> {
    Ok(OutboxEntry {
        endpoint: EndpointId::new(input.text()?),
        kind: chosen(&CallbackKind::ALL, input)?,
        state: chosen(&EntryState::ALL, input)?,
        credit: credit(input)?,
        revision: input.varint_u32()?,
        due: time(input)?,
        expires: time(input)?,
        attempt: input.varint_u32()?,
        sent_before: input.varint()?,
        sent: sent(input)?,
        maybe_sent: sent(input)?,
        changed: time(input)?,
        tally: tally(input)?,
        note: input.boxed()?,
    })
}

fn put_sent(out: &mut Vec<u8>, sent: Option<&SentCredit>) {
    out.push(u8::from(sent.is_some()));
    if let Some(sent) = sent {
        put_credit(out, &sent.credit);
        put_varint(out, u64::from(sent.revision));
        put_varint(out, sent.at.millis());
    }
}

fn sent(input: &mut Input<'_>) -> Result<Option<SentCredit>, StoreError> {
    match input.byte()? {
        0 => Ok(None),
        1 => {
            let (credit, revision) = (credit(input)?, input.varint_u32()?);
            Ok(Some(SentCredit { credit, revision, at: time(input)? }))
        }
        _ => Err(StoreError::corrupt("an outbox record")),
    }
}

fn put_credit(out: &mut Vec<u8>, credit: &CreditMark) {
    out.extend_from_slice(&credit.fingerprint.to_be_bytes());
    out.push(code(&Status::ALL, Some(&credit.status)));
    put_varint(out, u64::from(credit.spreadid.0));
}

fn credit(input: &mut Input<'_>) -> Result<CreditMark, StoreError> {
    Ok(CreditMark {
        fingerprint: input.u64()?,
        status: chosen(&Status::ALL, input)?,
        spreadid: SpreadId(input.varint_u32()?),
    })
}

fn time(input: &mut Input<'_>) -> Result<EventTime, StoreError> {
    event_time(input.varint()?).ok_or_else(|| StoreError::corrupt("a time after the year 9999"))
}

pub(crate) fn put_tally(out: &mut Vec<u8>, tally: &Tally) {
    tally.numbers().into_iter().for_each(|number| put_varint(out, number));
}

pub(crate) fn tally(input: &mut Input<'_>) -> Result<Tally, StoreError> {
    let mut tally = Tally::default();
    for number in tally.numbers_mut() {
        *number = input.varint()?;
    }
    Ok(tally)
}

pub fn encode_tally(tally: &Tally) -> Vec<u8> {
    let mut out = Vec::with_capacity(12);
    put_tally(&mut out, tally);
    out
}

/// `None` if the bytes are not a tally.
pub fn decode_tally(value: &[u8]) -> Option<Tally> {
    let mut input = Input::new(value);
    let tally = tally(&mut input).ok()?;
    input.end().ok()?;
    Some(tally)
}

#[cfg(test)]
mod tests {
    use attribution::facts::event::Pid;
    use proptest::prelude::*;

    use super::*;
    use crate::layout::key;

    fn any_credit() -> impl Strategy<Value = CreditMark> {
        (any::<u64>(), 0..Status::ALL.len(), any::<u32>()).prop_map(
            |(fingerprint, status, spreadid)| CreditMark {
                fingerprint,
                status: Status::ALL[status],
                spreadid: SpreadId(spreadid),
            },
        )
    }

    fn any_sent() -> impl Strategy<Value = Option<SentCredit>> {
        let sent = (any_credit(), any::<u32>(), any_time());
        let sent = sent.prop_map(|(credit, revision, at)| SentCredit { credit, revision, at });
        prop::option::of(sent)
    }

    fn any_time() -> impl Strategy<Value = EventTime> {
        (0..=EventTime::MAX.millis()).prop_map(|ms| EventTime::default().plus(ms))
    }

    prop_compose! {
        fn any_entry()(
            (name, kind, state) in ("[a-z]{1,8}", 0..CallbackKind::ALL.len(), 0..EntryState::ALL.len()),
            (credit, revision, attempt) in (any_credit(), any::<u32>(), any::<u32>()),
            sent_before in any::<u64>(),
            [due, expires, changed] in [any_time(), any_time(), any_time()],
            [sent, maybe_sent] in [any_sent(), any_sent()],
            numbers in prop::array::uniform6(any::<u64>()),
            note in ".{0,20}",
        ) -> OutboxEntry {
            let mut tally = Tally::default();
            tally.numbers_mut().into_iter().zip(numbers).for_each(|(to, from)| *to = from);
            OutboxEntry {
                endpoint: EndpointId::new(&name),
                kind: CallbackKind::ALL[kind],
                state: EntryState::ALL[state],
                credit,
                revision,
                due,
                expires,
                attempt,
                sent_before,
                sent,
                maybe_sent,
                changed,
                tally,
                note: note.into(),
            }
        }
    }

    prop_compose! {
        fn any_record()(
            (id, pid, tag, is_effect) in (any::<u64>(), any::<u32>(), 0..1_u64 << 48, any::<bool>()),
            mut entries in prop::collection::vec(any_entry(), 0..4),
        ) -> OutboxRecord {
            let family = if is_effect { Family::Effect } else { Family::Activation };
            entries.sort_by(|a, b| (&a.endpoint, a.kind).cmp(&(&b.endpoint, b.kind)));
            entries.dedup_by(|a, b| (&a.endpoint, a.kind) == (&b.endpoint, b.kind));
            OutboxRecord { event: FactKey { family, id: MatchKey(id), pid: Pid(pid), tag }, entries }
        }
    }

    proptest! {
        #[test]
        fn records_are_decoded_as_they_were_encoded(record in any_record()) {
            let (key, mut value) = (key::record(&record.event), Vec::new());
            encode(&record, &mut value);
            prop_assert_eq!(decode(&key, &value).unwrap(), record);
            prop_assert!(decode(&key, &value[..value.len() - 1]).is_err(), "cut");
            value.push(0);
            prop_assert!(decode(&key, &value).is_err(), "a surplus byte");
        }

        #[test]
        fn damaged_records_are_no_panic(
            record in any_record(),
            at in any::<prop::sample::Index>(),
            byte in any::<u8>(),
        ) {
            let (key, mut value) = (key::record(&record.event), Vec::new());
            encode(&record, &mut value);
            let at = at.index(value.len());
            value[at] = byte;
            let _ = decode(&key, &value);
            let _ = decode_tally(&value);
        }
    }

    #[test]
    fn entries_out_of_order_are_damage() {
        let entry = |name: &str| OutboxEntry {
            endpoint: EndpointId::new(name),
            kind: CallbackKind::Effect,
            state: EntryState::Pending,
            credit: CreditMark {
                fingerprint: 1,
                status: Status::Attributed,
                spreadid: SpreadId(1),
            },
            revision: 1,
            due: EventTime::default(),
            expires: EventTime::MAX,
            attempt: 0,
            sent_before: 0,
            sent: None,
            maybe_sent: None,
            changed: EventTime::default(),
            tally: Tally::default(),
            note: "".into(),
        };
        let event = FactKey { family: Family::Effect, id: MatchKey(1), pid: Pid(1), tag: 1 };
        let record = OutboxRecord { event, entries: vec![entry("b"), entry("a")] };
        let mut value = Vec::new();
        encode(&record, &mut value);
        assert!(decode(&key::record(&event), &value).is_err());
        assert!(decode(&key::index(MatchKey(1), &event, EventTime::default()), &value).is_err());
    }

    /// Stored indexes never change.
    #[test]
    fn codes_never_change() {
        let kinds = CallbackKind::ALL.map(CallbackKind::name);
        let webhooks = [
            "activation.attributed",
            "activation.changed",
            "activation.rejected",
            "effect.attributed",
        ];
        assert_eq!(kinds, [&["activation", "effect"][..], &webhooks].concat()[..]);
        let states = EntryState::ALL.map(EntryState::name);
        assert_eq!(states, ["pending", "sent", "dropped", "withheld", "too_old", "dead"]);
    }
}
