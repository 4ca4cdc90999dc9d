//! The service on a broker that wants to know who comes: passwords and certificates, right and
//! wrong ones.

use std::fs;

use testbed::eventually;
use testbed::kafka::{Message, PASSWORD, Secured, USER};
use testbed::site::{ONE_CAMPAIGN, Site, Topics};

/// A place on one of the broker's listeners. Its topics are not there yet.
fn site(name: &str, brokers: &str, librdkafka: &str) -> Site {
    let settings = format!("{ONE_CAMPAIGN}\n[kafka.librdkafka]\n{librdkafka}");
    Site::on(Topics::of(name), brokers.to_owned(), &settings)
}

/// Settings of TLS; `client` is the name of the client's own certificate.
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

/// What the service may warn of. A busy machine can take more than the three seconds that brokers are given for
/// the first handshake with them.
const WARNINGS: [&str; 3] = [
    "went to the dead letters",
    "kafka does not answer, asking again",
    "the brokers do not say what they have of each partition",
];

/// Events, dead letters and the tools: consumer, producers and admin client are let in.
#[track_caller]
fn check_works(site: &Site) {
    for topic in site.topics.all() {
        // Those of dead letters are made by adtrail, through the secured listener.
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
        let output = site.run(args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {said}");
    }
    adtrail.await_read(3);
    let (status, log) = adtrail.terminate();
    assert!(status.success(), "{log}");
    assert!(!log.contains(PASSWORD), "{log}");
    let mut warnings = log.lines().filter(|line| line.contains("WARN"));
    assert!(warnings.all(|line| WARNINGS.iter().any(|part| line.contains(part))), "{log}");
}

/// Not ready and why, in the probe and in the log, without a password in it.
#[track_caller]
fn check_refused(site: &Site, reason: &str) {
    let mut adtrail = site.spawn();
    adtrail.await_readiness(503, reason);
    eventually("the log tells why", || {
        let log = adtrail.log();
        let names_it =
            |line: &str| line.contains("kafka refuses the connection") && line.contains(reason);
        if log.lines().any(names_it) { Ok(()) } else { Err(log) }
    });
    assert!(!adtrail.has_ended());
    let log = adtrail.log();
    let (status, log_at_end) = adtrail.terminate();
    assert!(status.success(), "{log_at_end}");
    let output = site.run(&["peek", &site.topics.clicks]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("kafka refuses the connection") && said.contains(reason), "{said}");
    for text in [&*log, &log_at_end, &said] {
        assert!(!text.contains("wr0ng") && !text.contains(PASSWORD), "{text}");
        assert!(text.lines().count() < 100, "{text}");
    }
}

/// Every example of the page connects, with our names in place of those that stand for yours: SCRAM over TLS and
/// PLAIN, both with a password from a file, and a client's certificate.
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
        let (head, own) = example.split_once("[kafka.librdkafka]\n").unwrap();
        let listeners = [("9092", &broker.sasl), ("9093", &broker.sasl_tls), ("9094", &broker.tls)];
        let is_its = |(port, _): &&(&str, &String)| head.contains(&format!("kafka.example:{port}"));
        let (_, address) = listeners.iter().find(is_its).unwrap();
        let own = own
            .replace("/run/secrets/kafka-password", file.to_str().unwrap())
            .replace("\"adtrail\"", &format!("{USER:?}"));
        let own = ["ca.pem", "client.pem", "client.key"]
            .iter()
            .fold(own, |own, name| own.replace(&format!("/etc/adtrail/{name}"), &path(name)));
        check_works(&site(&format!("secured.page{number}"), address, &own));
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
    check_refused(&site("secured.plain", &broker.sasl, &plain), "Authentication failed");
    let scram = tls("ca.pem", None).replace("'SSL'", "'SASL_SSL'")
        + &format!(
            "sasl.mechanism = 'SCRAM-SHA-512'\nsasl.username = '{USER}'\n\
             sasl.password = {{ file = '{}' }}\n",
            file.display()
        );
    check_refused(&site("secured.scram", &broker.sasl_tls, &scram), "uthentication failed");
    let other = tls("other-ca.pem", Some("client"));
    check_refused(&site("secured.tls.ca", &broker.tls, &other), "certificate verify failed");
    let nobody = tls("ca.pem", None);
    check_refused(&site("secured.tls.nobody", &broker.tls, &nobody), "SSL alert");
    // Without any of it the broker only hangs up, and nobody can be sure why.
    let open = site("secured.tls.open", &broker.tls, "security.protocol = 'PLAINTEXT'\n");
    let adtrail = open.spawn();
    eventually("the log tells what may be wrong", || {
        let log = adtrail.log();
        if log.contains("check security.protocol") { Ok(()) } else { Err(log) }
    });
    assert_eq!(adtrail.admin("/readyz").unwrap().status, 503);
}
