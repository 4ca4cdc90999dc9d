//! Reports of each network: from a link as it is written, and some from a literal URL.

use serde_json::json;

use super::{NOON_MS, check, check_link, filled};
use crate::dialect::link::LinkKind;

const IMEI_MD5: &str = "0c2bd03c39f19845bf54ea0abafae70e";
const OAID: &str = "97e7ef3f-e5f2-d0b8-ccfc-f79bbeaf4841";
const OAID_MD5: &str = "87f8274c36eb73fabcbf143a10eca6a4";
const ANDROID_ID_MD5: &str = "873541edf36da9170af47d5b69e82193";
const IDFA_MD5: &str = "8d3ebd3654fb46a2832296669cf1b536";

#[test]
fn oceanengine() {
    check_link(
        "oceanengine",
        &[
            ("__REQUEST_ID__", "20260310120000ABC"),
            ("__CID__", "17"),
            ("__PROJECT_ID__", "15"),
            ("__PROMOTION_NAME__", "%E6%98%A5+1"),
            ("__CSITE__", "40001"),
            ("__OS__", "0"),
            ("__IMEI__", IMEI_MD5),
            ("__OAID__", OAID),
            ("__ANDROIDID__", ANDROID_ID_MD5),
            ("__TS__", "1773144000123"),
            ("__UA__", "Mozilla%2F5.0%20(Linux)"),
            ("__CALLBACK_PARAM__", "AbC+/dEf=="),
        ],
        json!({
            "click_id": "20260310120000ABC-17", "time": 1_773_144_000_123_u64, "os": "android",
            "ua": "Mozilla/5.0 (Linux)",
            "ids": {"imei_md5": IMEI_MD5, "oaid": OAID, "android_id_md5": ANDROID_ID_MD5},
            "params": {
                "campaign_id": "15", "adset_name": "\u{6625} 1", "creative_id": "17", "channel": "40001",
                "callback": "AbC+/dEf==",
            },
        }),
    );
    // The caller's own order and further parameters do not matter.
    check(
        "oceanengine",
        "ts=1773144000123&sl=zh&idfa=__IDFA__&oaid_md5=87f8274c36eb73fabcbf143a10eca6a4&request_id=r&cid=0",
        json!({
            "click_id": "r", "time": 1_773_144_000_123_u64, "ids": {"oaid_md5": OAID_MD5},
            "params": {"creative_id": "0"},
        }),
    );
}

#[test]
fn tencent() {
    let callback = "http%3A%2F%2Ftracking.e.qq.com%2Fconv%3Fcb%3Da%252Bb%26conv_id%3D1";
    let values = [
        ("__CLICK_ID__", "qq-1"),
        ("__CLICK_TIME__", "1773144000"),
        ("__DEVICE_OS_TYPE__", "ios"),
        ("__MUID__", IDFA_MD5),
        ("__CAID__", "%5B%7B%22caid%22%3A%22abc%22%2C%22version%22%3A%2220230330%22%7D%5D"),
        ("__ADGROUP_ID__", "9"),
        ("__CALLBACK__", callback),
    ];
    let callback = "http://tracking.e.qq.com/conv?cb=a%2Bb&conv_id=1";
    check_link(
        "tencent",
        &values,
        json!({
            "click_id": "qq-1", "time": NOON_MS, "os": "ios",
            "ids": {"idfa_md5": IDFA_MD5, "caid": "20230330_abc"},
            "params": {"adset_id": "9", "callback": callback},
        }),
    );
    check(
        "tencent",
        &format!("click_id=qq-2&time=1773144000&device_os_type=android&muid={IMEI_MD5}"),
        json!({"click_id": "qq-2", "time": NOON_MS, "os": "android", "ids": {"imei_md5": IMEI_MD5}}),
    );
    let query = filled(
        "tencent",
        LinkKind::Impression,
        &[("__IMPRESSION_ID__", "v-1"), ("__IMPRESSION_TIME__", "1773144000")],
    );
    check("tencent", &query, json!({"click_id": "v-1", "time": NOON_MS}));
}

/// The MD5s of click ids are those of `printf %s ID | md5sum`, here of callback, dash and time.
#[test]
fn kuaishou() {
    check_link(
        "kuaishou",
        &[
            ("__CALLBACK__", "https%3A%2F%2Fad.example%2Ftrack%3Fcallback%3Dx"),
            ("__TS__", "1773144000000"),
            ("__IMEI2__", IMEI_MD5),
            ("__OAID2__", OAID_MD5),
            ("__DNAME__", "plan"),
        ],
        json!({
            "click_id": "kuaishou:94b78c8389d56a4e8d1303ffc2b9b3b7", "time": NOON_MS,
            "ids": {"imei_md5": IMEI_MD5, "oaid_md5": OAID_MD5},
            "params": {"campaign_name": "plan", "callback": "https://ad.example/track?callback=x"},
        }),
    );
    // The callback of a person is always the same, so that it does not identify a click alone.
    check(
        "kuaishou",
        "callback=https://ad.example/track?callback%3Dx&ts=1773144000001",
        json!({
            "click_id": "kuaishou:14ee11c74a19dbe4a83041d433d1583c", "time": NOON_MS + 1,
            "params": {"callback": "https://ad.example/track?callback=x"},
        }),
    );
    check(
        "kuaishou",
        "callback=https://ad.example/track?callback%3Dx&ts=0",
        json!({
            "click_id": "kuaishou:38d1eb0bc4b776d87c731b2d84922c59", "time": NOON_MS,
            "params": {"callback": "https://ad.example/track?callback=x", "time_source": "arrival"},
        }),
    );
}

/// The form is that of a report that Kuaishou sent.
#[test]
fn caids_of_kuaishou() {
    let check_caid = |caid: &str, expected: Option<&str>| {
        let mut event = json!({"ip": "203.0.113.9", "time": NOON_MS});
        if let Some(expected) = expected {
            event["ids"] = json!({"caid": expected});
        }
        check("kuaishou", &format!("ip=203.0.113.9&ts=1773144000000&caid={caid}"), event);
    };
    check_caid(
        "[{\"kenyid\":\"a\",\"kenyid_MD5\":\"0\",\"kenyId\":\"a\",\"kenyId_MD5\":\"0\",\"version\":\"20250325\"},\
         {\"kenyid\":\"b\",\"version\":\"20230330\"}]",
        Some("20250325_a,20230330_b"),
    );
    check_caid("20250325_a,20230330_b", Some("20250325_a,20230330_b"));
    // A part of these texts would be one id of all devices.
    for unknown in
        ["[{\"id\":\"a\",\"version\":\"20250325\"}]", "[{\"kenyid\":\"a\",\"version\"", "{}", "[]"]
    {
        check_caid(unknown, None);
    }
}

#[test]
fn baidu() {
    check_link(
        "baidu",
        &[
            ("{{CLICK_ID}}", "b-1"),
            ("{{TS}}", "1773144000000"),
            ("{{OAID}}", OAID),
            ("{{UNIT_ID}}", "3"),
            ("{{CALLBACK_URL}}", "https%3A%2F%2Fals.baidu.com%2Fcb"),
        ],
        json!({
            "click_id": "b-1", "time": NOON_MS, "ids": {"oaid": OAID},
            "params": {"adset_id": "3", "callback": "https://als.baidu.com/cb"},
        }),
    );
}

#[test]
fn bilibili() {
    check_link(
        "bilibili",
        &[
            ("__TRACKID__", "t-1"),
            ("__TS__", "1773144000000"),
            ("__OS__", "1"),
            ("__IDFAMD5__", IDFA_MD5),
            ("__OAIDMD5__", OAID_MD5),
            ("__CREATIVEID__", "5"),
        ],
        json!({
            "click_id": "bilibili:f3e90ce87a25538f5a4be79a0a7c0fa5", "time": NOON_MS, "os": "ios",
            "ids": {"idfa_md5": IDFA_MD5, "oaid_md5": OAID_MD5},
            "params": {"creative_id": "5", "callback": "t-1"},
        }),
    );
}

/// The MD5 of a token is that of `printf %s token | md5sum`.
#[test]
fn xiaomi_and_huawei() {
    let expected = |network: &str, name: &str| {
        json!({
            "click_id": format!("{network}:94a08da1fecbb6e8b46990538c7b50b2"), "time": NOON_MS, "ids": {"oaid": OAID},
            "params": {name: "1", "callback": "token"},
        })
    };
    let common = [("__CALLBACK__", "token"), ("__TS__", "1773144000000"), ("__OAID__", OAID)];
    check_link(
        "xiaomi",
        &[&common[..], &[("__ADID__", "1")]].concat(),
        expected("xiaomi", "ad_id"),
    );
    check_link(
        "huawei",
        &[&common[..], &[("__GROUP_ID__", "1")]].concat(),
        expected("huawei", "adset_id"),
    );
}

#[test]
fn oppo() {
    check_link(
        "oppo",
        &[("$req$", "q-1"), ("__OAID__", OAID), ("$ad$", "1"), ("$m$", "PHM110")],
        json!({
            "click_id": "q-1", "time": NOON_MS, "ids": {"oaid": OAID}, "device_model": "PHM110",
            "params": {"ad_id": "1", "time_source": "arrival"},
        }),
    );
}

#[test]
fn vivo_and_honor() {
    check_link(
        "vivo",
        &[
            ("__REQUESTID__", "r-1"),
            ("__CREATIVEID__", "5"),
            ("__IMEI__", IMEI_MD5),
            ("__OAID__", OAID_MD5),
        ],
        json!({
            "click_id": "vivo:0995a149e154017cbb037cf4497ea07e", "time": NOON_MS,
            "ids": {"imei_md5": IMEI_MD5, "oaid_md5": OAID_MD5},
            "params": {"callback": "r-1", "creative_id": "5", "time_source": "arrival"},
        }),
    );
    check_link(
        "honor",
        &[("{track_id}", "t-1"), ("{advertiser_id}", "9"), ("{oaid}", OAID)],
        json!({
            "click_id": "honor:f3e90ce87a25538f5a4be79a0a7c0fa5", "time": NOON_MS, "ids": {"oaid": OAID},
            "params": {"callback": "t-1", "account_id": "9", "time_source": "arrival"},
        }),
    );
}

#[test]
fn zhihu() {
    assert!(filled("zhihu", LinkKind::Click, &[]).starts_with("zhs2s=1&"));
    check_link(
        "zhihu",
        &[
            ("__SESSIONID__", "z-1"),
            ("__TS__", "1773144000"),
            ("__IDFA__", IDFA_MD5),
            ("__OS__", "1"),
            ("__IP__", "203.0.113.9"),
            ("__UA__", "osee2%20zhihu"),
        ],
        json!({
            "click_id": "z-1", "time": NOON_MS, "os": "ios", "ip": "203.0.113.9", "ua": "osee2 zhihu",
            "ids": {"idfa_md5": IDFA_MD5},
        }),
    );
}

#[test]
fn weibo_and_xiaohongshu() {
    check_link(
        "weibo",
        &[
            ("{IMP}", "i-1"),
            ("{clicktime}", "1773144000000"),
            ("{oaid_MD5}", OAID_MD5),
            ("{GX_CAID}", "20230330_a,20220111_b"),
            ("{devicetype}", "android"),
            ("{ad_id}", "3"),
        ],
        json!({
            "click_id": "weibo:800ba394e806c049c98cf4b570d04c72", "time": NOON_MS, "os": "android",
            "ids": {"oaid_md5": OAID_MD5, "caid": "20230330_a,20220111_b"},
            "params": {"callback": "i-1", "ad_id": "3"},
        }),
    );
    check_link(
        "xiaohongshu",
        &[("__CLICK_ID__", "x-1"), ("__OAID_MD5__", OAID_MD5)],
        json!({
            "click_id": "xiaohongshu:66506113b68a4a541e04ca99ae2f7b4f", "time": NOON_MS,
            "ids": {"oaid_md5": OAID_MD5},
            "params": {"callback": "x-1", "time_source": "arrival"},
        }),
    );
}

/// The values are the examples of Unity's page, in which the system is its version.
#[test]
fn unity() {
    let check_ifa = |ifa: &str, kind: &str, os_version: &str| {
        let values =
            [("{ifa}", ifa), ("{gamer_id}", "g"), ("{os}", os_version), ("{ip}", "203.0.113.9")];
        let expected = json!({
            "time": NOON_MS, "ids": {kind: ifa}, "os_version": os_version, "ip": "203.0.113.9",
            "params": {"gamer_id": "g", "time_source": "arrival"},
        });
        check_link("unity", &values, expected);
    };
    check_ifa("1234ABCD-1234-5678-ABCD-1A2B3C4D5E6F", "idfa", "9.2.1");
    check_ifa("1234abcd-1234-5678-abcd-1a2b3c4d5e6f", "gaid", "4.4.0");
}

#[test]
fn tiktok() {
    check_link(
        "tiktok",
        &[
            ("__CALLBACK_PARAM__", "token"),
            ("__GAID__", "6d92078a-8246-4ba4-ae5b-76104861e7dc"),
            ("__AID_NAME__", "group"),
            ("__PLACEMENT__", "TikTok"),
            ("__OS__", "0"),
        ],
        json!({
            "click_id": "tiktok:94a08da1fecbb6e8b46990538c7b50b2", "time": NOON_MS, "os": "android",
            "ids": {"gaid": "6d92078a-8246-4ba4-ae5b-76104861e7dc"},
            "params": {"adset_name": "group", "channel": "TikTok", "callback": "token", "time_source": "arrival"},
        }),
    );
}
