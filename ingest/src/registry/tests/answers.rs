//! The result of each kind of response, and the requests that are sent.

use super::server::{Reply, Server, ok, schema, unknown};
use super::*;

const GUID: SchemaKey = SchemaKey::Guid([0xab; 16]);

#[test]
fn a_schema_is_found_by_id_and_by_guid() {
    let server = Server::start(|request| match request.path.as_str() {
        "/apis/ccompat/v7/schemas/ids/7" => schema("\"string\""),
        "/apis/ccompat/v7/schemas/guids/abababab-abab-abab-abab-abababababab" => schema("\"int\""),
        _ => Reply::Status(500, String::new()),
    });
    for path in ["/apis/ccompat/v7", "/apis/ccompat/v7/"] {
        let fixture = Fixture::for_urls(&[server.url() + path]);
        let registry = fixture.start("");
        check_ready(&registry, id(7), "\"string\"");
        check_ready(&registry, GUID, "\"int\"");
        let health = registry.health();
        assert!(health.is_answering && !health.is_blocking());
        assert_eq!(health.requests(RegistryOutcome::Found), 2);
    }
    // Cached schemas are not requested again.
    assert_eq!(server.requests().len(), 4);
}

#[test]
fn a_lookup_never_blocks() {
    // Connections are accepted by the kernel, and nothing answers.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let registry = Fixture::for_urls(&[url]).start("");
    check_waiting(&registry, id(7));
    assert!(matches!(registry.wait(id(7), Duration::from_millis(20)), SchemaLookup::Waiting));
    assert_eq!(registry.health().waiting, 1);
}

#[test]
fn unusable_schemas_are_bad() {
    let server = Server::start(|request| match request.path.as_str() {
        "/schemas/ids/1" => ok(r#"{"schema":"message M {}","schemaType":"PROTOBUF"}"#),
        "/schemas/ids/2" => schema("5"),
        "/schemas/ids/3" => schema("{"),
        _ => Reply::Huge(50 << 20),
    });
    let registry = Fixture::for_servers(&[&server]).start("");
    check_unusable(&registry, id(1), UnusableKind::Bad, "type is \"PROTOBUF\"");
    check_unusable(&registry, id(2), UnusableKind::Bad, "not a schema");
    check_unusable(&registry, id(3), UnusableKind::Bad, "not a schema");
    check_unusable(&registry, id(4), UnusableKind::Bad, "longer than 1 MiB");
    assert!(registry.health().is_answering);
    assert_eq!(registry.health().requests(RegistryOutcome::Unusable), 2);
}

#[test]
fn a_schema_of_almost_the_maximum_length_is_accepted() {
    let text = || format!("\"{}\"", "x".repeat((1 << 20) - 64));
    let server = Server::start(move |_| schema(&text()));
    check_ready(&Fixture::for_servers(&[&server]).start(""), id(1), &text());
}

#[test]
fn an_unknown_schema_is_requested_again_after_its_retry_interval() {
    let server = Server::start(|_| unknown());
    let registry = Fixture::for_servers(&[&server]).start("unknown_schema_retry = \"1s\"");
    check_unusable(&registry, id(7), UnusableKind::Unknown, "has no such schema");
    assert_eq!(server.requests().len(), 1);
    server.set(|_| schema("\"string\""));
    wait_until("it is requested again", || {
        matches!(registry.look_up(id(7)), SchemaLookup::Ready(_))
    });
    assert_eq!(server.requests().len(), 2);
}

#[test]
fn ids_that_no_registry_can_have_are_not_requested() {
    let server = Server::start(|_| Reply::Status(500, String::new()));
    let registry = Fixture::for_servers(&[&server]).start("");
    check_unusable(&registry, id(1 << 31), UnusableKind::Unknown, "ids go to 2147483647");
    check_unusable(&registry, id(u32::MAX), UnusableKind::Unknown, "ids go to 2147483647");
    assert_eq!(server.requests().len(), 0);
}

#[test]
fn logins_are_sent() {
    let server = Server::start(|_| schema("\"string\""));
    let sent = |lines: &str| {
        check_ready(&Fixture::for_servers(&[&server]).start(lines), id(1), "\"string\"");
        server.requests().pop().unwrap().header("authorization").map(str::to_owned)
    };
    assert_eq!(sent(""), None);
    let basic = sent("user = \"Aladdin\"\npassword = \"open sesame\"");
    assert_eq!(basic.as_deref(), Some("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="));
    assert_eq!(sent("token = \"t-1\"").as_deref(), Some("Bearer t-1"));
    let request = server.requests().pop().unwrap();
    let accepted = request.header("accept").unwrap();
    assert!(accepted.starts_with("application/vnd.schemaregistry.v1+json"), "{accepted}");
}

/// Credentials go only to the hosts in the settings, and responses of other hosts are not trusted.
#[test]
fn a_redirect_is_followed_within_the_host_only() {
    let other = Server::start(|_| schema("\"int\""));
    let elsewhere = other.url() + "/schemas/ids/1";
    let server = Server::start(move |request| match request.path.as_str() {
        "/schemas/ids/1" => Reply::Redirect(elsewhere.clone()),
        "/schemas/ids/2" => Reply::Redirect("/moved".into()),
        "/schemas/ids/3" => Reply::Redirect("/schemas/ids/3".into()),
        "/moved" => schema("\"string\""),
        path => panic!("{path}"),
    });
    let registry = Fixture::for_servers(&[&server]).start("token = \"t\"");
    check_ready(&registry, id(2), "\"string\"");
    check_waiting(&registry, id(1));
    let refused = || registry.health().requests(RegistryOutcome::Refused);
    wait_until("the redirect is refused", || refused() > 0);
    check_waiting(&registry, id(1));
    assert_eq!(other.requests().len(), 0);
    let before = server.requests().len();
    check_waiting(&registry, id(3));
    wait_until("the redirect loop is refused", || {
        server.paths()[before..].contains(&"/schemas/ids/3".into())
    });
    check_waiting(&registry, id(3));
}

#[test]
fn metrics_exist_from_the_start_and_count_requests() {
    let server = Server::start(|_| unknown());
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    let fixture = Fixture::for_servers(&[&server]);
    let registry = metrics::with_local_recorder(&recorder, || fixture.start(""));
    let has = |series: &str| handle.render().lines().any(|line| line == series);
    for outcome in RegistryOutcome::ALL {
        let series = format!("adtrail_registry_requests_total{{outcome=\"{}\"}} 0", outcome.name());
        assert!(has(&series), "{series}");
    }
    assert!(has("adtrail_registry_waiting_schemas 0") && has("adtrail_registry_up 1"));
    check_unusable(&registry, id(7), UnusableKind::Unknown, "");
    assert!(has("adtrail_registry_requests_total{outcome=\"unknown\"} 1"));
    assert!(has("adtrail_registry_waiting_schemas 0"));
}
