//! The encoding of fact records: facts with their current decisions.
//!
//! Every value starts with its layout version and the fact's time, so that expiry need not decode the rest.

use attribution::facts::event::{Family, Pid, SpreadId};
use attribution::facts::keys::{FactKey, MatchKey};
use attribution::ledger::record::{
    ActivationRecord, Cause, Causes, CurrentRow, EffectRecord, FactRecord, RowMeta,
};
use attribution::rules::classify::{ActivationKey, InstallChain, InstallChains};
use attribution::rules::row::{
    AD_PARAMS, AdDetails, Contributor, CreditedTouch, InstallType, MatchType, RejectReason,
    SUB_PARAMS, Status, TouchDetails,
};
use attribution::rules::winner::{Credit, Decision};

use super::{
    Input, PURPOSES, TOUCH_KINDS, choose_option, chosen, code, fact, put_text, put_time, put_varint,
};
use crate::StoreError;

const VERSION: u8 = 8;

/// Appends the value of a record; app and family are given by its key and table.
pub fn encode(record: &FactRecord, out: &mut Vec<u8>) {
    out.push(VERSION);
    put_time(out, Some(record.time()));
    match record {
        FactRecord::Touch(touch) => fact::put_touch(out, touch),
        FactRecord::Activation(record) => {
            fact::put_activation(out, &record.fact);
            put_chains(out, &record.chains, &ActivationKey::of(&record.fact));
            put_current_row(out, record.current_row.as_ref());
            put_decision(out, record.decision.as_ref());
            put_decision(out, record.previous.as_ref());
            if record.previous.is_some() {
                put_causes(out, &record.changed_by);
            }
        }
        FactRecord::Effect(record) => {
            fact::put_effect(out, &record.fact);
            put_current_row(out, record.current_row.as_ref());
        }
    }
}

/// Decodes the value of a record.
pub fn decode(family: Family, pid: Pid, bytes: &[u8]) -> Result<FactRecord, StoreError> {
    let mut input = Input::new(bytes);
    let version = input.byte()?;
    if version != VERSION {
        return Err(StoreError::corrupt(format!("a fact of layout version {version}")));
    }
    let time = input.some_time()?;
    let record = match family {
        Family::Touch => FactRecord::Touch(fact::touch(&mut input, pid, time)?),
        Family::Activation => {
            let fact = fact::activation(&mut input, pid, time)?;
            let mut record = ActivationRecord {
                chains: chains(&mut input, &ActivationKey::of(&fact))?,
                fact,
                current_row: current_row(&mut input)?,
                decision: decision(&mut input)?,
                previous: decision(&mut input)?,
                changed_by: Causes::default(),
            };
            if record.previous.is_some() {
                record.changed_by = causes(&mut input, pid)?;
            }
            FactRecord::Activation(Box::new(record))
        }
        Family::Effect => FactRecord::Effect(Box::new(EffectRecord {
            fact: fact::effect(&mut input, pid, time)?,
            current_row: current_row(&mut input)?,
        })),
    };
    input.end()?;
    Ok(record)
}

/// The activation itself is written as time 0 only: it ends its chain and often is the whole of it.
fn put_chains(out: &mut Vec<u8>, chains: &InstallChains, this: &ActivationKey) {
    put_varint(out, chains.chains.len() as u64);
    for activation in chains.chains.iter().flat_map(|chain| [&chain.install, &chain.last_counted]) {
        if activation == this {
            put_time(out, None);
        } else {
            put_time(out, Some(activation.time));
            put_text(out, &activation.id);
        }
    }
    put_varint(out, chains.chain_indexes.len() as u64);
    out.extend_from_slice(&chains.chain_indexes);
}

fn chains(input: &mut Input<'_>, this: &ActivationKey) -> Result<InstallChains, StoreError> {
    let mut chains = InstallChains::default();
    let activation = |input: &mut Input<'_>| match input.time()? {
        Some(time) => Ok::<_, StoreError>(ActivationKey { time, id: input.boxed()? }),
        None => Ok(this.clone()),
    };
    for _ in 0..input.varint()? {
        let (install, last_counted) = (activation(input)?, activation(input)?);
        chains.chains.push(InstallChain { install, last_counted });
    }
    for _ in 0..input.varint()? {
        chains.chain_indexes.push(input.byte()?);
    }
    Ok(chains)
}

fn put_current_row(out: &mut Vec<u8>, current_row: Option<&CurrentRow>) {
    put_time(out, current_row.map(|current_row| current_row.event_time));
    let Some(current_row) = current_row else { return };
    put_varint(out, u64::from(current_row.revision));
    put_varint(out, u64::from(current_row.spreadid.0));
    out.push(code(&Status::ALL, Some(&current_row.status)));
    out.extend_from_slice(&current_row.digest.to_be_bytes());
    out.push(current_row.row_meta.fanout_bits);
    put_varint(out, u64::from(current_row.row_meta.bytes));
    out.push(code(&InstallType::ALL, current_row.row_meta.install_type.as_ref()));
    out.extend_from_slice(&current_row.row_meta.fact_hash.to_be_bytes());
}

fn current_row(input: &mut Input<'_>) -> Result<Option<CurrentRow>, StoreError> {
    let Some(event_time) = input.time()? else { return Ok(None) };
    Ok(Some(CurrentRow {
        event_time,
        revision: input.varint_u32()?,
        spreadid: SpreadId(input.varint_u32()?),
        status: chosen(&Status::ALL, input)?,
        digest: input.u64()?,
        row_meta: RowMeta {
            fanout_bits: input.byte()?,
            bytes: input.varint_u32()?,
            install_type: choose_option(&InstallType::ALL, input.byte()?)?,
            fact_hash: input.u64()?,
        },
    }))
}

fn put_decision(out: &mut Vec<u8>, decision: Option<&Decision>) {
    out.push(code(&InstallType::ALL, decision.map(|decision| &decision.install_type)));
    let Some(Decision { original, credit, .. }) = decision else { return };
    put_text(out, original.as_deref().unwrap_or_default());
    out.push(code(&Status::ALL, Some(&credit.status)));
    put_varint(out, u64::from(credit.spreadid.0));
    out.push(code(&RejectReason::ALL, credit.reject_reason.as_ref()));
    put_time(out, credit.touch.as_ref().map(|touch| touch.time));
    if let Some(touch) = &credit.touch {
        out.push(code(&TOUCH_KINDS, Some(&touch.kind)));
        put_text(out, &touch.click_id);
        out.push(code(&MatchType::ALL, Some(&touch.match_type)));
        put_details(out, &touch.details);
    }
    put_varint(out, credit.contributors.len() as u64);
    for contributor in &credit.contributors {
        put_varint(out, u64::from(contributor.spreadid.0));
        out.push(code(&TOUCH_KINDS, Some(&contributor.kind)));
        put_time(out, Some(contributor.time));
        out.push(code(&MatchType::ALL, Some(&contributor.match_type)));
        put_ad(out, contributor.ad.as_deref());
    }
}

fn put_details(out: &mut Vec<u8>, details: &TouchDetails) {
    let TouchDetails { purpose, lookback_ms, site, subs, ad } = details;
    out.push(code(&PURPOSES, Some(purpose)));
    put_varint(out, *lookback_ms);
    [site].into_iter().chain(subs).for_each(|text| put_text(out, text));
    put_ad(out, ad.as_deref());
}

/// A bit for each text that is present, the lowest for the callback token; then these texts.
fn put_ad(out: &mut Vec<u8>, ad: Option<&AdDetails>) {
    let Some(AdDetails { callback, params }) = ad else { return put_varint(out, 0) };
    let texts = [callback].into_iter().chain(params);
    let present = texts.clone().enumerate().filter(|(_, text)| !text.is_empty());
    put_varint(out, present.map(|(bit, _)| 1_u64 << bit).sum());
    texts.filter(|text| !text.is_empty()).for_each(|text| put_text(out, text));
}

fn ad(input: &mut Input<'_>) -> Result<Option<Box<AdDetails>>, StoreError> {
    let present = input.varint()?;
    if present >> (1 + AD_PARAMS.len()) != 0 {
        return Err(StoreError::corrupt("an ad with unknown texts"));
    }
    let mut text = |bit: usize| match (present >> bit) & 1 {
        0 => Ok(Box::default()),
        _ => input.boxed(),
    };
    let callback = text(0)?;
    let mut params = <[Box<str>; AD_PARAMS.len()]>::default();
    for (index, param) in params.iter_mut().enumerate() {
        *param = text(index + 1)?;
    }
    Ok(AdDetails::non_empty(callback, params))
}

fn details(input: &mut Input<'_>) -> Result<Box<TouchDetails>, StoreError> {
    let purpose = chosen(&PURPOSES, input)?;
    let (lookback_ms, site) = (input.varint()?, input.boxed()?);
    let mut subs = <[Box<str>; SUB_PARAMS.len()]>::default();
    for sub in &mut subs {
        *sub = input.boxed()?;
    }
    Ok(Box::new(TouchDetails { purpose, lookback_ms, site, subs, ad: ad(input)? }))
}

fn decision(input: &mut Input<'_>) -> Result<Option<Decision>, StoreError> {
    let Some(install_type) = choose_option(&InstallType::ALL, input.byte()?)? else {
        return Ok(None);
    };
    let original = Some(input.boxed()?).filter(|id| !id.is_empty());
    Ok(Some(Decision { install_type, original, credit: credit(input)? }))
}

fn credit(input: &mut Input<'_>) -> Result<Credit, StoreError> {
    let mut credit = Credit {
        status: chosen(&Status::ALL, input)?,
        spreadid: SpreadId(input.varint_u32()?),
        reject_reason: choose_option(&RejectReason::ALL, input.byte()?)?,
        touch: None,
        contributors: Vec::new(),
    };
    if let Some(time) = input.time()? {
        credit.touch = Some(CreditedTouch {
            time,
            kind: chosen(&TOUCH_KINDS, input)?,
            click_id: input.boxed()?,
            match_type: chosen(&MatchType::ALL, input)?,
            details: details(input)?,
        });
    }
    for _ in 0..input.varint()? {
        credit.contributors.push(Contributor {
            spreadid: SpreadId(input.varint_u32()?),
            kind: chosen(&TOUCH_KINDS, input)?,
            time: input.some_time()?,
            match_type: chosen(&MatchType::ALL, input)?,
            ad: ad(input)?,
        });
    }
    Ok(credit)
}

fn put_causes(out: &mut Vec<u8>, Causes { facts, may_have_more }: &Causes) {
    out.push(u8::from(*may_have_more));
    put_varint(out, facts.len() as u64);
    for Cause { fact, time, is_update } in facts {
        out.push(code(&Family::ALL, Some(&fact.family)));
        out.push(u8::from(*is_update));
        out.extend_from_slice(&fact.id.0.to_be_bytes());
        put_varint(out, fact.tag);
        put_time(out, Some(*time));
    }
}

fn causes(input: &mut Input<'_>, pid: Pid) -> Result<Causes, StoreError> {
    let mut causes = Causes { may_have_more: input.byte()? != 0, facts: Vec::new() };
    for _ in 0..input.varint()? {
        let family = chosen(&Family::ALL, input)?;
        let is_update = input.byte()? != 0;
        let fact = FactKey { family, pid, id: MatchKey(input.u64()?), tag: input.varint()? };
        causes.facts.push(Cause { fact, time: input.some_time()?, is_update });
    }
    Ok(causes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(details: Option<Box<AdDetails>>, expected: &[&[u8]]) {
        let mut bytes = Vec::new();
        put_ad(&mut bytes, details.as_deref());
        assert_eq!(bytes, expected.concat());
        let mut input = Input::new(&bytes);
        assert_eq!(ad(&mut input).ok(), Some(details));
        assert!(input.end().is_ok());
    }

    /// As in `docs/format.md`.
    #[test]
    fn the_bytes_of_an_ad_never_change() {
        let token = "t".repeat(4_096);
        let mut params = <[Box<str>; AD_PARAMS.len()]>::default();
        (params[2], params[8]) = ("3".into(), "ü".into());
        check(None, &[b"\x00"]);
        check(AdDetails::non_empty("t".into(), Default::default()), &[b"\x01\x01t"]);
        let named = AdDetails::non_empty("".into(), params.clone());
        check(named, &[b"\x88\x04\x013\x02\xc3\xbc"]);
        let both = AdDetails::non_empty(token.as_str().into(), params);
        check(both, &[b"\x89\x04\x80\x20", token.as_bytes(), b"\x013\x02\xc3\xbc"]);
    }

    #[test]
    fn an_ad_with_unknown_or_missing_texts_is_an_error() {
        for damaged in [&b"\x80\x08\x01t"[..], b"\x01", b"\x01\x02t", b"\x03\x01t"] {
            assert!(ad(&mut Input::new(damaged)).is_err(), "{damaged:?}");
        }
    }
}
