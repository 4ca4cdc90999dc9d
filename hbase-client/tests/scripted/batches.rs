//! Batches of which parts fail.

use std::time::Duration;

use hbase_client::proto::data::{MultiRequest, MultiResponse};
use hbase_client::{Advice, CheckAndMutate, Error, Get, Mutation, Put, Table};
use prost::Message;
use tokio::time::Instant;

use crate::is_multi;
use crate::support::fake::{Heard, Model, Reply, Servers, pair};

fn rows() -> Vec<String> {
    ('a'..='z')
        .flat_map(|letter| (0..20).map(move |number| format!("{letter}{number:02}")))
        .collect()
}

fn put(row: &str) -> Mutation {
    Put::new(row.to_owned()).cell("d", "q", row.to_owned()).into()
}

async fn write_all(table: &Table) {
    for outcome in table.mutate_many(rows().iter().map(|row| put(row)).collect()).await {
        outcome.unwrap();
    }
}

/// The answer to a batch, changed.
fn changed(heard: &Heard, model: &mut Model, change: impl FnOnce(&mut MultiResponse)) -> Reply {
    let Reply::Answer { message, cells } = model.reply(heard) else { panic!("an answer") };
    let mut answer = MultiResponse::decode(&message[..]).unwrap();
    change(&mut answer);
    Reply::Answer { message: answer.encode_to_vec(), cells }
}

#[tokio::test(start_paused = true)]
async fn only_rows_that_failed_are_sent_again() {
    let servers = Servers::new();
    let table = servers.table().await;
    // Every second row of the first answer of the first server.
    let mut is_first = true;
    servers.script(move |heard, model| {
        if !is_multi(heard) || heard.server != "s1:1" || !std::mem::take(&mut is_first) {
            return None;
        }
        Some(changed(heard, model, |answer| {
            let rows = answer.region_action_result[0].result_or_exception.iter_mut();
            for row in rows.step_by(2) {
                (row.result, row.exception) =
                    (None, Some(pair("org.apache.hadoop.hbase.RegionTooBusyException")));
            }
        }))
    });
    write_all(&table).await;
    let sent = servers.with(|fake| {
        let calls = fake.heard.iter().filter(|heard| is_multi(heard));
        let count = |heard: &Heard| {
            let request = MultiRequest::decode(heard.param.clone()).unwrap();
            request.region_action.iter().map(|region| region.action.len()).sum::<usize>()
        };
        calls.map(|heard| (heard.server.clone(), count(heard))).collect::<Vec<_>>()
    });
    // 7, 8 and 11 letters of 20 rows each.
    let expected = [("s1:1", 140), ("s2:1", 160), ("s3:1", 220), ("s1:1", 70)];
    assert_eq!(sent, expected.map(|(server, rows)| (server.to_owned(), rows)));
}

#[tokio::test(start_paused = true)]
async fn rows_of_which_nothing_is_said_are_sent_again() {
    let servers = Servers::new();
    let table = servers.table().await;
    let mut is_first = true;
    servers.script(move |heard, model| {
        let hits = is_multi(heard) && std::mem::take(&mut is_first);
        hits.then(|| {
            changed(heard, model, |answer| {
                answer.region_action_result[0].result_or_exception.truncate(3);
            })
        })
    });
    write_all(&table).await;
    let twice = servers.model(|model| model.writes.values().filter(|&&count| count == 2).count());
    assert_eq!(twice, 137, "all but three of the first server's");
}

#[tokio::test(start_paused = true)]
async fn answers_to_something_else_are_not_believed() {
    let checks: [fn(&mut MultiResponse); 4] = [
        |answer| answer.region_action_result.clear(),
        |answer| answer.region_action_result[0].result_or_exception[0].index = Some(7_000),
        |answer| {
            let results = &mut answer.region_action_result[0].result_or_exception;
            results[0].index = results[1].index;
        },
        |answer| {
            let mut done = answer.region_action_result[0].result_or_exception[0].clone();
            done.result.as_mut().unwrap().associated_cell_count = Some(9);
            answer.region_action_result[0].result_or_exception[0] = done;
        },
    ];
    for (index, change) in checks.into_iter().enumerate() {
        let servers = Servers::new();
        let table = servers.table().await;
        let mut is_first = true;
        servers.script(move |heard, model| {
            let hits = is_multi(heard) && std::mem::take(&mut is_first);
            hits.then(|| changed(heard, model, change))
        });
        write_all(&table).await;
        let twice =
            servers.model(|model| model.writes.values().filter(|&&count| count == 2).count());
        assert_eq!(twice, 140, "change {index}: the whole of the first answer");
    }
}

#[tokio::test(start_paused = true)]
async fn batch_goes_on_where_a_server_dies() {
    let servers = Servers::new();
    let table = servers.table().await;
    let mut calls = 0;
    servers.script(move |heard, model| {
        let hits = is_multi(heard) && heard.server == "s1:1";
        calls += usize::from(hits);
        (hits && calls == 1).then(|| {
            model.down.insert("s1:1".to_owned());
            // Another one takes the region over, after a while.
            Reply::Close
        })
    });
    let taken_over = servers.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(5)).await;
        taken_over.model(|model| model.move_region(0, "s2:1"));
    });
    let begun = Instant::now();
    write_all(&table).await;
    let waited = begun.elapsed();
    assert!(waited >= Duration::from_secs(5) && waited < Duration::from_secs(8), "{waited:?}");
    servers.model(|model| assert_eq!(model.rows.len(), 520));
    // The others were not waited with, nor sent again.
    servers.model(|model| assert!(model.writes.values().all(|&count| count == 1)));
}

#[tokio::test(start_paused = true)]
async fn slow_server_holds_up_its_own_rows_alone() {
    let servers = Servers::new();
    let table = servers.table().await;
    servers.script(move |heard, model| {
        let hits = is_multi(heard) && heard.server == "s1:1";
        // The others' rows fail at first; they are through before the slow one answers.
        if is_multi(heard) && heard.server == "s2:1" && !model.writes.contains_key(&b"h00"[..]) {
            model.writes.insert("h00".into(), 0);
            return Some(Reply::exception("org.apache.hadoop.hbase.RegionTooBusyException"));
        }
        let reply = hits.then(|| Box::new(model.reply(heard)))?;
        Some(Reply::After(Duration::from_secs(3), reply))
    });
    let observed = servers.clone();
    let observing = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(1)).await;
        observed.model(|model| model.writes.get(&b"h00"[..]).copied())
    });
    write_all(&table).await;
    assert_eq!(observing.await.unwrap(), Some(1));
}

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
    assert_eq!(error.advice(), Advice::ReadAgain);
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
        model.state = 1;
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

#[tokio::test(start_paused = true)]
async fn rest_of_an_answer_that_is_too_large_is_asked_for_at_once() {
    let servers = Servers::new();
    servers.model(Model::fill);
    let table = servers.table().await;
    servers.script(|heard, model| {
        is_multi(heard).then(|| {
            let Reply::Answer { message, cells } = model.reply(heard) else { panic!("an answer") };
            let mut answer = MultiResponse::decode(&message[..]).unwrap();
            let rows = &mut answer.region_action_result[0].result_or_exception;
            // Three cells a row.
            let kept = first_cells(&cells, 3 * rows.len().min(10));
            for row in rows.iter_mut().skip(10) {
                let class = "org.apache.hadoop.hbase.MultiActionResultTooLarge";
                (row.result, row.exception) = (None, Some(pair(class)));
            }
            Reply::Answer { message: answer.encode_to_vec(), cells: kept }
        })
    });
    let begun = Instant::now();
    let rows: Vec<_> = (0..100).map(|row| format!("a{row:02}")).collect();
    let found = table.get_many(rows.iter().cloned().map(Get::new).collect()).await;
    for (row, found) in rows.iter().zip(found) {
        assert_eq!(found.unwrap().unwrap().key(), row.as_bytes());
    }
    assert!(begun.elapsed() < Duration::from_millis(10), "{:?}", begun.elapsed());
    assert_eq!(servers.count(is_multi), 10);
}

/// The first cells of a block.
fn first_cells(block: &bytes::Bytes, count: usize) -> bytes::Bytes {
    let mut rest = block.clone();
    (0..count).for_each(|_| drop(hbase_client::wire::cell::Cell::take(&mut rest).unwrap()));
    block.slice(..block.len() - rest.len())
}
