//! What people get wrong, and what they are told.

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
    let error = Client::connect(config).await.expect_err("that is no hbase");
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

/// A server that says this to whoever comes, once it heard something.
fn server(says: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut heard = [0; 6];
            let _ = stream.read_exact(&mut heard);
            let _ = stream.write_all(says);
            thread::sleep(Duration::from_millis(200));
        }
    });
    address
}

#[tokio::test]
async fn wrong_address_is_told_with_what_would_be_right() {
    let nobody = format!("127.0.0.1:{}", free_port());
    check(&connect(&nobody).await, &[&nobody, "refused", "hbase.master.port", "ZooKeeper"]);
    let nowhere = connect("no-such-host.invalid:16000").await;
    check(&nowhere, &["no-such-host.invalid:16000", "no server of HBase answers"]);
    assert!(Config::new(["localhost"]).is_err());
}

#[tokio::test]
async fn server_that_speaks_something_else_is_told_so() {
    let http = server(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    check(&connect(&http).await, &[&http, "does not speak as HBase does", "HTTP"]);
    let tls = server(b"\x15\x03\x01\x00\x02\x02\x32");
    check(&connect(&tls).await, &[&tls, "does not speak as HBase does"]);
    let closes = server(b"");
    check(&connect(&closes).await, &[&closes, "closed the connection", "TLS or Kerberos"]);
}

#[tokio::test]
async fn server_that_says_nothing_is_left() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = listener.local_addr().unwrap().to_string();
    check(&connect(&silent).await, &[&silent, "no answer to GetClusterId within 2s"]);
    // One that answers is enough.
    let mut config = Config::new([silent].into_iter().chain(HBase::shared().servers())).unwrap();
    config.connect_timeout = Duration::from_secs(10);
    Client::connect(config).await.unwrap();
}

#[tokio::test]
async fn zookeeper_is_no_hbase() {
    let zookeeper = format!("127.0.0.1:{}", HBase::shared().zookeeper_port);
    check(&connect(&zookeeper).await, &[&zookeeper, "not those of ZooKeeper"]);
}

#[tokio::test]
async fn missing_table_or_family_says_what_to_do() {
    let (client, table) = HBase::shared().table("no-family", &[]).await;
    let missing = client.table("no-such-table").unwrap();
    let no_table = missing.get(Get::new("r")).await.unwrap_err();
    check(&no_table, &["no table no-such-table", "create it, or correct its name"]);
    assert_eq!(no_table.advice(), RetryAdvice::Change);
    check(&read(&missing, Scan::all()).await.unwrap_err(), &["no table no-such-table"]);
    let selection = hbase_client::Selection::all().family("nope");
    let family = table.get(Get::new("r").select(selection.clone())).await.unwrap_err();
    check(&family, &["NoSuchColumnFamilyException", "name a family"]);
    let family = read(&table, Scan::all().select(selection)).await.unwrap_err();
    check(&family, &["NoSuchColumnFamilyException", "name a family"]);
    assert_eq!(family.advice(), RetryAdvice::Change);
    assert!(client.table("no table").is_err());
}

#[tokio::test]
async fn server_that_takes_no_more_rows_a_call_says_so() {
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
