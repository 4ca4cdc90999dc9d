//! The collector: reports and events over HTTP become rows, and nothing is answered with success that is not in Kafka.

use std::process::Stdio;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;
use testbed::http::{self, Reply};
use testbed::kafka::{Kafka, Message};
use testbed::site::{ONE_CAMPAIGN, SECOND_APP, Site, Topics};
use testbed::{Captured, await_exit, check_exit, check_refused, eventually, free_port, kill, rows};

/// 2025-03-10T12:00:00Z.
pub(super) const NOON_MS: i64 = 1_741_608_000_000;

/// Settings of a collector on this port. Events may be of any time.
pub(super) fn settings(port: u16, more: &str) -> String {
    format!(
        "[attribution]\ncorrection_horizon = \"off\"\n[collect]\nlisten = \"127.0.0.1:{port}\"\n\
         acknowledgement_timeout = \"2s\"\nbody_bytes_max = 4096\n{ONE_CAMPAIGN}{more}"
    )
}

struct Client {
    address: String,
    authorization: String,
}

impl Client {
    fn get(&self, path: &str) -> Reply {
        http::get(&self.address, path).expect("the collector responds")
    }

    fn post(&self, path: &str, body: &str) -> Reply {
        let headers = [("Authorization", &*self.authorization)];
        http::send("POST", &self.address, path, &headers, body.as_bytes())
            .expect("the collector responds")
    }
}

/// A site with a collector, and a client with a token for `app-x`.
fn site(kafka: &Kafka, name: &str) -> (Site, Client) {
    site_with(kafka, name, "")
}

/// Like [`site`], with more settings.
fn site_with(kafka: &Kafka, name: &str, more: &str) -> (Site, Client) {
    let port = free_port();
    let mut site = Site::new(kafka, name, 2, &settings(port, more));
    let (token, entry) = site.new_token(&["--write", "--app", "app-x"]);
    site.change(&settings(port, &format!("{more}{entry}")));
    let client =
        Client { address: format!("127.0.0.1:{port}"), authorization: format!("Bearer {token}") };
    (site, client)
}

fn json(reply: &Reply) -> Value {
    serde_json::from_slice(&reply.body).unwrap_or_else(|_| panic!("{reply:?}"))
}

#[test]
fn reports_and_events_become_rows() {
    let (site, client) = site(Kafka::shared(), "collector.rows");
    let adtrail = site.start();
    let click =
        format!("/click/app-x/toutiao?spreadid=7&click_id=c-1&time={NOON_MS}&oaid={{oaid}}");
    let reply = client.get(&click);
    assert_eq!((reply.status, reply.text().as_str()), (200, "ok"));
    let event = |id: &str, more: &str| {
        let time = NOON_MS + 60_000;
        format!(
            r#"{{"event_id":"{id}","time":{time},"ids":{{"oaid":"1fe9a970-efbb-29e0-0bdd-f5dbbf751ab5"}}{more}}}"#
        )
    };
    let referrer = r#","referrer":"utm_source=x&click_id=c-1""#;
    let reply = client.post("/activation/app-x", &event("a-1", referrer));
    assert_eq!((reply.status, &json(&reply)["accepted"]), (200, &Value::from(1)), "{reply:?}");
    let purchase = event("e-1", r#","name":"purchase","revenue":9.90,"currency":"CNY""#);
    let reply = client.post("/effect/app-x", &format!("{purchase}\n{}", event("e-2", "")));
    let results = json(&reply);
    assert_eq!((reply.status, &results["accepted"]), (200, &Value::from(1)), "{results}");
    assert_eq!(results["results"][1]["code"], "missing_field", "{results}");
    adtrail.await_read(3);
    let rows = rows::parse(&site.download("app-x", "2025-03-10", "2025-03-10", &[]));
    let rows = rows::by_event_id(rows);
    for id in ["a-1", "e-1"] {
        assert_eq!((&*rows[id]["status"], &*rows[id]["click_id"]), ("attributed", "c-1"), "{id}");
    }
    assert_eq!(rows["e-1"]["revenue"], "9.90");
    let of = |name: &str, label: &str| adtrail.metric_of(name, label);
    assert_eq!(of("adtrail_collect_received_total", "kind=\"effect\""), Some(2.0));
    assert_eq!(of("adtrail_collect_produced_total", "kind=\"effect\""), Some(1.0));
    assert_eq!(of("adtrail_collect_refused_total", "kind=\"effect\""), Some(1.0));
    assert_eq!(of("adtrail_collect_unexpanded_macros_total", "parameter=\"oaid\""), Some(1.0));
    assert!(!adtrail.log().contains("1fe9a970"), "{}", adtrail.log());
}

/// From a click on a link to the attributed row, with what Google Play hands to the app.
#[test]
fn a_tracking_link_leads_to_the_store_and_to_a_row() {
    let port = free_port();
    let link = "[[links]]\nid = \"poster\"\nspreadid = 7\n\
                android = \"https://play.google.com/store/apps/details?id=x\"\n\
                fallback = \"https://example.com/\"\n";
    let mut site = Site::new(Kafka::shared(), "collector.go", 2, &settings(port, link));
    let (token, entry) = site.new_token(&["--write", "--all-apps"]);
    site.change(&settings(port, &format!("{link}{entry}")));
    let client =
        Client { address: format!("127.0.0.1:{port}"), authorization: format!("Bearer {token}") };
    let adtrail = site.start();
    let go = |method: &str, path: &str| {
        let android = [("User-Agent", "Mozilla/5.0 (Linux; Android 14; Pixel 8)")];
        http::request(method, &client.address, path, &android).expect("the collector responds")
    };
    let reply = go("GET", "/go/poster?sub1=a&android=https%3A%2F%2Fevil.example");
    let location = reply.header("location").expect("a redirect").to_owned();
    let play = "https://play.google.com/store/apps/details?id=x&referrer=";
    let referrer = location.strip_prefix(play).expect("the store").replace("%3D", "=");
    assert_eq!(reply.status, 302, "{reply:?}");
    assert_eq!(go("HEAD", "/go/poster").status, 302);
    assert_eq!(go("GET", "/go/nothing").status, 404);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis();
    let event = format!(r#"{{"event_id":"a-1","time":{},"referrer":"{referrer}"}}"#, now + 60_000);
    assert_eq!(client.post("/activation/app-x", &event).status, 200);
    adtrail.await_read(2);
    let rows = rows::parse(&site.download("app-x", "2025-01-01", "2100-01-01", &[]));
    let row = &rows::by_event_id(rows)["a-1"];
    assert_eq!((&*row["status"], &*row["match_type"]), ("attributed", "click_id"), "{row:?}");
    assert_eq!(format!("click_id={}", row["click_id"]), referrer);
}

#[test]
fn a_client_of_appsflyer_only_needs_another_host() {
    let (site, client) = site(Kafka::shared(), "collector.appsflyer");
    let adtrail = site.start();
    let device = "6d92078a-8246-4ba4-ae5b-76104861e7dc";
    let click = format!(
        "/v1.0/s2s/click/app/android/app-x?af_media_source=toutiao&af_campaign_id=7&af_click_id=c-1&\
         af_device_id_type=advertising_id&af_device_id_value={device}"
    );
    assert_eq!(client.get(&click).text(), "ok");
    let other = client.get("/v1.0/s2s/click/app/android/app-x?af_media_source=x&af_campaign_id=7");
    let shown = json(&other);
    assert_eq!((other.status, &shown["parameter"]), (400, &"af_media_source".into()));
    assert!(shown["message"].is_string() && shown["message"] == shown["detail"], "{shown}");
    let value = r#"{\"af_revenue\":9.90}"#;
    let event = format!(
        r#"{{"appsflyer_id":"1-2","eventName":"af_purchase","eventValue":"{value}","advertising_id":"{device}"}}"#
    );
    let send = |key: &str| {
        let headers = [("authentication", key)];
        http::send("POST", &client.address, "/inappevent/app-x", &headers, event.as_bytes())
            .expect("the collector responds")
    };
    let other = send("x");
    assert_eq!(other.status, 401);
    assert!(json(&other)["message"].is_string(), "{other:?}");
    let reply = send(client.authorization.trim_start_matches("Bearer "));
    assert_eq!((reply.status, reply.text().as_str()), (200, "OK"), "{reply:?}");
    adtrail.await_read(2);
    let rows = rows::parse(&site.download("app-x", "2025-01-01", "2100-01-01", &[]));
    let row = rows.iter().find(|row| row["event_name"] == "af_purchase").expect("a row");
    assert_eq!((&*row["gaid"], &*row["revenue"]), (device, "9.90"), "{row:?}");
}

/// The signature is that of `printf %s URL | openssl dgst -sha256 -hmac key-1`.
#[test]
fn touches_with_a_bad_signature_are_rejected() {
    let port = free_port();
    let signature = "[channels.signature]\nscheme = \"hmac_sha256\"\nmode = \"enforce\"\n\
                     keys = [{ secret = \"key-1\" }]\n";
    let site = Site::new(Kafka::shared(), "collector.signature", 1, &settings(port, signature))
        .set("collect.public_url", "https://click.example.com");
    let address = format!("127.0.0.1:{port}");
    let adtrail = site.start();
    let signed = |device: &str| {
        format!("/click/app-x/toutiao?spreadid=7&click_id=c-{device}&time={NOON_MS}&oaid={device}")
    };
    let good = format!(
        "{}&signature=599cea1df1906edf4b947af737389e247287dcbf83f94b1ec51f092c1b1cb15a",
        signed("device-1")
    );
    for url in [good, format!("{}&signature=0", signed("device-2")), signed("device-3")] {
        let reply = http::get(&address, &url).expect("the collector responds");
        assert_eq!(reply.status, 200, "{reply:?}");
    }
    let activations = [1, 2, 3].map(|number| {
        let time = NOON_MS + 60_000;
        let value = format!(
            r#"{{"app":"app-x","event_id":"a-{number}","time":{time},"ids":{{"oaid":"device-{number}"}}}}"#
        );
        Message::new("app-x", value)
    });
    Kafka::shared().produce(&site.topics.activations, activations);
    adtrail.await_read(6);
    let rows = rows::parse(&site.download("app-x", "2025-03-10", "2025-03-10", &[]));
    let rows = rows::by_event_id(rows);
    let statuses = ["a-1", "a-2", "a-3"].map(|id| &*rows[id]["status"]);
    assert_eq!(statuses, ["attributed", "organic", "organic"]);
    for outcome in ["valid", "invalid", "missing"] {
        let label = format!("outcome=\"{outcome}\"");
        let counted = adtrail.metric_of("adtrail_collect_signatures_total", &label);
        assert_eq!(counted, Some(1.0), "{outcome}");
    }
    let explain = ["explain", "--app", "app-x", "--activation"];
    for (id, expected) in [("a-2", "its signature is invalid"), ("a-3", "its signature is missing")]
    {
        let explained = site.run(&[&explain[..], &[id]].concat());
        let text = String::from_utf8(explained.stdout).unwrap();
        assert!(text.contains(&format!("bad_signature: {expected}")), "{text}");
    }
}

#[test]
fn a_role_alone_collects_and_refuses_what_it_must() {
    let (site, client) = site_with(Kafka::shared(), "collector.role", SECOND_APP);
    let collector = site.start_role("collect");
    let check = |reply: Reply, status: u16, kind: &str| {
        assert_eq!(
            (reply.status, &json(&reply)["type"]),
            (status, &Value::from(kind)),
            "{reply:?}"
        );
    };
    check(client.get("/click/app-z/toutiao?spreadid=7"), 404, "/problems/unknown-app");
    check(client.get("/click/app-x/other?spreadid=7"), 404, "/problems/unknown-channel");
    check(client.get("/click/app-x/toutiao?click_id=c"), 400, "/problems/bad-parameter");
    check(client.get("/click/app-x/toutiao?spreadid=7"), 400, "/problems/bad-event");
    check(client.get("/nothing"), 404, "/problems/not-found");
    check(client.get("/activation/app-x"), 405, "/problems/method-not-allowed");
    let head = http::request("HEAD", &client.address, "/click/app-x/toutiao?spreadid=7", &[]);
    let head = head.expect("the collector responds");
    assert_eq!((head.status, head.header("allow")), (405, Some("GET, POST")));
    // The token is for `app-x` alone.
    check(client.post("/activation/app-y", "{}"), 404, "/problems/unknown-app");
    check(client.post("/activation/app-x", "{"), 400, "/problems/bad-body");
    check(client.post("/activation/app-x", &"1 ".repeat(1_001)), 400, "/problems/bad-body");
    check(client.post("/activation/app-x", &" ".repeat(5_000)), 413, "/problems/body-too-large");
    let long = "y".repeat(11_000);
    let url = format!("/click/app-x/toutiao?spreadid=7&x={long}");
    check(client.get(&url), 414, "/problems/url-too-long");
    let stranger = Client { address: client.address.clone(), authorization: "Bearer x".to_owned() };
    check(stranger.post("/activation/app-x", "{}"), 401, "/problems/unauthorized");
    let reply =
        client.get(&format!("/impression/app-x/toutiao?spreadid=7&click_id=c&time={NOON_MS}"));
    assert_eq!(reply.status, 200, "{reply:?}");
    let records = Kafka::shared().consume_all(&site.topics.clicks);
    assert_eq!(records.len(), 1);
    assert_eq!(records[0].key.as_deref(), Some(&b"app-x"[..]));
    let touch: Value = serde_json::from_slice(records[0].value.as_deref().unwrap()).unwrap();
    assert_eq!((&touch["type"], &touch["click_id"]), (&"impression".into(), &"c".into()));
    assert_eq!(collector.metric("adtrail_collect_produced_total"), Some(1.0));
    assert_eq!(
        collector.metric_of("adtrail_collect_refused_requests_total", "reason=\"token\""),
        Some(1.0)
    );
}

#[test]
fn requests_beyond_a_rate_are_to_be_repeated() {
    let link = "[[links]]\nid = \"poster\"\nspreadid = 7\nfallback = \"https://example.com/\"\n";
    let (site, client) = site_with(Kafka::shared(), "collector.rates", link);
    let site =
        site.set("collect.events_per_app_max", "1").set("collect.requests_per_address_max", "1");
    let collector = site.start_role("collect");
    // The first event of a second is accepted, and the others are not.
    let event = |id: usize| format!(r#"{{"event_id":"a-{id}","time":{NOON_MS}}}"#);
    let events = (0..20).map(event).collect::<Vec<_>>().join("\n");
    let reply = eventually("the address has a request again", || {
        match client.post("/activation/app-x", &events) {
            reply if json(&reply)["results"].is_array() => Ok(reply),
            reply => Err(format!("{reply:?}")),
        }
    });
    let results = json(&reply);
    assert_eq!((reply.status, reply.header("retry-after")), (429, Some("1")), "{results}");
    let results = results["results"].as_array().unwrap();
    assert!(results.iter().any(|result| result["code"] == "rate_limited"), "{results:?}");
    let reply = eventually("a request is beyond the rate", || {
        let reply = client.get("/nothing");
        if reply.status == 429 { Ok(reply) } else { Err(reply.status) }
    });
    let kind = json(&reply)["type"].clone();
    assert_eq!(
        (kind, reply.header("retry-after")),
        ("/problems/too-many-requests".into(), Some("1"))
    );
    let refused = |name: &str, label: &str| collector.metric_of(name, label).unwrap_or(0.0);
    assert!(refused("adtrail_collect_refused_requests_total", "reason=\"rate\"") >= 1.0);
    // A person goes on in any case, which is counted nevertheless.
    let before = refused("adtrail_collect_refused_requests_total", "reason=\"rate\"");
    eventually("a person is beyond the rate", || {
        let reply = client.get("/go/poster");
        assert_eq!((reply.status, reply.header("location")), (302, Some("https://example.com/")));
        let counted = refused("adtrail_collect_refused_requests_total", "reason=\"rate\"");
        if counted > before { Ok(()) } else { Err(counted) }
    });
    assert!(refused("adtrail_collect_refused_total", "reason=\"rate_limited\"") >= 1.0);
}

/// Every request has a line, which has what the log must not have.
#[test]
fn an_engineer_sees_what_each_request_became() {
    let (site, client) = site(Kafka::shared(), "collector.echo");
    let (_, admin) = site.addresses();
    let [shown, log] = [Captured::empty(), Captured::empty()];
    let mut collector = site
        .command(&["collect", "--echo"])
        .stdin(Stdio::null())
        .stdout(shown.sink())
        .stderr(log.sink())
        .spawn()
        .expect("adtrail starts");
    eventually("the collector is ready", || match http::get(&admin, "/readyz") {
        Ok(reply) if reply.status == 200 => Ok(()),
        reply => Err(format!("{reply:?} {}", log.text())),
    });
    let oaid = "1fe9a970-efbb-29e0-0bdd-f5dbbf751ab5";
    let click = format!(
        "/click/app-x/toutiao?spreadid=7&click_id=c-1&time={NOON_MS}&oaid={oaid}&ip={{ip}}&tiem=1"
    );
    assert_eq!(client.get(&click).status, 200);
    assert_eq!(client.get("/click/app-x/toutiao?click_id=c-2").status, 400);
    assert_eq!(client.get("/click/nobody/toutiao?click_id=c-3").status, 404);
    let event = format!(r#"{{"event_id":"a-1",{}"time":{NOON_MS}}}"#, "\n");
    assert_eq!(client.post("/activation/app-x", &format!("{event} 1")).status, 200);
    kill(collector.id(), "TERM");
    let status = await_exit(&mut collector);
    assert!(status.success(), "{status}: {}", log.text());
    let lines = shown.text();
    let lines: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let [produced, refused, unread, activation, other] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!(
        (&produced["outcome"], &produced["channel"]),
        (&"produced".into(), &"toutiao".into())
    );
    assert_eq!(produced["read"]["oaid"], oaid);
    assert_eq!(produced["event"]["ids"]["oaid"], oaid);
    assert_eq!(
        (&produced["not_replaced"][0], &produced["unknown"][0]),
        (&"ip".into(), &"tiem".into())
    );
    assert!(produced["missing"].as_array().is_some_and(|names| names.contains(&"ua".into())));
    assert_eq!(
        (&refused["code"], &refused["field"]),
        (&"bad_parameter".into(), &"spreadid".into())
    );
    assert_eq!((&refused["read"]["click_id"], &refused["event"]), (&"c-2".into(), &Value::Null));
    assert_eq!(unread["request"], "GET /click/nobody/toutiao?click_id=c-3");
    assert_eq!((&unread["outcome"], &unread["code"]), (&"refused".into(), &"app".into()));
    assert_eq!(
        (&activation["request"], &activation["event"]["app"]),
        (&"activation".into(), &"app-x".into())
    );
    assert_eq!((&other["code"], &other["event"]), (&"not_an_object".into(), &1.into()));
    assert!(
        !log.text().contains(oaid) && !shown.text().contains(&client.authorization),
        "{}",
        log.text()
    );
}

/// The page, and the admin listener for pages of other processes, have no value of a request.
#[test]
fn a_marketer_sees_what_was_wrong_with_the_last_requests_of_a_link() {
    let port = free_port();
    let link = "[[links]]\nid = \"poster\"\nspreadid = 7\nfallback = \"https://example.com/\"\n";
    let site = Site::new(Kafka::shared(), "collector.links", 1, &settings(port, link))
        .set("collect.public_url", "https://click.example.com");
    let adtrail = site.start();
    let address = format!("127.0.0.1:{port}");
    let send = |path: &str| http::get(&address, path).expect("the collector responds").status;
    let oaid = "1fe9a970-efbb-29e0-0bdd-f5dbbf751ab5";
    let click = format!("/click/app-x/toutiao?spreadid=7&click_id=c-1&time={NOON_MS}&oaid={oaid}");
    assert_eq!(send(&format!("{click}&ip={{ip}}")), 200);
    assert_eq!(send("/click/app-x/toutiao?spreadid={spreadid}&click_id=secret"), 400);
    assert_eq!(send("/impression/app-x/toutiao?spreadid=7&click_id=secret&time=secret"), 400);
    assert_eq!(send("/go/poster?sub1=secret"), 302);
    let recent = |query: &str| {
        let reply = adtrail.admin(&format!("/requests?{query}")).expect("adtrail responds");
        assert_eq!(reply.status, 200, "{reply:?}");
        assert!(!reply.text().contains(oaid) && !reply.text().contains("secret"), "{reply:?}");
        json(&reply)
    };
    let of = "app=app-x&channel=toutiao&campaign=7";
    let clicks = recent(&format!("{of}&kind=click"));
    let (first, other) = (&clicks["requests"][0], &clicks["others"][0]);
    assert_eq!((&first["outcome"], &first["not_replaced"][0]), (&"produced".into(), &"ip".into()));
    assert_eq!((&other["outcome"], &other["code"]), (&"refused".into(), &"bad_parameter".into()));
    assert_eq!(clicks["requests"].as_array().map(Vec::len), Some(1), "{clicks}");
    let impressions = recent(&format!("{of}&kind=impression"));
    assert_eq!(impressions["requests"][0]["field"], "time", "{impressions}");
    // The person was redirected, whether or not Kafka had acknowledged the click by then.
    eventually("a click of a person is listed", || {
        let people = recent("link=poster");
        let is_listed = people["requests"][0]["outcome"] == "produced";
        if is_listed { Ok(()) } else { Err(people.to_string()) }
    });
    for query in ["", "app=app-x&channel=toutiao&campaign=8&kind=click", "link=x"] {
        let reply = adtrail.admin(&format!("/requests?{query}")).expect("adtrail responds");
        assert_eq!(reply.status, 404, "{reply:?}");
    }
    let page = |query: &str| {
        let reply = adtrail.get(&format!("/links?{query}")).expect("adtrail responds");
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.text().replace("&#x2f;", "/").replace("&amp;", "&")
    };
    let shown = page(of);
    let command = ["link", "--app", "app-x", "--channel", "toutiao", "--campaign", "7"];
    let link = String::from_utf8(site.run(&command).stdout).expect("UTF-8");
    assert!(shown.contains(&format!(">{}<", link.trim_end())), "{shown}");
    assert!(shown.contains("Macro not replaced: <code>ip</code>"), "{shown}");
    assert!(!shown.contains(oaid) && !shown.contains("secret"), "{shown}");
    let people = page(&format!("{of}&kind=person"));
    assert!(people.contains(">https://click.example.com/go/poster<"), "{people}");
}

/// A broker that does not answer delays a request for `acknowledgement_timeout`, and no longer.
#[test]
fn without_kafka_a_report_is_to_be_repeated() {
    let kafka = Kafka::start_to_hang();
    let (site, client) = site(&kafka, "collector.hang");
    let collector = site.start_role("collect");
    let click = |id: &str| {
        client.get(&format!("/click/app-x/toutiao?spreadid=7&click_id={id}&time={NOON_MS}"))
    };
    assert_eq!(click("c-1").status, 200);
    kafka.pause();
    let reply = click("c-2");
    assert_eq!((reply.status, reply.header("retry-after")), (503, Some("10")), "{reply:?}");
    collector.await_readiness(503, "kafka cannot be reached");
    kafka.resume();
    eventually("a report succeeds again", || match click("c-3") {
        reply if reply.status == 200 => Ok(()),
        reply => Err(format!("{reply:?}")),
    });
}

#[test]
fn a_link_reports_what_it_was_written_for() {
    let url = "[collect]\nlisten = \"127.0.0.1:1\"\npublic_url = \"https://click.example.com/\"\n";
    let settings = format!("{url}{ONE_CAMPAIGN}");
    let site = Site::on(Topics::of("collector.link"), "127.0.0.1:1".to_owned(), &settings);
    let link = |options: &[&str]| {
        let command = ["link", "--app", "app-x", "--channel", "toutiao", "--campaign"];
        site.run(&[&command[..], options].concat())
    };
    let click = link(&["7"]);
    check_exit(&click, 0, &["replace each text in braces"]);
    let shown = String::from_utf8(click.stdout).unwrap();
    let expected =
        "https://click.example.com/click/app-x/toutiao?spreadid=7&click_id={click_id}&time={time}&";
    assert!(shown.starts_with(expected) && shown.ends_with("&callback={callback}\n"), "{shown}");
    let impression = String::from_utf8(link(&["7", "--kind", "impression"]).stdout).unwrap();
    assert_eq!(impression, shown.replace("/click/", "/impression/"));
    check_refused(&link(&["8"]), 2, &["--campaign", "no such campaign"]);
    check_refused(&link(&["7", "--kind", "person"]), 2, &["--kind", "no [[links]]"]);
    let site = Site::on(Topics::of("collector.link"), "127.0.0.1:1".to_owned(), ONE_CAMPAIGN);
    let command = ["link", "--app", "app-x", "--channel", "toutiao", "--campaign", "7"];
    check_refused(&site.run(&command), 2, &["collect.public_url"]);
}

/// The signature is that of Python's `hmac`.
#[test]
fn a_link_for_people_is_signed() {
    let url = "[collect]\nlisten = \"127.0.0.1:1\"\npublic_url = \"https://click.example.com\"\n";
    let link = "[[links]]\nid = \"poster\"\nspreadid = 7\nfallback = \"https://example.com/\"\n";
    let shown = |signature: &str| {
        let settings = format!("{url}{ONE_CAMPAIGN}{signature}{link}");
        let site = Site::on(Topics::of("collector.signed"), "127.0.0.1:1".to_owned(), &settings);
        let command = ["link", "--app", "app-x", "--channel", "toutiao", "--campaign", "7"];
        let people = site.run(&[&command[..], &["--kind", "person"]].concat());
        (String::from_utf8(people.stdout).unwrap(), String::from_utf8(people.stderr).unwrap())
    };
    let signature = |scheme: &str| {
        format!(
            "[channels.signature]\nscheme = \"{scheme}\"\nmode = \"enforce\"\nkeys = [{{ secret = \"key-1\" }}]\n"
        )
    };
    let plain = "https://click.example.com/go/poster";
    assert_eq!(shown(""), (format!("{plain}\n"), String::new()));
    let hex = "bf0c029e7b714545b615baccf6b38f8e2a94a235c21171216e46aa82a0ddeefd";
    let signed = format!("{plain}?signature={hex}\n");
    assert_eq!(shown(&signature("hmac_sha256")), (signed, String::new()));
    let (link, log) = shown(&signature("baidu"));
    assert_eq!(link, format!("{plain}\n"));
    assert!(log.contains("do not publish it without a signature"), "{log}");
}

#[test]
fn a_collector_needs_an_address() {
    let site = Site::new(Kafka::shared(), "collector.address", 1, ONE_CAMPAIGN);
    check_refused(&site.run(&["collect"]), 2, &["collect.listen"]);
    let dialect = "[[channels]]\nid = \"c\"\ndialect = \"genric\"\n";
    let site = Site::on(site.topics.clone(), Kafka::shared().brokers(), &settings(1, dialect));
    check_refused(&site.run(&["check-config"]), 2, &["the nearest is \"generic\""]);
}
