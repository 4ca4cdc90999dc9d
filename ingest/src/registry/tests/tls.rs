//! TLS with a CA and certificates made for the test, against `openssl s_server`.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::*;

/// Serves the schema `"string"` under id 7; stops when dropped.
struct TlsServer {
    child: Child,
    port: u16,
}

impl TlsServer {
    /// Starts `openssl s_server` with further options.
    fn start(folder: &Path, options: &[&str]) -> Self {
        fs::create_dir_all(folder.join("schemas/ids")).unwrap();
        let body = r#"{"schema":"\"string\""}"#;
        let reply = format!("HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        fs::write(folder.join("schemas/ids/7"), reply).unwrap();
        let mut child = Command::new("openssl")
            .current_dir(folder)
            .args(["s_server", "-HTTP", "-accept", "127.0.0.1:0"])
            .args(["-cert", "server.pem", "-key", "server.key"])
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("openssl runs (scripts/install --tests installs it)");
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let accepts =
            lines.find(|line| line.starts_with("ACCEPT ")).expect("openssl prints its port");
        let port = accepts.rsplit(':').next().unwrap().trim().parse().unwrap();
        // Drains the output: a full pipe would block the server.
        thread::spawn(move || lines.for_each(drop));
        Self { child, port }
    }

    fn fixture(&self) -> Fixture {
        Fixture::for_urls(&[format!("https://127.0.0.1:{}", self.port)])
    }
}

impl Drop for TlsServer {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Writes `name.pem` and `name.key` into the folder: a certificate signed by its CA, or the CA's own.
fn certify(folder: &Path, name: &str, options: &[&str]) {
    let output = Command::new("openssl")
        .current_dir(folder)
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"])
        .args(["-days", "2", "-subj", &format!("/CN=adtrail test {name}")])
        .args(["-out", &format!("{name}.pem"), "-keyout", &format!("{name}.key")])
        .args(options)
        .output()
        .expect("openssl runs (scripts/install --tests installs it)");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

const BY_CA: [&str; 4] = ["-CA", "ca.pem", "-CAkey", "ca.key"];

/// Creates a CA, and certificates of a server on loopback and of a client.
fn certificates() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    certify(folder.path(), "ca", &[]);
    let server = [&BY_CA[..], &["-addext", "subjectAltName=IP:127.0.0.1"]].concat();
    certify(folder.path(), "server", &server);
    certify(folder.path(), "client", &BY_CA);
    folder
}

/// Returns the setting as a line that names a file of the folder.
fn file(setting: &str, folder: &Path, name: &str) -> String {
    format!("{setting} = {:?}\n", folder.join(name))
}

#[track_caller]
fn check_fails(fixture: &Fixture, lines: &str) {
    let registry = fixture.start(lines);
    check_waiting(&registry, id(7));
    wait_until("a request fails", || registry.health().requests(RegistryOutcome::Failed) > 1);
    check_waiting(&registry, id(7));
}

#[test]
fn only_the_configured_ca_is_trusted() {
    let folder = certificates();
    certify(folder.path(), "other", &[]);
    let server = TlsServer::start(folder.path(), &[]);
    check_fails(&server.fixture(), "");
    check_fails(&server.fixture(), &file("ca", folder.path(), "other.pem"));
    let registry = server.fixture().start(&file("ca", folder.path(), "ca.pem"));
    check_ready(&registry, id(7), "\"string\"");
}

#[test]
fn a_client_certificate_is_presented() {
    let folder = certificates();
    let demand = ["-Verify", "1", "-verify_return_error", "-CAfile", "ca.pem"];
    let server = TlsServer::start(folder.path(), &demand);
    let ca = file("ca", folder.path(), "ca.pem");
    check_fails(&server.fixture(), &ca);
    let certificate = file("certificate", folder.path(), "client.pem");
    let key = file("key", folder.path(), "client.key");
    let registry = server.fixture().start(&(ca + &certificate + &key));
    check_ready(&registry, id(7), "\"string\"");
}

#[test]
fn errors_name_the_unusable_file() {
    let folder = certificates();
    fs::write(folder.path().join("empty.pem"), "").unwrap();
    let fixture = Fixture::for_urls(&["https://127.0.0.1:1".into()]);
    let check = |lines: &str, setting: &str, problem: &str, name: &str| {
        let started = Texts::start(&fixture.settings(lines), compile, Timing::default());
        let error = started.err().unwrap().to_string();
        let expected = format!("registry.{setting}: {problem}");
        assert!(error.starts_with(&expected), "{error}");
        assert!(error.ends_with(&format!("{name}\"")), "{error}");
    };
    let ca = |name: &str| file("ca", folder.path(), name);
    check(&ca("absent.pem"), "ca", "the file cannot be read, No such file", "absent.pem");
    check(&ca("empty.pem"), "ca", "expected certificates in PEM", "empty.pem");
    check(&ca("client.key"), "ca", "expected certificates in PEM", "client.key");
    let identity = |certificate: &str, key: &str| {
        file("certificate", folder.path(), certificate) + &file("key", folder.path(), key)
    };
    let absent = identity("absent.pem", "client.key");
    check(&absent, "certificate", "the file cannot be read", "absent.pem");
    check(&identity("client.pem", "client.pem"), "key", "expected a key in PEM", "client.pem");
    check(&identity("empty.pem", "client.key"), "key", "expected a key in PEM", "client.key");
}
