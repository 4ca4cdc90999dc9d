//! The encoding of facts, with which every fact record begins.

use attribution::facts::event::{
    Activation, Device, Effect, EventTime, Family, Pid, SpreadId, Touch,
};

use super::{
    Input, PURPOSES, TOUCH_KINDS, chosen, code, put_pairs, put_text, put_time, put_varint,
};
use crate::StoreError;

/// The time and the lookback of a fact record, without decoding the rest.
pub fn times(family: Family, bytes: &[u8]) -> Result<(EventTime, Option<u64>), StoreError> {
    let mut input = Input::new(bytes);
    let _version = input.byte()?;
    let time = input.some_time()?;
    if family != Family::Touch {
        return Ok((time, None));
    }
    id(&mut input)?;
    let (_kind, _purpose, _spreadid) = (input.byte()?, input.byte()?, input.varint()?);
    Ok((time, input.varint()?.checked_sub(1)))
}

pub(super) fn put_touch(out: &mut Vec<u8>, touch: &Touch) {
    put_id(out, &touch.id, &touch.click_id);
    out.push(code(&TOUCH_KINDS, Some(&touch.kind)));
    out.push(code(&PURPOSES, Some(&touch.purpose)));
    put_varint(out, u64::from(touch.spreadid.0));
    put_varint(out, touch.lookback_ms.map_or(0, |ms| ms.saturating_add(1)));
    put_pairs(out, &touch.ids);
    put_device(out, &touch.device);
    put_text(out, &touch.site);
    put_pairs(out, &touch.params);
}

pub(super) fn touch(input: &mut Input<'_>, pid: Pid, time: EventTime) -> Result<Touch, StoreError> {
    let (id, click_id) = id(input)?;
    Ok(Touch {
        pid,
        id,
        click_id,
        kind: chosen(&TOUCH_KINDS, input)?,
        purpose: chosen(&PURPOSES, input)?,
        spreadid: SpreadId(input.varint_u32()?),
        time,
        lookback_ms: input.varint()?.checked_sub(1),
        ids: input.pairs()?,
        device: device(input)?,
        site: input.boxed()?,
        params: input.pairs()?,
    })
}

/// A touch's id nearly always equals its click id and is then written once.
fn put_id(out: &mut Vec<u8>, id: &str, click_id: &str) {
    put_text(out, id);
    if id == click_id {
        out.push(1);
    } else {
        out.push(0);
        put_text(out, click_id);
    }
}

fn id(input: &mut Input<'_>) -> Result<(Box<str>, Box<str>), StoreError> {
    let id = input.boxed()?;
    let click_id = if input.byte()? == 1 { id.clone() } else { input.boxed()? };
    Ok((id, click_id))
}

pub(super) fn put_activation(out: &mut Vec<u8>, activation: &Activation) {
    put_text(out, &activation.id);
    put_time(out, activation.install_begin_time);
    put_text(out, &activation.click_id);
    put_pairs(out, &activation.ids);
    put_device(out, &activation.device);
    put_text(out, &activation.app_version);
    put_pairs(out, &activation.props);
}

pub(super) fn activation(
    input: &mut Input<'_>,
    pid: Pid,
    time: EventTime,
) -> Result<Activation, StoreError> {
    Ok(Activation {
        pid,
        id: input.boxed()?,
        time,
        install_begin_time: input.time()?,
        click_id: input.boxed()?,
        ids: input.pairs()?,
        device: device(input)?,
        app_version: input.boxed()?,
        props: input.pairs()?,
    })
}

pub(super) fn put_effect(out: &mut Vec<u8>, effect: &Effect) {
    put_text(out, &effect.id);
    put_text(out, &effect.name);
    put_pairs(out, &effect.ids);
    put_device(out, &effect.device);
    put_text(out, &effect.app_version);
    put_text(out, &effect.revenue);
    put_text(out, &effect.currency);
    put_pairs(out, &effect.props);
}

pub(super) fn effect(
    input: &mut Input<'_>,
    pid: Pid,
    time: EventTime,
) -> Result<Effect, StoreError> {
    Ok(Effect {
        pid,
        id: input.boxed()?,
        name: input.boxed()?,
        time,
        ids: input.pairs()?,
        device: device(input)?,
        app_version: input.boxed()?,
        revenue: input.boxed()?,
        currency: input.boxed()?,
        props: input.pairs()?,
    })
}

fn put_device(out: &mut Vec<u8>, device: &Device) {
    for text in [&device.ip, &device.ua, &device.model, &device.os, &device.os_version] {
        put_text(out, text);
    }
}

fn device(input: &mut Input<'_>) -> Result<Device, StoreError> {
    Ok(Device {
        ip: input.boxed()?,
        ua: input.boxed()?,
        model: input.boxed()?,
        os: input.boxed()?,
        os_version: input.boxed()?,
    })
}
