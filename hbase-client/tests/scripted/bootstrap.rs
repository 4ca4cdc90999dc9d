//! Finding a cluster, and following its changes.

use std::time::Duration;

use hbase_client::{Error, Family, Get, RetryAdvice, TableSpec};
use tokio::time::Instant;

use crate::support::fake::{Reply, Servers};

#[tokio::test(start_paused = true)]
async fn hbase_before_2_5_is_reported() {
    // The reply of HBase to an unknown method.
    let servers = Servers::new();
    servers.script(move |call, _| {
        let class = "org.apache.hadoop.hbase.DoNotRetryIOException".to_owned();
        let text = "/127.0.0.1:16000 is unable to read call parameter from client 127.0.0.1; \
                    java.lang.UnsupportedOperationException: GetBootstrapNodes";
        let (text, is_new) = (text.to_owned(), call.method == "GetBootstrapNodes");
        is_new.then_some(Reply::Exception { class, text, do_not_retry: true, moved_to: None })
    });
    let error = servers.connect(Servers::config()).await.unwrap_err();
    assert!(matches!(error, Error::OldServer { .. }), "{error}");
    assert!(error.to_string().contains("2.5 or later is required"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn servers_that_do_not_respond_are_skipped() {
    let servers = Servers::new();
    // s1 is down, s2 hangs, s3 closes connections, and s4 responds.
    servers.model(|model| model.down.insert("s1:1".to_owned()));
    servers.script(|call, _| match (&*call.service, &*call.server) {
        ("ClientMetaService", "s2:1") => Some(Reply::Never),
        ("ClientMetaService", "s3:1") => Some(Reply::Close),
        _ => None,
    });
    let mut config = Servers::config();
    config.servers.push("s3:1".parse().unwrap());
    let error = servers.connect(config.clone()).await.unwrap_err().to_string();
    for part in [
        "s1:1: connection refused",
        "s2:1: no response to GetClusterId within 5s",
        "s3:1 closed the connection",
    ] {
        assert!(error.contains(part), "{part:?} is not in: {error}");
    }
    config.servers.push("s4:1".parse().unwrap());
    servers.connect(config).await.unwrap();
}

/// A refused connection may also be due to a wrong address.
#[tokio::test(start_paused = true)]
async fn cluster_is_waited_for_only_if_a_server_reports_that_it_is_starting() {
    let servers = Servers::new();
    servers.model(|model| model.down.extend(["s1:1".to_owned(), "s2:1".to_owned()]));
    let started = Instant::now();
    let error = servers.connect(Servers::config()).await.unwrap_err();
    assert!(matches!(error, Error::Bootstrap { .. }), "{error}");
    assert_eq!(error.advice(), RetryAdvice::TryLater);
    assert!(started.elapsed() < Duration::from_millis(10), "{:?}", started.elapsed());
    // If one of them reports that it is starting, all are tried again.
    servers.model(|model| model.down.remove("s2:1"));
    servers.script(move |call, _| {
        let is_starting = call.service == "ClientMetaService" && started.elapsed().as_secs() < 9;
        is_starting.then(|| Reply::exception("ipc.ServerNotRunningYetException"))
    });
    servers.connect(Servers::config()).await.unwrap();
    assert!((9..13).contains(&started.elapsed().as_secs()), "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn configured_servers_are_kept_if_the_registry_lists_none() {
    let servers = Servers::new();
    // The registry of a region server in its first seconds.
    servers.model(|model| model.nodes.clear());
    let table = servers.table().await;
    table.get(Get::new("a")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn configured_servers_may_stop_once_others_are_known() {
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
async fn service_that_no_server_provides_is_reported_at_the_deadline() {
    let servers = Servers::new();
    let client = servers.connect(Servers::config()).await.unwrap();
    let check = |error: Error, started: Instant, service: &str| {
        assert!(matches!(error, Error::Deadline { .. }), "{error}");
        let expected = format!("of {service}: it may not be HBase");
        assert!(error.to_string().contains(&expected), "{error}");
        assert!(started.elapsed() <= Duration::from_secs(60), "{:?}", started.elapsed());
    };
    servers.model(|model| model.unknown.extend(["ClientService", "MasterService"]));
    let started = Instant::now();
    let error = client.table("t").unwrap().get(Get::new("a")).await.unwrap_err();
    check(error, started, "ClientService");
    let started = Instant::now();
    let spec = TableSpec::new("new").family(Family::new("d"));
    check(client.admin().create(&spec, &[]).await.unwrap_err(), started, "MasterService");
    // Without the registry, which is called first, connecting fails at once.
    servers.model(|model| model.unknown.extend(["ClientMetaService"]));
    let error = servers.connect(Servers::config()).await.unwrap_err();
    assert!(matches!(error, Error::Bootstrap { .. }), "{error}");
    assert!(error.to_string().contains("of ClientMetaService: it may not be HBase"), "{error}");
}
