//! User mistakes, and their error messages.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use hbase_client::{Client, Config, Error, Get, RetryAdvice, Scan};

use crate::support::free_port;
use crate::support::hbase::HBase;
use crate::support::rows::{check_exact, put, read, write};

async fn connect(server: &str) -> Error {
    let mut config = Config::new([server]).unwrap();
    config.connect_timeout = Duration::from_secs(2);
    let error = Client::connect(config).await.expect_err("this is not HBase");
    println!("{error}");
    error
}

#[track_caller]
fn check(error: &Error, parts: &[&str]) {
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
}

/// Starts a server that reads the first bytes of each client and replies with these. Returns its address.
fn server(reply: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut preamble = [0; 6];
            let _ = stream.read_exact(&mut preamble);
            let _ = stream.write_all(reply);
            thread::sleep(Duration::from_millis(200));
        }
    });
    address
}

#[tokio::test]
async fn wrong_address_is_reported_with_the_expected_ports() {
    let closed = format!("127.0.0.1:{}", free_port());
    check(&connect(&closed).await, &[&closed, "refused", "hbase.master.port", "ZooKeeper"]);
    let unknown = connect("no-such-host.invalid:16000").await;
    check(&unknown, &["no-such-host.invalid:16000", "no HBase server responds"]);
    assert!(Config::new(["localhost"]).is_err());
}

#[tokio::test]
async fn server_of_another_protocol_is_reported() {
    let http = server(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    check(&connect(&http).await, &[&http, "sent an invalid HBase response", "HTTP"]);
    let tls = server(b"\x15\x03\x01\x00\x02\x02\x32");
    check(&connect(&tls).await, &[&tls, "sent an invalid HBase response"]);
    let closes = server(b"");
    check(&connect(&closes).await, &[&closes, "closed the connection", "TLS or Kerberos"]);
}

#[tokio::test]
async fn zookeeper_address_is_reported() {
    let zookeeper = format!("127.0.0.1:{}", HBase::shared().zookeeper_port);
    check(&connect(&zookeeper).await, &[&zookeeper, "not those of ZooKeeper"]);
}

#[tokio::test]
async fn missing_table_or_family_is_reported_with_a_remedy() {
    let (client, table) = HBase::shared().table("no-family", &[]).await;
    let missing = client.table("no-such-table").unwrap();
    let no_table = missing.get(Get::new("r")).await.unwrap_err();
    check(&no_table, &["table no-such-table does not exist", "create it, or correct its name"]);
    assert_eq!(no_table.advice(), RetryAdvice::Change);
    check(&read(&missing, Scan::all()).await.unwrap_err(), &["table no-such-table does not exist"]);
    let selection = hbase_client::Selection::all().family("nope");
    let family = table.get(Get::new("r").select(selection.clone())).await.unwrap_err();
    check(&family, &["NoSuchColumnFamilyException", "use a family"]);
    let family = read(&table, Scan::all().select(selection)).await.unwrap_err();
    check(&family, &["NoSuchColumnFamilyException", "use a family"]);
    assert_eq!(family.advice(), RetryAdvice::Change);
    assert!(client.table("no table").is_err());
}

#[tokio::test]
async fn too_many_rows_per_call_are_reported() {
    let hbase = HBase::shared();
    let (_, table) = hbase.table("too-many", &[]).await;
    write(&table, 0..3_000).await;
    let mut config = hbase.config();
    config.call_actions_max = 1_001;
    let table = Client::connect(config).await.unwrap().table("too-many").unwrap();
    let outcomes = table.mutate_many((3_000..4_001).map(put).collect()).await;
    for outcome in outcomes {
        check(&outcome.unwrap_err(), &["Size Threshold: 1000", "call_actions_max"]);
    }
    check_exact(&read(&table, Scan::all()).await.unwrap(), 0..3_000);
}
