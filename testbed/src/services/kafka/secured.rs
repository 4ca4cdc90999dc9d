//! A secured broker, with passwords and with certificates of a test CA that `openssl` creates.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use super::{Kafka, Ports, server_properties};
use crate::shared::Service;
use crate::{free_port, run_ok};

pub const USER: &str = "alice";
pub const PASSWORD: &str = "pa55-of-alice";

/// A broker with one listener per security protocol. Tests produce through an open listener.
#[derive(Debug)]
pub struct Secured {
    pub kafka: Kafka,
    /// `SASL_PLAINTEXT`: PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512.
    pub sasl: String,
    /// `SSL`, with required client certificates.
    pub tls: String,
    /// `SASL_SSL`, with the same passwords.
    pub sasl_tls: String,
}

impl Secured {
    /// The broker shared by all tests. Each test creates its own topics.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Secured> = OnceLock::new();
        SHARED.get_or_init(|| match Service::find("secured-kafka") {
            Some(service) => {
                let [sasl, tls, sasl_tls] =
                    ["sasl", "tls", "sasl_tls"].map(|name| service.text(name).to_owned());
                Self { kafka: Kafka::found(&service), sasl, tls, sasl_tls }
            }
            None => Self::start(),
        })
    }

    /// The values that other processes need to use this broker.
    pub fn service(&self) -> Service {
        let service = self.kafka.service().with("sasl", &self.sasl);
        service.with("tls", &self.tls).with("sasl_tls", &self.sasl_tls)
    }

    pub fn start() -> Self {
        let ports = std::cell::Cell::new([0; 3]);
        let users = ["256", "512"]
            .map(|bits| format!("SCRAM-SHA-{bits}=[name={USER},password={PASSWORD}]"));
        let properties = |own: &Ports, dir: &Path| {
            make_certificates(dir);
            ports.set([free_port(), free_port(), free_port()]);
            secured_properties(own, dir, ports.get())
        };
        let kafka = Kafka::start_with_users(properties, &users);
        let [sasl, tls, sasl_tls] = ports.get().map(|port| format!("127.0.0.1:{port}"));
        Self { kafka, sasl, tls, sasl_tls }
    }

    /// Returns the path of `ca.pem`, `other-ca.pem`, `client.pem` or `client.key`.
    pub fn file(&self, name: &str) -> PathBuf {
        self.kafka.dir.join(name)
    }
}

fn make_certificates(dir: &Path) {
    authority(dir, "ca");
    // A CA that has signed no broker certificate.
    authority(dir, "other-ca");
    signed(dir, "broker");
    signed(dir, "client");
    let pem = ["broker.key", "broker.pem"]
        .map(|name| fs::read(dir.join(name)).expect("the file can be read"));
    fs::write(dir.join("broker-all.pem"), pem.concat()).expect("the file is written");
}

fn secured_properties(ports: &Ports, dir: &Path, more: [u16; 3]) -> String {
    let [sasl, tls, sasl_tls] = more;
    let open = server_properties(ports, dir);
    let open = open.replace(
        ",CONTROLLER://",
        &format!(
            ",SASL://127.0.0.1:{sasl},TLS://127.0.0.1:{tls},SASLTLS://127.0.0.1:{sasl_tls},CONTROLLER://"
        ),
    );
    let certificates = dir.display();
    let mut text = format!(
        "{open}inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT,TLS:SSL,SASLTLS:SASL_SSL
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
ssl.keystore.type=PEM
ssl.keystore.location={certificates}/broker-all.pem
ssl.truststore.type=PEM
ssl.truststore.location={certificates}/ca.pem
listener.name.tls.ssl.client.auth=required
"
    );
    let module = "org.apache.kafka.common.security";
    for listener in ["sasl", "sasltls"] {
        text.push_str(&format!(
            "listener.name.{listener}.plain.sasl.jaas.config={module}.plain.PlainLoginModule required user_{USER}=\"{PASSWORD}\";\n"
        ));
        for bits in ["256", "512"] {
            text.push_str(&format!(
                "listener.name.{listener}.scram-sha-{bits}.sasl.jaas.config={module}.scram.ScramLoginModule required;\n"
            ));
        }
    }
    text
}

fn openssl(dir: &Path, args: &[&str]) {
    run_ok(Command::new("openssl").current_dir(dir).args(args), b"");
}

fn authority(dir: &Path, name: &str) {
    let (key, certificate) = (format!("{name}.key"), format!("{name}.pem"));
    let args = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"];
    let subject = format!("/CN=adtrail test {name}");
    openssl(
        dir,
        &[&args[..], &["-subj", &subject, "-keyout", &key, "-out", &certificate]].concat(),
    );
}

/// Creates a certificate for the local address, signed by the CA `ca`.
fn signed(dir: &Path, name: &str) {
    let [key, request, certificate, names] =
        ["key", "csr", "pem", "ext"].map(|kind| format!("{name}.{kind}"));
    fs::write(dir.join(&names), "subjectAltName=IP:127.0.0.1,DNS:localhost\n")
        .expect("the file is written");
    let subject = format!("/CN={name}");
    let args = ["req", "-newkey", "rsa:2048", "-nodes", "-subj", &subject];
    openssl(dir, &[&args[..], &["-keyout", &key, "-out", &request]].concat());
    let args = ["x509", "-req", "-in", &request, "-CA", "ca.pem", "-CAkey", "ca.key"];
    let more = ["-CAcreateserial", "-days", "2", "-extfile", &names, "-out", &certificate];
    openssl(dir, &[&args[..], &more].concat());
}
