//! A real HBase with TLS and permissions.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::hbase::{HBase, create};
use crate::support::rows::{check_exact, read, write};
use crate::support::run_ok;
use crate::support::site::Site;
use hbase_client::{Client, Config, Error, Identity, Put, RetryAdvice, Scan, Tls};

const PASSWORD: &str = "secret";
const ACCESS: &str = "org.apache.hadoop.hbase.security.access.AccessController";

/// Creates a certificate for this machine, and a key store with it for HBase.
fn make_certificate(dir: &Path) {
    let file = |name: &str| dir.join(name).display().to_string();
    let mut request = Command::new("openssl");
    request.args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30"]);
    request.args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]);
    request.args(["-keyout", &file("key.pem"), "-out", &file("certificate.pem")]);
    run_ok(&mut request, b"");
    let mut store = Command::new("openssl");
    store.args(["pkcs12", "-export", "-name", "server", "-passout", &format!("pass:{PASSWORD}")]);
    store.args(["-inkey", &file("key.pem"), "-in", &file("certificate.pem")]);
    run_ok(store.args(["-out", &file("keys.p12")]), b"");
}

fn secured(site: Site, dir: &Path) -> Site {
    make_certificate(dir);
    let keys = dir.join("keys.p12");
    site.set("hbase.server.netty.tls.enabled", true)
        // The servers communicate with each other without TLS.
        .set("hbase.server.netty.tls.supportplaintext", true)
        .set("hbase.server.netty.tls.client.auth.mode", "NEED")
        .set("hbase.rpc.tls.truststore.location", dir.join("certificate.pem").display())
        .set("hbase.rpc.tls.truststore.type", "PEM")
        .set("hbase.rpc.tls.keystore.location", keys.display())
        .set("hbase.rpc.tls.keystore.type", "PKCS12")
        .set("hbase.rpc.tls.keystore.password", PASSWORD)
        .set("hbase.security.authorization", true)
        .set("hbase.superuser", "root,admin")
        .set("hbase.coprocessor.master.classes", ACCESS)
        .set("hbase.coprocessor.region.classes", ACCESS)
        .set("hbase.coprocessor.regionserver.classes", ACCESS)
}

fn config(hbase: &HBase, user: &str, authorities_pem: Vec<u8>) -> Config {
    let mut config = hbase.config();
    config.user = user.to_owned();
    let pem = |name: &str| fs::read(hbase.dir().join(name)).unwrap_or_default();
    let (certificates_pem, key_pem) = (pem("certificate.pem"), pem("key.pem"));
    let identity = Some(Identity { certificates_pem, key_pem }).filter(|id| !id.key_pem.is_empty());
    config.tls = Some(Tls { authorities_pem, identity });
    config
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_are_sent_over_tls_and_permissions_are_checked() {
    let hbase = HBase::start(secured);
    let authority = fs::read(hbase.dir().join("certificate.pem")).unwrap();

    let client = Client::connect(config(&hbase, "admin", authority.clone())).await.unwrap();
    create(&client, "secured", &["00005000"]).await;
    let table = client.table("secured").unwrap();
    write(&table, 0..10_000).await;
    check_exact(&read(&table, Scan::all()).await.unwrap(), 0..10_000);

    // Another user lacks the permission, and the error says what to do.
    let stranger = Client::connect(config(&hbase, "stranger", authority)).await.unwrap();
    let table = stranger.table("secured").unwrap();
    let check = |error: Error| {
        let text = error.to_string();
        assert!(text.contains("AccessDeniedException") && text.contains("grant"), "{text}");
        assert_eq!(error.advice(), RetryAdvice::Change);
    };
    check(table.mutate(Put::new("r").cell("d", "v", "1")).await.unwrap_err());
    check(stranger.admin().disable("secured").await.unwrap_err());

    // Without a client certificate.
    let mut anonymous =
        config(&hbase, "admin", fs::read(hbase.dir().join("certificate.pem")).unwrap());
    anonymous.tls.as_mut().unwrap().identity = None;
    let error = Client::connect(anonymous).await.unwrap_err().to_string();
    assert!(error.contains("no HBase server responds"), "{error}");
    println!("{error}");
    // A server certificate of an unknown authority.
    let error = Client::connect(config(&hbase, "admin", Vec::new())).await.unwrap_err().to_string();
    assert!(error.contains("TLS connection failed") && error.contains("authority"), "{error}");
    // A server without TLS.
    let error = Client::connect(config(HBase::shared(), "admin", Vec::new())).await.unwrap_err();
    assert!(error.to_string().contains("hbase.server.netty.tls.enabled"), "{error}");
    // A file that is not PEM.
    let error = Client::connect(config(&hbase, "admin", b"no pem".to_vec())).await.unwrap_err();
    assert_eq!(error.advice(), RetryAdvice::Change, "{error}");
}
