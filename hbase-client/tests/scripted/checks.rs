//! Conditional changes: what is told of them is true, whatever is lost on the way.

use std::time::Duration;

use hbase_client::{CheckAndMutate, Error, Get, Put, RetryAdvice};

use super::batches::{put, write_all};
use crate::is_multi;
use crate::support::fake::{Heard, Model, Reply, Servers};

fn check(row: &'static str, expected: Option<&'static str>, then: &'static str) -> CheckAndMutate {
    let then = Put::new(row).cell("d", "q", then);
    match expected {
        None => CheckAndMutate::where_absent("d", "q", then),
        Some(expected) => CheckAndMutate::where_equal("d", "q", expected, then),
    }
}

#[tokio::test(start_paused = true)]
async fn lost_answer_to_a_check_leaves_no_lie() {
    // Whether the change was made before the answer was lost, and what is told then.
    for is_made in [true, false] {
        let servers = Servers::new();
        let table = servers.table().await;
        let mut is_first = true;
        servers.script(move |heard, model| {
            if !is_multi(heard) || !std::mem::take(&mut is_first) {
                return None;
            }
            if is_made {
                model.reply(heard);
            }
            Some(Reply::Close)
        });
        let outcome = table.check_and_mutate(check("a", None, "1")).await;
        match is_made {
            true => assert!(matches!(outcome, Err(Error::Uncertain { .. })), "{outcome:?}"),
            false => assert!(outcome.unwrap()),
        }
        // What is certain is told.
        assert!(!table.check_and_mutate(check("a", None, "2")).await.unwrap());
        assert!(table.check_and_mutate(check("a", Some("1"), "2")).await.unwrap());
    }
}

/// The first change is made, and its answer lost; this is all that comes afterwards.
async fn after_a_lost_answer(then: impl Fn(&Heard, &mut Model) -> Reply + Send + 'static) -> Error {
    let servers = Servers::new();
    let table = servers.table().await;
    let mut is_first = true;
    servers.script(move |heard, model| {
        if !is_multi(heard) {
            return None;
        }
        if std::mem::take(&mut is_first) {
            model.reply(heard);
            return Some(Reply::Close);
        }
        Some(then(heard, model))
    });
    let error = table.check_and_mutate(check("a", None, "1")).await.unwrap_err();
    servers.model(|model| assert_eq!(model.history, ["1"], "it is made"));
    assert!(matches!(error, Error::Uncertain { .. }), "{error}");
    assert_eq!(error.advice(), RetryAdvice::ReadAgain);
    error
}

#[tokio::test(start_paused = true)]
async fn check_whose_answer_was_lost_is_in_doubt_however_it_ends() {
    let hangs = after_a_lost_answer(|_, _| Reply::Never).await.to_string();
    assert!(hangs.contains("not done within 60s"), "{hangs}");
    let class = "org.apache.hadoop.hbase.RegionTooBusyException";
    let busy = after_a_lost_answer(|_, _| Reply::exception(class)).await.to_string();
    assert!(busy.contains("not done within 60s") && busy.contains(class), "{busy}");
    let disabled = after_a_lost_answer(|_, model| {
        model.state = Some(1);
        model.regions.iter_mut().for_each(|region| region.listed.clear());
        Reply::exception("org.apache.hadoop.hbase.NotServingRegionException")
    });
    let disabled = disabled.await.to_string();
    assert!(disabled.contains("table t is disabled"), "{disabled}");
    let class = "org.apache.hadoop.hbase.security.AccessDeniedException";
    let denied = after_a_lost_answer(|_, _| Reply::exception(class)).await.to_string();
    assert!(denied.contains(class), "{denied}");
}

#[tokio::test(start_paused = true)]
async fn check_under_way_at_the_deadline_is_in_doubt() {
    let servers = Servers::new();
    let mut config = Servers::config();
    // Less than a call may take: there is no second try.
    config.operation_timeout = Duration::from_secs(5);
    let table = servers.table_of(config).await;
    servers.script(|heard, model| {
        is_multi(heard).then(|| {
            model.reply(heard);
            Reply::Never
        })
    });
    let outcome = table.check_and_mutate(check("a", None, "1")).await;
    assert!(matches!(outcome, Err(Error::Uncertain { .. })), "{outcome:?}");
    // What can be written twice is not: its deadline is all that there is to say.
    let written = table.mutate(put("b")).await;
    assert!(matches!(written, Err(Error::Deadline { .. })), "{written:?}");
}

#[tokio::test(start_paused = true)]
async fn check_that_never_went_out_is_not_in_doubt_at_the_deadline() {
    let servers = Servers::new();
    let mut config = Servers::config();
    (config.operation_timeout, config.in_flight_bytes_max) = (Duration::from_secs(5), 300);
    let table = servers.table_of(config).await;
    servers.script(|heard, _| is_multi(heard).then_some(Reply::Never));
    let large = Put::new("b").cell("d", "q", vec![0; 150]);
    let (_, waited) = tokio::join!(table.mutate(large), async {
        tokio::time::sleep(Duration::from_millis(1)).await;
        table.check_and_mutate(check("a", None, "1")).await
    });
    assert!(matches!(waited, Err(Error::Deadline { .. })), "it waited for room: {waited:?}");
    servers.model(|model| model.down.extend(["s1:1".to_owned(), "s2:1".to_owned()]));
    // It closes what it had.
    table.mutate(put("a")).await.unwrap_err();
    let unreached = table.check_and_mutate(check("a", None, "1")).await;
    assert!(matches!(unreached, Err(Error::Deadline { .. })), "nobody was there: {unreached:?}");
}

#[tokio::test(start_paused = true)]
async fn check_that_could_not_be_sent_is_not_in_doubt() {
    let servers = Servers::new();
    let table = servers.table().await;
    table.mutate(put("a")).await.unwrap();
    servers.model(|model| {
        model.down.insert("s1:1".to_owned());
    });
    // It closes what it had, and nobody answers there for a while.
    let _ = tokio::time::timeout(Duration::from_secs(1), table.mutate(put("a"))).await;
    let coming_back = servers.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(2)).await;
        coming_back.model(|model| model.down.clear());
    });
    assert!(!table.check_and_mutate(check("a", None, "1")).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn check_that_waited_for_room_when_the_connection_ended_is_not_in_doubt() {
    let servers = Servers::new();
    let mut config = Servers::config();
    config.in_flight_bytes_max = 300;
    let table = servers.table_of(config).await;
    table.mutate(put("a")).await.unwrap();
    let mut is_first = true;
    servers.script(move |heard, _| {
        let hits = is_multi(heard) && std::mem::take(&mut is_first);
        hits.then(|| Reply::After(Duration::from_secs(1), Box::new(Reply::Close)))
    });
    let large = Put::new("b").cell("d", "q", vec![0; 150]);
    let (written, checked) = tokio::join!(table.mutate(large), async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        table.check_and_mutate(check("a", None, "1")).await
    });
    written.unwrap();
    assert!(!checked.unwrap(), "it was sent once, and answered");
    assert_eq!(servers.count(is_multi), 4);
}

#[tokio::test(start_paused = true)]
async fn check_on_a_server_that_ends_over_another_call_is_in_doubt() {
    let servers = Servers::new();
    let table = servers.table().await;
    let mut calls = 0;
    servers.script(move |heard, model| {
        if !is_multi(heard) {
            return None;
        }
        calls += 1;
        match calls {
            // Done, and told when it is too late.
            1 => Some(Reply::After(Duration::from_secs(5), Box::new(model.reply(heard)))),
            2 => {
                let package = "org.apache.hadoop.hbase.regionserver";
                Some(Reply::exception(&format!("{package}.RegionServerStoppedException")))
            }
            _ => None,
        }
    });
    let (checked, written) = tokio::join!(table.check_and_mutate(check("a", None, "1")), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        table.mutate(put("b")).await
    });
    assert!(matches!(checked, Err(Error::Uncertain { .. })), "{checked:?}");
    written.unwrap();
}

#[tokio::test(start_paused = true)]
async fn exception_over_a_check_does_not_shift_the_cells_of_others() {
    let servers = Servers::new();
    let table = servers.table().await;
    servers.model(|model| model.move_region(1, "s1:1"));
    write_all(&table).await;
    // The middle region has gone when checks come for it, beside puts for the first one.
    servers.model(|model| model.move_region(1, "s3:1"));
    let (checks, puts) = tokio::join!(
        table.check_and_mutate_many(vec![
            check("h00", Some("h00"), "new"),
            check("a00", None, "no")
        ]),
        table.mutate_many(vec![put("a01"), put("k01"), put("a02")]),
    );
    let held: Vec<_> = checks.into_iter().map(|held| held.unwrap()).collect();
    assert_eq!(held, [true, false]);
    assert!(puts.iter().all(Result::is_ok));
    let rows = ["a01", "k01", "a02", "a00", "h00"];
    let found = table.get_many(rows.map(Get::new).into()).await;
    let values: Vec<_> = found
        .into_iter()
        .map(|row| row.unwrap().unwrap().value(b"d", b"q").unwrap().to_vec())
        .collect();
    assert_eq!(values, [&b"a01"[..], b"k01", b"a02", b"a00", b"new"]);
}
