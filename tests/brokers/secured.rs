//! The service on a broker with authentication: valid and invalid passwords and certificates.

use std::fs;

use testbed::check_exit;
use testbed::kafka::{Message, PASSWORD, Secured, USER};
use testbed::site::{ONE_CAMPAIGN, Site, Topics};

/// Returns a site on one of the broker's listeners, without topics.
fn site(name: &str, brokers: &str, librdkafka: &str) -> Site {
    let settings = format!("{ONE_CAMPAIGN}\n[kafka.librdkafka]\n{librdkafka}");
    Site::on(Topics::of(name), brokers.to_owned(), &settings)
}

/// Returns settings of TLS; `client` is the name of the client's certificate.
fn tls(authority: &str, client: Option<&str>) -> String {
    let file = |name: &str| Secured::shared().file(name).display().to_string();
    let mut text = format!("security.protocol = 'SSL'\nssl.ca.location = '{}'\n", file(authority));
    if let Some(client) = client {
        let (certificate, key) = (file(&format!("{client}.pem")), file(&format!("{client}.key")));
        text += &format!(
            "ssl.certificate.location = '{certificate}'\nssl.key.pem = {{ file = '{key}' }}\n"
        );
    }
    text
}

/// Warnings that may be logged: on a busy machine the first handshake can take more than the timeout of three seconds.
const WARNINGS: [&str; 4] = [
    "produced to the dead-letter topic",
    "kafka does not answer any more",
    "kafka does not answer, retrying",
    "the watermarks of the partitions cannot be fetched",
];

/// Checks events, dead letters and commands, so that consumer, producers and admin client authenticate.
#[track_caller]
fn check_works(site: &Site) {
    for topic in site.topics.all() {
        // adtrail creates the topics of dead letters through the secured listener.
        Secured::shared().kafka.create_topic(topic, 1, &[]);
    }
    let topic = &*site.topics.activations;
    let now = jiff::Timestamp::now();
    let good = format!(r#"{{"app":"app-x","event_id":"a-1","time":"{now}"}}"#);
    Secured::shared()
        .kafka
        .produce(topic, [Message::new("app-x", good), Message::new("app-x", "[1]")]);
    let adtrail = site.start();
    adtrail.await_read(2);
    let dlq = format!("{topic}.dlq");
    assert_eq!(Secured::shared().kafka.consume_all(&dlq).len(), 1);
    for args in [&["check-config"][..], &["peek", topic], &["replay-dlq", &dlq]] {
        check_exit(&site.run(args), 0, &[]);
    }
    adtrail.await_read(3);
    let log = adtrail.stop();
    assert!(!log.contains(PASSWORD), "{log}");
    let mut warnings = log.lines().filter(|line| line.contains("WARN"));
    assert!(warnings.all(|line| WARNINGS.iter().any(|part| line.contains(part))), "{log}");
}

/// Checks that `/readyz` and the log give the reason, and that the log has no password.
#[track_caller]
fn check_connection_refused(site: &Site, reason: &str) {
    let mut adtrail = site.spawn();
    adtrail.await_readiness(503, reason);
    adtrail.await_line(&["kafka refuses the connection", reason]);
    assert!(!adtrail.has_ended());
    let log = adtrail.stop();
    let output = site.run(&["peek", &site.topics.clicks]);
    let stderr = check_exit(&output, 1, &["kafka refuses the connection", reason]);
    for text in [log, stderr] {
        assert!(!text.contains("wr0ng") && !text.contains(PASSWORD), "{text}");
        assert!(text.lines().count() < 100, "{text}");
    }
}

/// Every example of the page connects once its placeholders are replaced: SCRAM over TLS and PLAIN, both with a
/// password from a file, and a client certificate.
#[test]
fn the_examples_of_the_docs_connect() {
    let page = include_str!("../../docs/kafka.md");
    let examples: Vec<&str> =
        page.split("```toml\n").skip(1).filter_map(|text| text.split("```").next()).collect();
    assert_eq!(examples.len(), 3);
    let broker = Secured::shared();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("password");
    fs::write(&file, format!("{PASSWORD}\n")).unwrap();
    let path = |name: &str| broker.file(name).display().to_string();
    for (number, example) in examples.into_iter().enumerate() {
        let (head, settings) = example.split_once("[kafka.librdkafka]\n").unwrap();
        let listeners = [("9092", &broker.sasl), ("9093", &broker.sasl_tls), ("9094", &broker.tls)];
        let is_listener =
            |(port, _): &&(&str, &String)| head.contains(&format!("kafka.example:{port}"));
        let (_, address) = listeners.iter().find(is_listener).unwrap();
        let settings = settings
            .replace("/run/secrets/kafka-password", file.to_str().unwrap())
            .replace("\"adtrail\"", &format!("{USER:?}"));
        let settings =
            ["ca.pem", "client.pem", "client.key"].iter().fold(settings, |settings, name| {
                settings.replace(&format!("/etc/adtrail/{name}"), &path(name))
            });
        check_works(&site(&format!("secured.page{number}"), address, &settings));
    }
}

#[test]
fn wrong_passwords_and_certificates_are_refused() {
    let broker = Secured::shared();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("password");
    fs::write(&file, "wr0ng\n").unwrap();
    let plain = format!(
        "security.protocol = 'SASL_PLAINTEXT'\nsasl.mechanism = 'PLAIN'\n\
         sasl.username = '{USER}'\nsasl.password = 'wr0ng'\n"
    );
    check_connection_refused(&site("secured.plain", &broker.sasl, &plain), "Authentication failed");
    let scram = tls("ca.pem", None).replace("'SSL'", "'SASL_SSL'")
        + &format!(
            "sasl.mechanism = 'SCRAM-SHA-512'\nsasl.username = '{USER}'\n\
             sasl.password = {{ file = '{}' }}\n",
            file.display()
        );
    check_connection_refused(
        &site("secured.scram", &broker.sasl_tls, &scram),
        "uthentication failed",
    );
    let other = tls("other-ca.pem", Some("client"));
    check_connection_refused(
        &site("secured.tls.ca", &broker.tls, &other),
        "certificate verify failed",
    );
    let no_certificate = tls("ca.pem", None);
    check_connection_refused(
        &site("secured.tls.no-certificate", &broker.tls, &no_certificate),
        "SSL alert",
    );
    // To a plaintext client the broker only closes the connection, without a reason.
    let open = site("secured.tls.open", &broker.tls, "security.protocol = 'PLAINTEXT'\n");
    let adtrail = open.spawn();
    adtrail.await_log("check security.protocol");
    assert_eq!(adtrail.admin("/readyz").unwrap().status, 503);
}
