//! Conditional changes report the correct outcome, whatever calls and responses are lost.

use std::time::Duration;

use hbase_client::{CheckAndMutate, Error, Put};

use super::batches::put;
use crate::is_multi;
use crate::support::fake::{Reply, Servers};

/// Returns a conditional put of row `a`.
fn conditional_put(expected: Option<&'static str>, value: &'static str) -> CheckAndMutate {
    let put = Put::new("a").cell("d", "q", value);
    match expected {
        None => CheckAndMutate::where_absent("d", "q", put),
        Some(expected) => CheckAndMutate::where_equal("d", "q", expected, put),
    }
}

#[tokio::test(start_paused = true)]
async fn outcome_after_a_lost_response_is_never_wrong() {
    // The server closes the connection without a response, after it applied the change or before.
    for is_applied in [true, false] {
        let servers = Servers::new();
        let table = servers.table().await;
        servers.script_first(is_multi, move |call, model| {
            if is_applied {
                model.reply(call);
            }
            Reply::Close
        });
        let outcome = table.check_and_mutate(conditional_put(None, "1")).await;
        match is_applied {
            true => assert!(matches!(outcome, Err(Error::Uncertain { .. })), "{outcome:?}"),
            false => assert!(outcome.unwrap()),
        }
        // Later outcomes are certain.
        assert!(!table.check_and_mutate(conditional_put(None, "2")).await.unwrap());
        assert!(table.check_and_mutate(conditional_put(Some("1"), "2")).await.unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn check_not_sent_by_the_deadline_just_times_out() {
    let servers = Servers::new();
    let mut config = Servers::config();
    (config.operation_timeout, config.in_flight_bytes_max) = (Duration::from_secs(5), 300);
    let table = servers.table_of(config).await;
    servers.script(|call, _| is_multi(call).then_some(Reply::Never));
    let large = Put::new("b").cell("d", "q", vec![0; 150]);
    let (_, waited) = tokio::join!(table.mutate(large), async {
        tokio::time::sleep(Duration::from_millis(1)).await;
        table.check_and_mutate(conditional_put(None, "1")).await
    });
    assert!(
        matches!(waited, Err(Error::Deadline { .. })),
        "it waited for in-flight bytes: {waited:?}"
    );
    servers.model(|model| model.down.extend(["s1:1".to_owned(), "s2:1".to_owned()]));
    // This call closes the open connection.
    table.mutate(put("a")).await.unwrap_err();
    let unreached = table.check_and_mutate(conditional_put(None, "1")).await;
    assert!(matches!(unreached, Err(Error::Deadline { .. })), "servers are down: {unreached:?}");
}

#[tokio::test(start_paused = true)]
async fn check_that_waits_for_in_flight_bytes_is_retried_if_the_connection_ends() {
    let servers = Servers::new();
    let mut config = Servers::config();
    config.in_flight_bytes_max = 300;
    let table = servers.table_of(config).await;
    table.mutate(put("a")).await.unwrap();
    servers.script_first(is_multi, |_, _| Reply::after(Duration::from_secs(1), Reply::Close));
    let large = Put::new("b").cell("d", "q", vec![0; 150]);
    let (written, checked) = tokio::join!(table.mutate(large), async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        table.check_and_mutate(conditional_put(None, "1")).await
    });
    written.unwrap();
    assert!(!checked.unwrap(), "it was sent once and got its response");
    assert_eq!(servers.count(is_multi), 4);
}

#[tokio::test(start_paused = true)]
async fn check_on_a_server_that_stops_during_another_call_is_uncertain() {
    let servers = Servers::new();
    let table = servers.table().await;
    let mut calls = 0;
    servers.script(move |call, model| {
        if !is_multi(call) {
            return None;
        }
        calls += 1;
        match calls {
            // The change is applied, and its response arrives too late.
            1 => Some(Reply::after(Duration::from_secs(5), model.reply(call))),
            2 => Some(Reply::exception("regionserver.RegionServerStoppedException")),
            _ => None,
        }
    });
    let (checked, written) =
        tokio::join!(table.check_and_mutate(conditional_put(None, "1")), async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            table.mutate(put("b")).await
        });
    assert!(matches!(checked, Err(Error::Uncertain { .. })), "{checked:?}");
    written.unwrap();
}
