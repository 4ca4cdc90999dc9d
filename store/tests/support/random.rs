//! Random facts with many difficult cases: equal times, shared devices, equal ids with different content, and times on
//! both sides of every window's edge.

use std::fmt;
use std::sync::Arc;

use attribution::facts::device_ids;
use attribution::facts::event::Fact;
use attribution::rules::policy::{AppPolicy, IpRange, Policy, ReinstallEffects};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use super::facts::{
    A, D, DAY, Draft, HOUR, MINUTE, SECOND, a_plus, activation, click, effect, identified,
    impression,
};
use super::normalise::md5_hex;
use super::rules::{NARROW, OTHER_CHANNEL, WIDE, rules, rules_with};

/// Facts that a failing test prints one per line.
#[derive(Clone)]
pub struct Facts(pub Vec<Fact>);

impl fmt::Debug for Facts {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|fact| write!(out, "\n{fact:?}"))
    }
}

/// Generates up to `max` facts with their identities, and sometimes many facts on one device, many devices that share
/// an id, many activations at one time, or many messages of a few facts.
pub fn facts(max: usize) -> impl Strategy<Value = Facts> {
    let few = || vec(draft(), 1..max);
    let concat = |(mut few, crowd): (Vec<Draft>, Vec<Draft>)| {
        few.extend(crowd);
        few
    };
    let crowd = (few(), vec(crowded(), 20..60)).prop_map(concat);
    let shared = (few(), vec(sharing(), 10..60)).prop_map(concat);
    let tied = (few(), vec(tied(), 20..60)).prop_map(concat);
    let disputed = (few(), vec(disputed(), 6..40)).prop_map(concat);
    prop_oneof![6 => few(), 2 => crowd, 2 => shared, 1 => tied, 2 => disputed]
        .prop_map(|drafts| Facts(identified(drafts)))
}

/// Generates hundreds of touches of one device and one address, within hours or days: too many for one page, and few of
/// them can be credited.
pub fn floods() -> impl Strategy<Value = Facts> {
    let activations = vec((0..3i64, flooded_ids(), 0..4u8), 1..4).prop_map(|activations| {
        let drafts = activations.into_iter().enumerate().map(|(number, (days, ids, kind))| {
            let draft = activation(&format!("flooded{number}"), a_plus(days * DAY));
            let draft = on_flooded_device(draft, ids);
            if kind == 0 { draft.install_begin(a_plus(days * DAY - HOUR)) } else { draft }
        });
        drafts.collect::<Vec<_>>()
    });
    let hours = select(vec![1, 6, 30, 200]);
    (hours, vec(flood_touch(), 100..2_500), activations, vec(draft(), 0..10)).prop_map(
        |(hours, touches, activations, few)| {
            let spread = touches.into_iter().enumerate().map(|(number, touch)| {
                let FloodTouch { kind, share, ids, campaign, site, lookback } = touch;
                let time = a_plus(2 * DAY - i64::from(share) * hours * HOUR / 1_000);
                let id = format!("flood{number}");
                let draft = match kind {
                    0..17 => click(&id, time),
                    17 => click(&id, time).retargeting(),
                    18 => click(&id, time).lookback(lookback * DAY),
                    _ => impression(&id, time),
                };
                let draft = on_flooded_device(draft, ids).campaign(campaign).site(site);
                match ["", "valid", "invalid", "missing"][usize::from(share % 4)] {
                    "" => draft,
                    signature => draft.prop("signature", signature),
                }
            });
            let drafts = spread.chain(activations).chain(few);
            Facts(identified(drafts.collect::<Vec<_>>()))
        },
    )
}

#[derive(Debug, Clone)]
struct FloodTouch {
    kind: u8,
    /// Age within the flood's duration, in thousandths.
    share: u16,
    ids: u8,
    campaign: u32,
    site: &'static str,
    lookback: i64,
}

fn flood_touch() -> impl Strategy<Value = FloodTouch> {
    let campaigns = vec![7, 7, 7, 8, NARROW, WIDE, OTHER_CHANNEL, 99];
    let sites = vec!["", "bad", "bad", "good"];
    (0..20u8, 0..1_000u16, flooded_ids(), select(campaigns), select(sites), 0..9i64).prop_map(
        |(kind, share, ids, campaign, site, lookback)| FloodTouch {
            kind,
            share,
            ids,
            campaign,
            site,
            lookback: lookback * 10,
        },
    )
}

/// Selects the ids that an event of the flooded device has: none, oaid, imei or both.
fn flooded_ids() -> impl Strategy<Value = u8> {
    0..4u8
}

fn on_flooded_device(draft: Draft, ids: u8) -> Draft {
    let draft = draft.without_ids().ip("203.0.113.7").ua("flooded");
    match ids {
        0 => draft,
        1 => draft.and("oaid", "flooded"),
        2 => draft.and("imei", "flooded"),
        _ => draft.and("oaid", "flooded").and("imei", "flooded"),
    }
}

fn draft() -> impl Strategy<Value = Draft> {
    let fact =
        prop_oneof![5 => touch().boxed(), 3 => an_activation().boxed(), 2 => an_effect().boxed()];
    (fact, ids(), device(), 0..10u8).prop_map(|(draft, ids, device, app)| {
        let [ip, ua, model, os, os_version] = device;
        let draft = draft.without_ids().and_all(ids).ip(ip).ua(ua);
        let draft = draft.model(model).os(os, os_version);
        if app == 0 { draft.of_app_y() } else { draft }
    })
}

/// Generates facts of one device within a few minutes, so that a scan of them takes several pages.
fn crowded() -> impl Strategy<Value = Draft> {
    (0..12u8, 0..40u8, 0..4i64).prop_map(|(kind, id, ms)| {
        let time = a_plus(-HOUR + ms * MINUTE / 2);
        let id = format!("x{id}");
        match kind {
            0..5 => click(&id, time).prop("callback", &id),
            5..7 => click(&id, time).retargeting(),
            7..9 => impression(&id, time).prop("callback", &id).prop("campaign_name", "n"),
            9 => activation(&id, a_plus(-HOUR + ms * 2 * MINUTE)),
            10 => activation(&id, a_plus(ms)),
            _ => effect(&id, a_plus(ms)),
        }
    })
}

/// Generates facts of several devices that are linked by one or two shared ids, over several windows.
fn sharing() -> impl Strategy<Value = Draft> {
    let shared = vec![("imei", "1"), ("imei", "1"), ("android_id", "a"), ("mac", "")];
    let oaid = vec!["", "o0", "o1", "o2", "o3", "o4", "o5"];
    let other = vec![("imei_md5", ""), ("caid", "c"), ("android_id", "a"), ("android_id", "b")];
    let time = (-4..4i64, -3..3i64, 0..4i64)
        .prop_map(|(days, minutes, ms)| a_plus(days * 30 * DAY + minutes * MINUTE / 2 + ms));
    (select(shared), select(oaid), select(other), time, 0..400u32, 0..8u8).prop_map(
        |(shared, oaid, other, time, id, kind)| {
            let id = format!("s{id}");
            let draft = match kind {
                0 => click(&id, time),
                1 => click(&id, time).retargeting(),
                2 => effect(&id, time),
                _ => activation(&id, time),
            };
            let ids = [shared, ("oaid", oaid), other];
            let present = ids.into_iter().filter(|(_, value)| !value.is_empty());
            present.fold(draft.without_ids(), |draft, (kind, value)| draft.and(kind, value))
        },
    )
}

/// Generates activations of several devices that share ids, and their effects, at a few times: more than a page of
/// each.
fn tied() -> impl Strategy<Value = Draft> {
    let shared = vec![vec![("imei", "1")], vec![("caid", "c")], vec![("imei", "1"), ("caid", "c")]];
    let time = select(vec![-90 * DAY, 0, 0, 0, 1]).prop_map(a_plus);
    (select(shared), 0..4u8, time, 0..100u32, 0..8u8).prop_map(|(shared, oaid, time, id, kind)| {
        let id = format!("t{id}");
        let draft = match kind {
            0 => click(&id, time.minus(1)).retargeting(),
            1 => effect(&id, time),
            _ => activation(&id, time),
        };
        let draft =
            shared.iter().fold(draft.without_ids(), |draft, (kind, value)| draft.and(kind, value));
        if oaid == 0 { draft.and("oaid", "o") } else { draft }
    })
}

/// Generates conflicting messages of a few facts, with the same time but other content and other devices. The canonical
/// message is not always the one with the least device id.
fn disputed() -> impl Strategy<Value = Draft> {
    let devices = vec![("imei", "1"), ("imei", "2"), ("oaid", "3")];
    let tokens = select(vec!["t1", "t2", "t3"]);
    (0..6u8, 0..2u8, 1..9u32, select(devices), tokens).prop_map(
        |(family, id, number, (kind, value), token)| {
            let id = format!("d{id}");
            let draft = match family {
                0..3 => click(&id, a_plus(-HOUR)).campaign(number).prop("callback", token),
                // Only the token differs.
                3 => click(&id, a_plus(-HOUR)).campaign(1).prop("callback", token),
                4 => activation(&id, A).install_begin(a_plus(-i64::from(number) * SECOND)),
                _ => effect(&id, a_plus(MINUTE)).revenue(&number.to_string(), ""),
            };
            draft.without_ids().and(kind, value)
        },
    )
}

fn touch() -> impl Strategy<Value = Draft> {
    let ids = select(vec![
        "",
        "c0",
        "c1",
        "c2",
        "c3",
        " c1 ",
        "null",
        "C1",
        "__CLICKID__",
        "%7Bcid%7D",
        "(not%20set)",
        "utm_source=google-play&utm_medium=organic",
        "{click_id}",
        "0",
    ]);
    let campaign = select(vec![1, 1, 2, NARROW, WIDE, OTHER_CHANNEL, 4_000]);
    let lookback = option::weighted(
        0.3,
        select(vec![0, 1, HOUR, 6 * HOUR, DAY, 7 * DAY, 90 * DAY, 90 * DAY + 1]),
    );
    let site = select(vec!["", "", "good", "bad", "__SITE__"]);
    (any::<bool>(), ids, time(), campaign, lookback, any::<bool>(), site, params()).prop_map(
        |(is_click, id, time, campaign, lookback, is_retargeting, site, params)| {
            let touch = if is_click { click } else { impression };
            let draft = touch(id, a_plus(time)).campaign(campaign).site(site);
            let mut draft =
                params.into_iter().fold(draft, |draft, (name, value)| draft.prop(name, value));
            if is_retargeting {
                draft = draft.retargeting();
            }
            match lookback {
                Some(ms) => draft.lookback(ms),
                None => draft,
            }
        },
    )
}

/// Generates some of the params that decisions keep, and others; a macro is absent.
fn params() -> impl Strategy<Value = Vec<(&'static str, &'static str)>> {
    let names = vec!["callback", "callback", "sub1", "adset_id", "ad_name", "channel", "placement"];
    let values = vec!["x", "y, z", "{\"a\":1}", "__CALLBACK_PARAM__", "{name}", "%7Bname%7D", ""];
    vec((select(names), select(values)), 0..4)
}

fn an_activation() -> impl Strategy<Value = Draft> {
    let named = select(vec![
        "",
        "",
        "",
        "c0",
        "c1",
        "c1",
        " c2",
        "none",
        "__CLICKID__",
        "%7Bcid%7D",
        "utm_source=google-play&utm_medium=organic",
    ]);
    let begin = option::weighted(0.3, select(vec![0, 1, SECOND, HOUR, DAY]));
    (event_id(), time(), named, begin).prop_map(|(id, time, named, begin)| {
        let draft = activation(id, a_plus(time)).click_id(named);
        match begin {
            Some(ms) => draft.install_begin(a_plus(time - ms)),
            None => draft,
        }
    })
}

fn an_effect() -> impl Strategy<Value = Draft> {
    let revenue = select(vec!["", "1.0"]);
    (event_id(), time(), revenue)
        .prop_map(|(id, time, revenue)| effect(id, a_plus(time)).revenue(revenue, ""))
}

fn event_id() -> impl Strategy<Value = &'static str> {
    let received = select(vec!["e0", "e1", "e2", "e3", "e4", "e5", "0", "-1", "f"]);
    let absent = select(vec![
        "",
        " NULL",
        "{event_id}",
        "%7Bevent_id%7D",
        "00000000-0000-0000-0000-000000000000",
    ]);
    prop_oneof![3 => received, 1 => absent]
}

/// Generates times in milliseconds relative to A, at and next to the edges of windows.
fn time() -> impl Strategy<Value = i64> {
    let day = select(vec![0, 0, 0, 0, -1, -7, -30, -90, -180, 400]);
    let hour = select(vec![0, 0, 0, -1, -2, -6, -24]);
    let fine = select(vec![
        0,
        0,
        0,
        1,
        -1,
        -SECOND,
        -10 * SECOND,
        1 - 10 * SECOND,
        -MINUTE,
        1 - MINUTE,
        MINUTE,
        5 * MINUTE,
        5 * MINUTE + 1,
    ]);
    (day, hour, fine).prop_map(|(day, hour, fine)| day * DAY + hour * HOUR + fine)
}

/// Generates the device ids of an event, often of one of few devices, in the notations and hashes that apps and
/// networks use. A kind with several values is an array.
fn ids() -> impl Strategy<Value = Vec<(String, String)>> {
    vec(prop_oneof![12 => known_id(), 1 => id_of_nobody(), 1 => malformed_md5()], 0..4)
}

fn kind() -> impl Strategy<Value = &'static str> {
    const OAID: &str = "oaid";
    select(vec![OAID, OAID, OAID, "gaid", "idfa", "idfv", "caid", "imei", "android_id", "mac"])
}

/// Generates an id as such, or hashed. Not every notation has the MD5 of a form that matches.
fn known_id() -> impl Strategy<Value = (String, String)> {
    let device = select(vec![0, 0, 0, 0, 1, 2]);
    (kind(), device, notation(), 0..5u8).prop_map(|(kind, device, notation, hash)| {
        let text = written(kind, device, notation);
        match hash {
            0 => (format!("{kind}_md5"), md5_hex(&text)),
            1 => (format!("{kind}_md5"), md5_hex(text.trim()).to_uppercase()),
            _ => (kind.to_owned(), text),
        }
    })
}

fn notation() -> impl Strategy<Value = u8> {
    prop_oneof![0..2u8, 0..10u8]
}

/// Returns the id of a device in one of ten notations.
fn written(kind: &str, device: usize, notation: u8) -> String {
    let values = match kind {
        "oaid" | "gaid" | "idfa" | "idfv" => [D, "97e7ef3f-e5f2-d0b8-ccfc-f79bbeaf4841", "aNother"],
        // The second is a MEID. A UUID in place of these ids keeps its dashes.
        "imei" => ["868049039501257", "a0000049039501", D],
        "android_id" => ["7b5ca2d57178d2f1", D, "a"],
        "mac" => ["34:d7:12:9b:3a:89", "aa:bb:cc:00:11:22", "34:d7:12:9b:3a:8a"],
        _ => ["c5f1", "c5f2", "C5f3"],
    };
    let value = values[device];
    let other = values[(device + 1) % values.len()];
    let dashless = value.replace(['-', ':'], "");
    match (notation, kind) {
        (0, _) => value.to_owned(),
        (1, _) => value.to_uppercase(),
        (2, "caid") => format!("20230330_{value}"),
        (3, "caid") => format!("20211207_{other},20230330_{value}"),
        (4, "caid") => format!("{value}, 20230330_{other}"),
        (2, _) => dashless,
        (3, _) => dashless.to_uppercase(),
        (4, "mac") => value.replace(':', "-").to_uppercase(),
        (4, _) => format!("{{{value}}}"),
        (5, _) => format!(" {value} "),
        (6, "mac") => value.replace(':', "-"),
        (7, "mac") => value.replace(':', " "),
        (8, "mac") => {
            let groups = [&dashless[..4], &dashless[4..8], &dashless[8..]];
            groups.join(".")
        }
        // In mixed case.
        _ => format!("{}{}", value[..1].to_uppercase(), &value[1..]),
    }
}

/// Generates an id that many devices send, or its MD5.
fn id_of_nobody() -> impl Strategy<Value = (String, String)> {
    let texts = vec![
        "",
        " ",
        "0",
        "-1",
        "NULL",
        "(null)",
        "Nil",
        "Unknown",
        "(Unknown)",
        "N/A",
        "true",
        "00000000",
        "000000000000000",
        "00000000-0000-0000-0000-000000000000",
        "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF",
        "ffffffffffffffffffffffffffffffff",
        "00:00:00:00:00:00",
        "0.0",
        "FF-FF-FF-FF-FF-FF",
        "__OAID__",
        "{{gaid}}",
        "${IDFA}",
        "$imei$",
        "%%ADVERTISING_ID%%",
        "[mac]",
        "<caid>",
        "20230330_",
        "20230330_0",
        "__CAID__,0",
        "20230330_{\"a\",\"b\":1}",
        "%5B1",
        "%7Boaid%7D",
        "(not set)",
        "(Not+set)",
        "NaN",
        "{IMEI2}",
        "d41d8cd98f00b204e9800998ecf8427e",
    ];
    let of_any_kind = (kind(), select(texts));
    let shared = select(vec![
        ("mac", "02:00:00:00:00:00"),
        ("mac", "02-00-00-00-00-00"),
        ("mac", "020000000000"),
        ("android_id", "9774d56d682e549c"),
        ("android_id", "9774D56D682E549C"),
        ("android_id", "A5F5FADDDE9E9F02"),
        ("android_id", "1234567890ABCDEF"),
        ("imei", "004999010640000"),
        ("imei", "812345678912345"),
        ("mac", "52:54:00:12:34:56"),
        ("mac", "0215-b200-0000"),
    ]);
    (prop_oneof![of_any_kind, shared], 0..3u8).prop_map(|((kind, text), hash)| match hash {
        0 => (format!("{kind}_md5"), md5_hex(text)),
        _ => (kind.to_owned(), text.to_owned()),
    })
}

/// Generates values of MD5 forms that never match, and an MD5 of nothing known.
fn malformed_md5() -> impl Strategy<Value = (String, String)> {
    let values = vec![
        "00000000000000000000000000000000",
        "FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF",
        "4b997118e2db4480b95d28cc741b3917",
        "3A6BFF0799C7389F522F3847C33A468F",
        "83e9158a4fb54c0e1ef0b238639a23a",
        "+3e9158a4fb54c0e1ef0b238639a23ae",
        "8d3ebd3654fb46a2832296669cf1b5362",
        "__OAID_MD5__",
        "0",
        "00000000000000000000000000000001",
    ];
    (kind(), select(values)).prop_map(|(kind, value)| (format!("{kind}_md5"), value.to_owned()))
}

/// Generates the address, the user agent, the model, the OS and its version; each may be an unexpanded macro.
fn device() -> impl Strategy<Value = [&'static str; 5]> {
    const ANDROID: (&str, &str) = ("android", "14");
    let model = select(vec!["", "", "X1", "X1", "X2", "__MODEL__"]);
    let os =
        select(vec![ANDROID, ANDROID, ANDROID, ("", ""), ("{os}", "14"), ("ios", "[version]")]);
    (ip(), select(vec!["", "u", "u", "u", "v", "__UA__", "{ua}", "%7Bua%7D"]), model, os)
        .prop_map(|(ip, ua, model, (os, os_version))| [ip, ua, model, os, os_version])
}

/// Generates addresses of few devices as proxies write them, shared addresses, and texts that are not addresses.
fn ip() -> impl Strategy<Value = &'static str> {
    let of_one = select(vec![
        "203.0.113.9",
        "203.0.113.9",
        " 203.0.113.9",
        "203.0.113.9:443",
        "::ffff:203.0.113.9",
        "[::ffff:203.0.113.9]:443",
        "[203.0.113.9]:80",
        "203.0.113.9, 10.0.0.1",
        "203.0.113.9:80,unknown",
    ]);
    let of_another = select(vec![
        "2001:db8::1",
        "[2001:DB8::1]",
        "[2001:db8:0:0::1]:443",
        "2001:db8::1, 203.0.113.9",
        "203.0.113.10",
    ]);
    let shared = select(vec![
        "1.1.1.1",
        "::ffff:1.1.1.1",
        "0.0.0.1",
        "239.1.1.1",
        "::",
        "2001:db8::",
        "::1",
    ]);
    let private = select(vec!["10.0.0.1", "10.0.0.1, 203.0.113.9", "100.64.3.9", "fe80::1"]);
    let no_address =
        select(vec!["", "unknown", "unknown, 203.0.113.9", "__IP__", "{ip}", "203.0.113", "[]"]);
    prop_oneof![6 => of_one, 2 => of_another, 1 => shared, 1 => private, 1 => no_address]
}

/// Settings with the name that a failing test prints.
#[derive(Clone)]
pub struct Rules(pub &'static str, pub Arc<Policy>);

impl fmt::Debug for Rules {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.0)
    }
}

/// Selects one of several settings that together exercise every rule.
pub fn policies() -> impl Strategy<Value = Rules> {
    let plain = |app: &mut AppPolicy| {
        app.probabilistic = false;
        app.fraud = Default::default();
    };
    select(vec![
        Rules("of the contract's cases", rules()),
        Rules("2 clicks", rules_with(|app| app.fraud.clicks_per_device_max = 2)),
        Rules("plain", rules_with(plain)),
        Rules("organic", rules_with(|app| app.reinstall_effects = ReinstallEffects::Organic)),
        Rules("tight", rules_with(tight)),
        Rules("blocking", rules_with(blocking)),
    ])
}

fn tight(app: &mut AppPolicy) {
    app.duplicate_within_ms = 1;
    app.reattribution_window_ms = 60_000;
    app.clock_skew_ms = 0;
    app.effect_window_ms = 3_600_000;
    app.fraud.clicks_per_device_max = 1;
}

fn blocking(app: &mut AppPolicy) {
    app.fraud.block_ips = vec![IpRange { network: [203, 0, 113, 9].into(), prefix_bits: 32 }];
    let device = device_ids::parse_setting("imei:868049039501257").expect("an id");
    app.fraud.block_devices = device.iter().cloned().collect();
    app.fraud.block_sites = vec!["bad".into()];
    app.fraud.allow_sites = vec!["good".into()];
    app.fraud.allow_channels = vec!["other".into()];
    app.fraud.clicks_per_device_max = 3;
    app.duplicate_within_ms = 0;
}
