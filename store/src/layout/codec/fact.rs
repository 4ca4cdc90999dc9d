//! The encoding of facts, with which every fact record begins.

use attribution::facts::event::{
    Activation, Device, Effect, EventTime, Family, Pid, SpreadId, Touch, TouchHead,
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
    identity(&mut input)?;
    let (_kind, _purpose, _spreadid) = (input.byte()?, input.byte()?, input.varint()?);
    Ok((time, input.varint()?.checked_sub(1)))
}

/// The campaign of the fact record of a touch, without decoding the rest.
pub fn campaign(bytes: &[u8]) -> Result<SpreadId, StoreError> {
    let mut input = Input::new(bytes);
    let (_version, _time) = (input.byte()?, input.some_time()?);
    identity(&mut input)?;
    let (_kind, _purpose) = (input.byte()?, input.byte()?);
    input.varint_u32().map(SpreadId)
}

pub(super) fn put_touch(out: &mut Vec<u8>, touch: &Touch) {
    let (identity, others) = touch.encoded();
    out.extend_from_slice(identity);
    out.push(code(&TOUCH_KINDS, Some(&touch.kind)));
    out.push(code(&PURPOSES, Some(&touch.purpose)));
    put_varint(out, u64::from(touch.spreadid.0));
    put_varint(out, touch.lookback_ms.map_or(0, |ms| ms.saturating_add(1)));
    out.extend_from_slice(others);
}

pub(super) fn touch(input: &mut Input<'_>, pid: Pid, time: EventTime) -> Result<Touch, StoreError> {
    let identity = identity(input)?;
    let head = TouchHead {
        pid,
        kind: chosen(&TOUCH_KINDS, input)?,
        purpose: chosen(&PURPOSES, input)?,
        spreadid: SpreadId(input.varint_u32()?),
        time,
        lookback_ms: input.varint()?.checked_sub(1),
    };
    let others = input.take(input.rest().len())?;
    Touch::decode(head, identity, others).map_err(StoreError::corrupt)
}

/// The encoded id and click id of a touch. The id nearly always equals the click id and is then written once.
fn identity<'a>(input: &mut Input<'a>) -> Result<&'a [u8], StoreError> {
    let start = input.rest();
    skip_text(input)?;
    if input.byte()? != 1 {
        skip_text(input)?;
    }
    Ok(&start[..start.len() - input.rest().len()])
}

fn skip_text(input: &mut Input<'_>) -> Result<(), StoreError> {
    let len = input.len()?;
    input.take(len).map(drop)
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

#[cfg(test)]
mod tests {
    use attribution::facts::event::{Purpose, TouchFields, TouchKind};

    use super::*;

    fn fields() -> TouchFields {
        TouchFields {
            pid: Pid(1),
            id: "c1".into(),
            click_id: "c1".into(),
            kind: TouchKind::Click,
            purpose: Purpose::Ua,
            spreadid: SpreadId(300),
            time: EventTime::default().plus(5),
            lookback_ms: None,
            ids: vec![("oaid".into(), "a".into()), ("oaid".into(), "b".into())],
            device: Device {
                ip: "::1".into(),
                ua: "u".repeat(200).into(),
                model: "m".into(),
                os: "ios".into(),
                os_version: "17".into(),
            },
            site: "s".into(),
            params: vec![("sub1".into(), "ü".into())],
        }
    }

    #[track_caller]
    fn check(fields: TouchFields, expected: &[&[u8]]) {
        let touch = Touch::from(fields);
        let mut bytes = Vec::new();
        put_touch(&mut bytes, &touch);
        assert_eq!(bytes, expected.concat());
        let decoded = super::touch(&mut Input::new(&bytes), touch.pid, touch.time);
        assert_eq!(decoded.ok(), Some(touch));
    }

    /// As in `docs/format.md`.
    #[test]
    fn the_bytes_of_a_touch_never_change() {
        let ids = b"\x02\x04oaid\x01a\x04oaid\x01b";
        let ua = [b'u'; 200];
        let others: [&[u8]; 4] =
            [ids, b"\x03::1\xc8\x01", &ua, b"\x01m\x03ios\x0217\x01s\x01\x04sub1\x02\xc3\xbc"];
        let others = others.concat();
        check(fields(), &[b"\x02c1\x01\x02\x01\xac\x02\x00", &others]);
        let other = TouchFields {
            id: "#0".into(),
            click_id: " ".into(),
            kind: TouchKind::Impression,
            purpose: Purpose::Retargeting,
            lookback_ms: Some(127),
            ..fields()
        };
        check(other, &[b"\x02#0\x00\x01 \x01\x02\xac\x02\x80\x01", &others]);
    }
}
