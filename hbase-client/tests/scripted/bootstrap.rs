//! Finding the cluster, and keeping it.

use std::time::Duration;

use hbase_client::{Error, Family, Get, RetryAdvice, TableSpec};
use tokio::time::Instant;

use crate::support::fake::{Reply, Servers};

#[tokio::test(start_paused = true)]
async fn hbase_before_2_5_is_told_so() {
    // As HBase answers to what it does not know.
    let servers = Servers::new();
    servers.script(move |heard, _| {
        let class = "org.apache.hadoop.hbase.DoNotRetryIOException".to_owned();
        let text = "/127.0.0.1:16000 is unable to read call parameter from client 127.0.0.1; \
                    java.lang.UnsupportedOperationException: GetBootstrapNodes";
        let is_new = heard.method == "GetBootstrapNodes";
        let text = text.to_owned();
        is_new.then_some(Reply::Exception { class, text, do_not_retry: true, place: None })
    });
    let error = servers.connect(Servers::config()).await.unwrap_err();
    assert!(matches!(error, Error::OldServer { .. }), "{error}");
    assert!(error.to_string().contains("2.5 or later is needed"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn servers_that_do_not_answer_are_passed_over() {
    let servers = Servers::new();
    // One is down, one hangs, one does not serve it, and one answers.
    servers.model(|model| {
        model.down.insert("s1:1".to_owned());
    });
    servers.script(|heard, _| {
        let reply = match (&*heard.service, &*heard.server) {
            ("ClientMetaService", "s2:1") => Reply::Never,
            ("ClientMetaService", "s3:1") => Reply::Close,
            _ => return None,
        };
        Some(reply)
    });
    let mut config = Servers::config();
    config.servers.push("s3:1".parse().unwrap());
    let error = servers.connect(config.clone()).await.unwrap_err().to_string();
    for part in ["s1:1: connection refused", "s2:1: no answer", "s3:1 closed the connection"] {
        assert!(error.contains(part), "{part:?} is not in: {error}");
    }
    config.servers.push("s4:1".parse().unwrap());
    servers.connect(config).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn cluster_that_is_starting_is_waited_for() {
    let servers = Servers::new();
    let begun = Instant::now();
    servers.script(move |heard, _| {
        let is_starting = heard.service == "ClientMetaService" && begun.elapsed().as_secs() < 9;
        let class = "org.apache.hadoop.hbase.ipc.ServerNotRunningYetException";
        is_starting.then(|| Reply::exception(class))
    });
    servers.connect(Servers::config()).await.unwrap();
    assert!((9..13).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
}

/// A wrong address looks the same.
#[tokio::test(start_paused = true)]
async fn servers_that_refuse_connections_are_not_waited_for() {
    let servers = Servers::new();
    servers.model(|model| model.down.extend(["s1:1".to_owned(), "s2:1".to_owned()]));
    let begun = Instant::now();
    let error = servers.connect(Servers::config()).await.unwrap_err();
    assert!(matches!(error, Error::Bootstrap { .. }), "{error}");
    assert_eq!(error.advice(), RetryAdvice::TryLater);
    assert!(begun.elapsed() < Duration::from_millis(10), "{:?}", begun.elapsed());
    // Where one of them says that it is starting, all are asked again.
    servers.model(|model| model.down.remove("s2:1"));
    servers.script(move |heard, _| {
        let is_starting = heard.service == "ClientMetaService" && begun.elapsed().as_secs() < 9;
        let class = "org.apache.hadoop.hbase.ipc.ServerNotRunningYetException";
        is_starting.then(|| Reply::exception(class))
    });
    servers.connect(Servers::config()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn configured_servers_stay_where_no_others_are_named() {
    let servers = Servers::new();
    // As a region server answers in its first seconds.
    servers.model(|model| model.nodes.clear());
    let table = servers.table().await;
    table.get(Get::new("a")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn configured_servers_may_go_once_others_are_named() {
    let servers = Servers::new();
    let mut config = Servers::config();
    config.servers.truncate(1);
    let table = servers.table_of(config).await;
    servers.model(|model| {
        model.down.insert("s1:1".to_owned());
        model.master = None;
        model.move_region(0, "s3:1");
    });
    table.get(Get::new("a")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn no_master_is_waited_for_until_the_deadline() {
    let servers = Servers::new();
    servers.model(|model| model.master = None);
    let client = servers.connect(Servers::config()).await.unwrap();
    let begun = Instant::now();
    let spec = TableSpec::new("new").family(Family::new("d"));
    let error = client.admin().create(&spec, &[]).await.unwrap_err();
    assert!(matches!(error, Error::Deadline { .. }), "{error}");
    assert!(error.to_string().contains("no master"), "{error}");
    assert!(begun.elapsed() <= Duration::from_secs(60));
}

#[tokio::test(start_paused = true)]
async fn service_that_no_server_knows_is_told_at_the_deadline() {
    let servers = Servers::new();
    let client = servers.connect(Servers::config()).await.unwrap();
    let check = |error: Error, begun: Instant, service: &str| {
        assert!(matches!(error, Error::Deadline { .. }), "{error}");
        let wanted = format!("of {service}: it may be no HBase");
        assert!(error.to_string().contains(&wanted), "{error}");
        assert!(begun.elapsed() <= Duration::from_secs(60), "{:?}", begun.elapsed());
    };
    servers.model(|model| model.unknown.extend(["ClientService", "MasterService"]));
    let begun = Instant::now();
    let error = client.table("t").unwrap().get(Get::new("a")).await.unwrap_err();
    check(error, begun, "ClientService");
    let begun = Instant::now();
    let spec = TableSpec::new("new").family(Family::new("d"));
    check(client.admin().create(&spec, &[]).await.unwrap_err(), begun, "MasterService");
    // Of the registry, which is asked first: there is no cluster to be waited for.
    servers.model(|model| model.unknown.extend(["ClientMetaService"]));
    let error = servers.connect(Servers::config()).await.unwrap_err();
    assert!(matches!(error, Error::Bootstrap { .. }), "{error}");
    assert!(error.to_string().contains("of ClientMetaService: it may be no HBase"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn server_that_says_why_it_ends_the_connection_is_quoted() {
    let servers = Servers::new();
    servers.script(|_, _| {
        use hbase_client::proto::rpc::{ExceptionResponse, ResponseHeader};
        use prost::Message;
        let class = "org.apache.hadoop.hbase.security.AccessDeniedException";
        let header = ResponseHeader {
            // To no call: -1.
            call_id: Some(u32::MAX),
            exception: Some(ExceptionResponse {
                exception_class_name: Some(class.to_owned()),
                stack_trace: Some(format!("{class}: Authentication is required")),
                ..ExceptionResponse::default()
            }),
            cell_block_meta: None,
        };
        let bytes = header.encode_length_delimited_to_vec();
        Some(Reply::Raw([&(bytes.len() as u32).to_be_bytes()[..], &bytes].concat()))
    });
    let error = servers.connect(Servers::config()).await.unwrap_err().to_string();
    assert!(error.contains("Authentication is required"), "{error}");
}
