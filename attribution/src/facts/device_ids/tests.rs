use md5::{Digest, Md5};

use super::*;

type Id<'a> = (&'a str, &'a str);

fn pairs(ids: &[Id<'_>]) -> Pairs {
    ids.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
}

fn md5(text: &str) -> String {
    hex(&Md5::digest(text))
}

/// Compares an id of a touch with one of an activation.
#[track_caller]
fn check(touch: Id<'_>, activation: Id<'_>, expected: Option<IdKind>) {
    let touch_ids = DeviceIds::of_touch(&pairs(&[touch]));
    let shared = touch_ids.shared(&DeviceIds::of_app_event(&pairs(&[activation])));
    assert_eq!(shared, expected, "{touch:?} and {activation:?}");
}

#[test]
fn raw_ids_match_in_their_raw_form() {
    let uuid = "1fe9a970-efbb-29e0-0bdd-f5dbbf751ab5";
    for kind in [IdKind::Oaid, IdKind::Gaid, IdKind::Idfa] {
        let name = kind.name();
        for same in [" 1FE9A970EFBB29E00BDDF5DBBF751AB5 ", &uuid.to_uppercase()] {
            check((name, uuid), (name, same), Some(kind));
            check((name, same), (name, uuid), Some(kind));
        }
    }
    check(("oaid", uuid), ("gaid", uuid), None);
    check(("imei", "\u{c4}\u{d6}"), ("imei", "\u{e4}\u{f6}"), Some(IdKind::Imei));
    for id in ["1234567890abcdef", "020000000000", "004999010640000"] {
        check(("android_id", id), ("android_id", id), Some(IdKind::AndroidId));
    }
    for same in ["aabbcc001122", "AA bb CC 00 11 22", "AA-BB-CC-00-11-22"] {
        check(("mac", "AA:bb:CC:00:11:22"), ("mac", same), Some(IdKind::Mac));
    }
    for same in ["abc", "20230330_abc", "20211207_x, 20230330_abc"] {
        check(("caid", "20220111_abc"), ("caid", same), Some(IdKind::Caid));
    }
    check(("caid", "2022_abc"), ("caid", "abc"), None);
    check(("idfv", uuid), ("idfv", uuid), Some(IdKind::Idfv));
}

#[test]
fn md5_values_of_the_test_vectors_match() {
    for (name, raw, digest) in [
        ("oaid", "1fe9a970-efbb-29e0-0bdd-f5dbbf751ab5", "83e9158a4fb54c0e1ef0b238639a23ae"),
        ("oaid", "97e7ef3f-e5f2-d0b8-ccfc-f79bbeaf4841", "87f8274c36eb73fabcbf143a10eca6a4"),
        ("imei", "868049039501257", "8d3ebd3654fb46a2832296669cf1b536"),
        ("android_id", "7b5ca2d57178d2f1", "873541edf36da9170af47d5b69e82193"),
        ("mac", "34:d7:12:9b:3a:89", "df97bc5021e14256e141b2f036df5a3c"),
        ("mac", "34:d7:12:9b:3a:89", "4d0433eb614f5d5ad409a65395426cbe"),
    ] {
        let name_of_md5 = format!("{name}_md5");
        for digest in [digest, &digest.to_uppercase()] {
            check((name, raw), (&name_of_md5, digest), IdKind::from_name(name));
            check((&name_of_md5, digest), (name, raw), IdKind::from_name(name));
        }
    }
}

#[test]
fn an_activation_meets_more_forms_than_a_touch() {
    let received = "1FE9A970-efbb-29e0-0bdd-f5dbbf751ab5";
    let dashless = received.replace('-', "");
    for (name, text) in [
        ("oaid", received),
        ("oaid", &received.to_uppercase()),
        ("oaid", &dashless),
        ("oaid", &dashless.to_lowercase()),
        ("gaid", &dashless.to_uppercase()),
        ("idfa", &received.to_lowercase()),
        ("idfv", received),
        ("idfv", &dashless.to_lowercase()),
    ] {
        let (kind, name_of_md5) = (IdKind::from_name(name), format!("{name}_md5"));
        check((&name_of_md5, &md5(text)), (name, received), kind);
        check((name, received), (&name_of_md5, &md5(text)), None);
    }
    // The lower-case form with dashes is the raw form of an OAID, but of this one not as received.
    check(("oaid_md5", &md5(&received.to_lowercase())), ("oaid", &dashless), Some(IdKind::Oaid));
    check(("oaid_md5", &md5(&received.to_uppercase())), ("oaid", &dashless), None);
    let lower = "34:d7:12:9b:3a:89";
    for text in [lower, &lower.replace(':', ""), "34D7129B3A89"] {
        check(("mac_md5", &md5(text)), ("mac", "34-D7-12-9B-3A-89"), Some(IdKind::Mac));
    }
    check(("caid_md5", &md5("20230330_abc")), ("caid", "20230330_abc"), Some(IdKind::Caid));
    check(("caid_md5", &md5("abc")), ("caid", "20230330_abc"), Some(IdKind::Caid));
}

#[test]
fn further_forms_are_searched_only_for_ids_received_as_md5() {
    let raw = pairs(&[("oaid", "1fe9a970-efbb-29e0-0bdd-f5dbbf751ab5"), ("imei", "A1")]);
    let ids = DeviceIds::of_app_event(&raw);
    let count = |received: &str| {
        let received = pairs(&[(received, &md5("x"))]);
        ids.searched(DeviceIds::of_touch(&received).received_md5()).count()
    };
    assert_eq!(
        [count("oaid"), count("mac_md5"), count("imei_md5"), count("oaid_md5")],
        [2, 2, 3, 5]
    );
    assert_eq!(ids.iter().count(), 6);
    for (index, id) in ids.iter().enumerate() {
        assert_eq!(ids.position(id), Some(index));
    }
}

/// Facts with raw ids find each other without further forms.
#[test]
fn equal_raw_ids_are_found_without_further_forms() {
    let uuid = "1fe9a970-efbb-29e0-0bdd-f5dbbf751ab5";
    let texts = [
        uuid,
        "34:d7:12:9b:3a:89",
        "20230330_ab-C",
        "20230330_20230330_ab-C",
        "straße",
        "o\u{fb00}ice",
        "\u{212a}elvin",
    ];
    let forms = |text: &str| {
        let cases = [text.to_owned(), text.to_lowercase(), text.to_uppercase()];
        let without = |letter| cases.iter().map(move |case| case.replace(letter, ""));
        let stripped: Vec<_> = without('-').chain(without(':')).collect();
        [cases.to_vec(), stripped].concat()
    };
    let texts: Vec<String> = texts.into_iter().flat_map(forms).collect();
    let mut shared = 0;
    for kind in IdKind::ALL {
        let of = |text: &str| {
            let received = pairs(&[(kind.name(), text)]);
            [DeviceIds::of_touch(&received), DeviceIds::of_app_event(&received)]
        };
        for (a, b) in texts.iter().flat_map(|a| texts.iter().map(move |b| (a, b))) {
            let ([_, a_ids], b_ids) = (of(a), of(b));
            let is_shared = |b: &&DeviceIds| b.iter().any(|id| a_ids.iter().any(|it| it == id));
            for b_ids in b_ids.iter().filter(is_shared) {
                shared += 1;
                assert_eq!(a_ids.shared(b_ids), Some(kind), "{a:?} {b:?}");
                let is_found = a_ids.searched(b_ids.received_md5()).any(|id| b_ids.contains(id));
                assert!(is_found, "{kind:?} {a:?} {b:?}");
            }
        }
    }
    assert!(shared > 1_000, "{shared}");
}

#[test]
fn values_that_identify_nobody_are_skipped() {
    for id in [
        ("oaid", " "),
        ("oaid", "Unknown"),
        ("oaid", "__OAID__"),
        ("mac", "02:00:00:00:00:00"),
        ("mac", "02-00-00-00-00-00"),
        ("mac", "FF FF FF FF FF FF"),
        ("mac", "0.0"),
        ("android_id", "9774D56D682E549C"),
        ("android_id", "A5F5FADDDE9E9F02"),
        ("android_id", "1234567890ABCDEF"),
        ("mac", "52-54-00-12-34-56"),
        ("mac", "0215.B200.0000"),
        ("imei", " 004999010640000"),
        ("imei", "00499901064000"),
        ("imei", "812345678912345"),
        ("idfa", "D41D8CD98F00B204E9800998ECF8427E"),
        ("caid", "20230330_d41d8cd98f00b204e9800998ecf8427e"),
        ("oaid", "%7Boaid%7D"),
        ("oaid_md5", &md5("__OAID__")),
        ("imei_md5", &md5("812345678912345")),
        ("caid", "20230330_, 0"),
        ("caid", r#"[{"kenyid":"a","version":"20250325"},{"kenyid":"b","version":"20230330"}]"#),
        ("caid", r#"20250325_{"kenyid":"a"}"#),
        ("caid", "%5B%7B%22kenyid%22:%22a%22,%22version%22:%2220250325%22%7D%5D"),
        ("imei_md5", &md5("000000000000000")),
        ("mac_md5", &md5("02:00:00:00:00:00")),
        ("imei_md5", "83e9158a4fb54c0e1ef0b238639a23a"),
        ("imei_md5", "+3e9158a4fb54c0e1ef0b238639a23ae"),
        ("serial", "abc"),
    ] {
        assert!(DeviceIds::of_touch(&pairs(&[id])).is_empty(), "{id:?}");
        assert!(DeviceIds::of_app_event(&pairs(&[id])).is_empty(), "{id:?}");
    }
    assert_eq!(click_id(" __CLICKID__ "), None);
    assert_eq!(click_id("0"), None);
    assert_eq!(click_id("utm_source=google-play&utm_medium=organic"), None);
    assert_eq!(click_id(" c1 "), Some("c1"));
}

#[test]
fn an_id_with_several_values_matches_by_each() {
    let two = pairs(&[("oaid", "a1"), ("oaid", "a2")]);
    let touch = |value| DeviceIds::of_touch(&pairs(&[("oaid", value)]));
    for value in ["a1", "a2"] {
        assert_eq!(touch(value).shared(&DeviceIds::of_app_event(&two)), Some(IdKind::Oaid));
    }
    assert!(touch("a3").contradicts(&DeviceIds::of_app_event(&two)));
}

#[test]
fn different_values_of_one_kind_contradict() {
    let digest = md5("y");
    let ids = |name, value| {
        let ids = pairs(&[(name, value)]);
        (DeviceIds::of_touch(&ids), DeviceIds::of_app_event(&ids))
    };
    let (a, same) = ids("idfa", "1fe9a970-efbb-29e0-0bdd-f5dbbf751ab5");
    assert!(a.contradicts(&ids("idfa", "2fe9a970-efbb-29e0-0bdd-f5dbbf751ab5").1));
    assert!(!a.contradicts(&same));
    assert!(!a.contradicts(&ids("idfv", "x").1));
    // A touch's IDFV has no MD5 form.
    assert!(!ids("idfv", "x").0.contradicts(&ids("idfv_md5", &digest).1));
    assert!(ids("idfv_md5", &digest).0.contradicts(&ids("idfv", "x").1));
}
