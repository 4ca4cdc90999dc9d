//! Section 1: which id values are equal, and which are placeholders that identify no device.

use attribution::facts::device_ids::hex;
use md5::{Digest, Md5};

use super::check_credit;
use super::support::facts::{A, a_plus, activation, click};

/// Checks whether a click with one id matches an activation with the other.
#[track_caller]
fn check(of_click: (&str, &str), of_activation: (&str, &str), matches: bool) {
    let facts = [
        click("c1", "03-10T10:00").only(of_click.0, of_click.1),
        activation("a", A).only(of_activation.0, of_activation.1),
    ];
    check_credit(facts, if matches { "c1" } else { "organic" });
}

fn md5(text: &str) -> String {
    hex(&Md5::digest(text))
}

#[test]
fn the_test_vectors_of_the_contract_match() {
    let oaid = ("oaid", "1fe9a970-efbb-29e0-0bdd-f5dbbf751ab5");
    check(("oaid_md5", "83e9158a4fb54c0e1ef0b238639a23ae"), oaid, true);
    check(oaid, ("oaid_md5", "83E9158A4FB54C0E1EF0B238639A23AE"), true);
    let imei = ("imei", "868049039501257");
    check(("imei_md5", "8d3ebd3654fb46a2832296669cf1b536"), imei, true);
    check(("oaid_md5", "8d3ebd3654fb46a2832296669cf1b536"), imei, false);
}

#[test]
fn case_19_android_id_matches_by_the_md5_of_either_form() {
    let raw = ("android_id", "9774d56d682e549c");
    check(("android_id_md5", &md5("9774D56D682E549C")), raw, true);
    check(("android_id_md5", &md5("9774d56d682e549c")), raw, true);
    check(("android_id_md5", &md5("9774D56d682e549c")), raw, false);
    check(("android_id", "9774D56D682E549C"), raw, true);
}

#[test]
fn idfa_is_upper_case_with_dashes() {
    let idfa = ("idfa", "1FE9A970-EFBB-29E0-0BDD-F5DBBF751AB5");
    check(("idfa", "1fe9a970efbb29e00bddf5dbbf751ab5"), idfa, true);
    check(("idfa_md5", &md5(idfa.1)), idfa, true);
    check(("idfa_md5", &md5(&idfa.1.to_lowercase())), idfa, false);
}

#[test]
fn gaid_and_oaid_are_lower_case_uuids_or_verbatim() {
    check(
        ("gaid", "1FE9A970EFBB29E00BDDF5DBBF751AB5"),
        ("gaid", "1fe9a970-efbb-29e0-0bdd-f5dbbf751ab5"),
        true,
    );
    check(("oaid", " no-uuid "), ("oaid", "no-uuid"), true);
    check(("oaid", "x-1"), ("gaid", "x-1"), false);
}

#[test]
fn mac_has_no_separators_and_no_case() {
    check(("mac", "AA:BB:CC:00:11:22"), ("mac", "aabb.cc00.1122"), true);
    check(("mac", "AA-BB-CC-00-11-22"), ("mac", "aabbcc001123"), false);
    check(("mac_md5", &md5("aabbcc001122")), ("mac_md5", &md5("aabbcc001122")), true);
}

#[test]
fn case_17_placeholder_ids_do_not_match() {
    let zeros = "00000000-0000-0000-0000-000000000000";
    check(("idfa", zeros), ("idfa", zeros), false);
    for placeholder in ["", " ", "0", "null", "NULL", "Unknown", "undefined", "none", "0-0:0"] {
        check(("oaid", placeholder), ("oaid", placeholder), false);
        check(("caid", placeholder), ("caid", placeholder), false);
    }
    for placeholder in ["", "0", "null", "NULL", "unknown", "UNKNOWN", "undefined", "NONE"] {
        let md5 = md5(placeholder);
        check(("imei_md5", &md5), ("imei_md5", &md5), false);
    }
    check(("imei_md5", &md5("Unknown")), ("imei_md5", &md5("Unknown")), true);
    for zeros in ["0".repeat(12), "0".repeat(15), "0".repeat(16), "0".repeat(32)] {
        check(("imei_md5", &md5(&zeros)), ("imei_md5", &md5(&zeros)), false);
    }
    check(("mac", "00.00.00.00.00.00"), ("mac", "0000.0000.0000"), false);
    check(("mac_md5", &md5("00:00:00:00:00:00")), ("mac_md5", &md5("00:00:00:00:00:00")), false);
    check(("imei_md5", "83e9158a"), ("imei_md5", "83e9158a"), false);
    check(("serial", "x-1"), ("serial", "x-1"), false);
}

#[test]
fn click_ids_are_trimmed_and_may_be_placeholders() {
    let check = |of_click: &str, of_activation: &str, expected: &str| {
        let facts = [
            click(of_click, "03-10T10:00").without_ids(),
            activation("a", A).without_ids().click_id(of_activation),
        ];
        check_credit(facts, expected);
    };
    check(" c1 ", "c1", "c1");
    check("c1", " c1", "c1");
    check("c1", "C1", "organic");
    check("null", "null", "organic");
    check("", "", "organic");
}

#[test]
fn any_of_several_ids_is_enough() {
    let two_ids = click("c1", "03-10T10:00").only("imei", "1").and("oaid", "x");
    check_credit([two_ids.clone(), activation("a", A).only("oaid", "x").and("imei", "2")], "c1");
    check_credit([two_ids.clone(), activation("a", A).only("imei", "1")], "c1");
    check_credit([two_ids, activation("a", A).only("oaid", "y").and("imei", "2")], "organic");
}

#[test]
fn raw_and_hashed_ids_form_one_install_chain() {
    let raw = activation("a", A).only("imei", "868049039501257");
    let hashed = activation("b", a_plus(1)).only("imei_md5", "8D3EBD3654FB46A2832296669CF1B536");
    super::check([raw, hashed], &["a: install organic", "b: duplicate duplicate"]);
}
