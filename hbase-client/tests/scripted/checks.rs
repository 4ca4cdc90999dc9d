//! Conditional changes report the correct outcome, whatever calls and responses are lost.

use std::time::Duration;

use hbase_client::{CheckAndMutate, Error, Get, Put, RetryAdvice};

use super::batches::{put, write_all};
use crate::is_multi;
use crate::support::fake::{Call, Model, Reply, Servers};

fn conditional_put(
    row: &'static str,
    expected: Option<&'static str>,
    value: &'static str,
) -> CheckAndMutate {
    let put = Put::new(row).cell("d", "q", value);
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
        let outcome = table.check_and_mutate(conditional_put("a", None, "1")).await;
        match is_applied {
            true => assert!(matches!(outcome, Err(Error::Uncertain { .. })), "{outcome:?}"),
            false => assert!(outcome.unwrap()),
        }
        // Later outcomes are certain.
        assert!(!table.check_and_mutate(conditional_put("a", None, "2")).await.unwrap());
        assert!(table.check_and_mutate(conditional_put("a", Some("1"), "2")).await.unwrap());
    }
}

/// Returns the error of a change that is applied and whose response is lost, if all later calls get `later_reply`.
async fn error_after_a_lost_response(
    later_reply: impl Fn(&Call, &mut Model) -> Reply + Send + 'static,
) -> Error {
    let servers = Servers::new();
    let table = servers.table().await;
    let mut is_first = true;
    servers.script(move |call, model| {
        if !is_multi(call) {
            return None;
        }
        if std::mem::take(&mut is_first) {
            model.reply(call);
            return Some(Reply::Close);
        }
        Some(later_reply(call, model))
    });
    let error = table.check_and_mutate(conditional_put("a", None, "1")).await.unwrap_err();
    servers.model(|model| assert_eq!(model.history, ["1"], "applied once"));
    assert!(matches!(error, Error::Uncertain { .. }), "{error}");
    assert_eq!(error.advice(), RetryAdvice::ReadAgain);
    error
}

#[tokio::test(start_paused = true)]
async fn any_later_error_leaves_a_check_with_a_lost_response_uncertain() {
    let hung = error_after_a_lost_response(|_, _| Reply::Never).await.to_string();
    assert!(hung.contains("timed out after 60s"), "{hung}");
    let class = "RegionTooBusyException";
    let busy = error_after_a_lost_response(|_, _| Reply::exception(class)).await.to_string();
    assert!(busy.contains("timed out after 60s") && busy.contains(class), "{busy}");
    let disabled = error_after_a_lost_response(|_, model| {
        model.state = Some(1);
        model.regions.iter_mut().for_each(|region| region.listed.clear());
        Reply::exception("NotServingRegionException")
    });
    let disabled = disabled.await.to_string();
    assert!(disabled.contains("table t is disabled"), "{disabled}");
    let class = "security.AccessDeniedException";
    let denied = error_after_a_lost_response(|_, _| Reply::exception(class)).await.to_string();
    assert!(denied.contains(class), "{denied}");
}

#[tokio::test(start_paused = true)]
async fn check_in_flight_at_the_deadline_is_uncertain() {
    let servers = Servers::new();
    let mut config = Servers::config();
    // Less than the call timeout, so the call is not retried.
    config.operation_timeout = Duration::from_secs(5);
    let table = servers.table_of(config).await;
    servers.script(|call, model| {
        is_multi(call).then(|| {
            model.reply(call);
            Reply::Never
        })
    });
    let outcome = table.check_and_mutate(conditional_put("a", None, "1")).await;
    assert!(matches!(outcome, Err(Error::Uncertain { .. })), "{outcome:?}");
    // A put can be repeated safely, so its error is just the deadline.
    let written = table.mutate(put("b")).await;
    assert!(matches!(written, Err(Error::Deadline { .. })), "{written:?}");
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
        table.check_and_mutate(conditional_put("a", None, "1")).await
    });
    assert!(
        matches!(waited, Err(Error::Deadline { .. })),
        "it waited for in-flight bytes: {waited:?}"
    );
    servers.model(|model| model.down.extend(["s1:1".to_owned(), "s2:1".to_owned()]));
    // This call closes the open connection.
    table.mutate(put("a")).await.unwrap_err();
    let unreached = table.check_and_mutate(conditional_put("a", None, "1")).await;
    assert!(matches!(unreached, Err(Error::Deadline { .. })), "servers are down: {unreached:?}");
}

#[tokio::test(start_paused = true)]
async fn unsent_check_is_retried() {
    let servers = Servers::new();
    let table = servers.table().await;
    table.mutate(put("a")).await.unwrap();
    servers.model(|model| model.down.insert("s1:1".to_owned()));
    // This call closes the open connection. The server is down for two seconds.
    let _ = tokio::time::timeout(Duration::from_secs(1), table.mutate(put("a"))).await;
    servers.model_after(2, |model| model.down.clear());
    assert!(!table.check_and_mutate(conditional_put("a", None, "1")).await.unwrap());
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
        table.check_and_mutate(conditional_put("a", None, "1")).await
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
        tokio::join!(table.check_and_mutate(conditional_put("a", None, "1")), async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            table.mutate(put("b")).await
        });
    assert!(matches!(checked, Err(Error::Uncertain { .. })), "{checked:?}");
    written.unwrap();
}

#[tokio::test(start_paused = true)]
async fn check_rejected_by_a_moved_region_does_not_misalign_cells_of_other_rows() {
    let servers = Servers::new();
    let table = servers.table().await;
    servers.model(|model| model.move_region(1, "s1:1"));
    write_all(&table).await;
    // The middle region has moved when checks arrive for it, together with puts for the first one.
    servers.model(|model| model.move_region(1, "s3:1"));
    let checks =
        vec![conditional_put("h00", Some("h00"), "new"), conditional_put("a00", None, "no")];
    let (checks, puts) = tokio::join!(
        table.check_and_mutate_many(checks),
        table.mutate_many(vec![put("a01"), put("k01"), put("a02")]),
    );
    let applied: Vec<_> = checks.into_iter().map(|outcome| outcome.unwrap()).collect();
    assert_eq!(applied, [true, false]);
    assert!(puts.iter().all(Result::is_ok));
    let rows = ["a01", "k01", "a02", "a00", "h00"];
    let found = table.get_many(rows.map(Get::new).into()).await;
    let values: Vec<_> = found
        .into_iter()
        .map(|row| row.unwrap().unwrap().value(b"d", b"q").unwrap().to_vec())
        .collect();
    assert_eq!(values, [&b"a01"[..], b"k01", b"a02", b"a00", b"new"]);
}
