//! Tests of lanes: retries, pauses, order, and endpoints that do not wait for each other.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::task::yield_now;

use super::super::deliver;
use super::super::lane::Lane;
use super::super::queue::Outcome;
use super::memory::{Memory, TestClock};
use super::mock::{Answer, Mock};
use super::{NOW_MS, lookup, sender, sender_with, timing};
use crate::Sender;
use crate::event::tests::{activation, event};
use crate::event::{CallbackEvent, Credit};

const DAY_MS: i64 = 86_400_000;

struct Site {
    mock: Mock,
    sender: Arc<Sender>,
    clock: TestClock,
    queue: Arc<Memory>,
}

impl Site {
    /// A site with endpoints of these names, each with a path of its own.
    fn new(names: &[&str]) -> Self {
        let mock = Mock::start();
        let endpoints = names.iter().map(|name| endpoint(name, &mock.url(&format!("/{name}"))));
        let endpoints: String = endpoints.collect();
        Self::with_endpoints(mock, &endpoints)
    }

    /// A site with the endpoint `a`, and `b`, which has another host: the second server.
    fn with_two_hosts() -> (Self, Mock) {
        let (mock, other) = (Mock::start(), Mock::start());
        let url_of_other = other.url("/b").replace("localhost", "127.0.0.1");
        let endpoints = endpoint("a", &mock.url("/a")) + &endpoint("b", &url_of_other);
        other.answers(taken());
        (Self::with_endpoints(mock, &endpoints), other)
    }

    fn with_endpoints(mock: Mock, endpoints: &str) -> Self {
        let settings =
            format!("[callbacks]\nallow_loopback = [\"localhost\", \"127.0.0.1\"]\n{endpoints}");
        let (sender, clock) = sender_with(&settings, timing(), lookup("127.0.0.1"));
        mock.answers(taken());
        Self { mock, sender: Arc::new(sender), clock, queue: Arc::default() }
    }

    fn lane(&self, index: usize) -> Lane<Memory> {
        let endpoint = self.sender.endpoints()[index].clone();
        Lane::new(endpoint, self.sender.clone(), self.queue.clone()).unwrap()
    }
}

fn endpoint(name: &str, url: &str) -> String {
    format!(
        "[[callbacks.endpoint]]\nname = \"{name}\"\npreset = \"kuaishou\"\n\
         url = \"{url}?callback={{callback|url}}\"\nrequests_per_second_max = 10000\n"
    )
}

fn taken() -> Answer {
    Answer::Reply(200, "{\"result\":1}".to_owned())
}

fn numbered(number: u32, event: CallbackEvent) -> CallbackEvent {
    CallbackEvent { id: format!("cb_{number}").into(), ..event }
}

#[tokio::test]
async fn what_is_due_is_sent_once() {
    let site = Site::new(&["a"]);
    for key in 0..40 {
        site.queue.add(key, "a", numbered(key, activation()), NOW_MS);
    }
    site.queue.add(99, "a", activation(), NOW_MS + 1);
    site.queue.add(98, "other", activation(), NOW_MS);
    site.lane(0).drain().await.unwrap();
    assert_eq!(site.mock.received().len(), 40);
    for key in 0..40 {
        assert_eq!(site.queue.end(key), Some(Outcome::Sent), "{key}");
    }
    assert_eq!((site.queue.end(99), site.queue.end(98)), (None, None));
    site.lane(0).drain().await.unwrap();
    assert_eq!(site.mock.received().len(), 0);
}

/// The allocator keeps free memory for each thread that has used the store.
#[tokio::test]
async fn only_the_thread_of_the_lane_uses_the_outbox() {
    let site = Site::new(&["a"]);
    for key in 0..3 {
        site.queue.add(key, "a", numbered(key, activation()), NOW_MS);
    }
    site.lane(0).drain().await.unwrap();
    assert_eq!(site.mock.received().len(), 3);
    let threads = site.queue.threads.lock();
    assert_eq!(threads.iter().collect::<Vec<_>>(), ["adtrail-outbox"]);
}

#[tokio::test]
async fn what_is_not_sent_delays_nothing() {
    let site = Site::new(&["a"]);
    site.queue.add(1, "a", activation(), NOW_MS);
    *site.queue.settling.lock() = 3;
    site.lane(0).drain().await.unwrap();
    assert_eq!(site.queue.end(1), Some(Outcome::Sent));
}

#[tokio::test]
async fn outcomes_are_kept_while_there_is_more_to_settle() {
    let site = Site::new(&["a"]);
    site.queue.add(1, "a", activation(), NOW_MS);
    *site.queue.settles_forever.lock() = true;
    let (stop, stopped) = watch::channel(false);
    let lane = tokio::spawn(site.lane(0).run(stopped));
    while site.queue.end(1).is_none() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    stop.send_replace(true);
    lane.await.unwrap().unwrap();
    assert_eq!(site.queue.end(1), Some(Outcome::Sent));
}

#[tokio::test]
async fn an_effect_whose_wait_is_not_known_has_had_no_attempt() {
    let site = Site::new(&["a"]);
    site.queue.add(1, "a", event(), NOW_MS);
    *site.queue.hides_activations.lock() = true;
    site.lane(0).drain().await.unwrap();
    assert_eq!((site.mock.received().len(), site.queue.end(1)), (0, None));
    assert_eq!(site.queue.entries.lock()[&1].attempts, 0);
    *site.queue.hides_activations.lock() = false;
    site.clock.set_ms(site.queue.due_ms(1));
    site.lane(0).drain().await.unwrap();
    assert_eq!(site.queue.end(1), Some(Outcome::Sent));
}

#[tokio::test]
async fn a_failing_callback_is_tried_eight_times() {
    let site = Site::new(&["a"]);
    site.mock.answers(Answer::Reply(500, String::new()));
    site.queue.add(1, "a", activation(), NOW_MS);
    let mut waits = Vec::new();
    while site.queue.end(1).is_none() {
        let before_ms = site.clock.now_ms();
        site.lane(0).drain().await.unwrap();
        let due_ms = site.queue.due_ms(1);
        waits.push((due_ms - before_ms) / 1_000);
        site.clock.set_ms(due_ms);
        assert!(waits.len() <= 8);
    }
    assert_eq!(site.queue.end(1), Some(Outcome::Dead));
    assert_eq!(site.mock.received().len(), 8);
    assert_eq!(site.queue.reasons(1), ["status 500"; 8]);
    let expected = [5, 60, 300, 1_800, 7_200, 18_000, 36_000];
    for (wait, expected) in waits.iter().zip(expected) {
        assert!((expected * 9 / 10 - 1..=expected * 11 / 10).contains(wait), "{wait}");
    }
}

#[tokio::test]
async fn a_callback_that_fails_once_is_sent_with_the_same_time() {
    let site = Site::new(&["a"]);
    site.mock.answers(Answer::HangUp);
    site.queue.add(1, "a", activation(), NOW_MS);
    site.lane(0).drain().await.unwrap();
    assert_eq!(site.queue.end(1), None);
    site.mock.answers(Answer::Reply(200, "{\"result\":1}".to_owned()));
    site.clock.set_ms(site.queue.due_ms(1));
    site.lane(0).drain().await.unwrap();
    assert_eq!(site.queue.end(1), Some(Outcome::Sent));
    let paths: Vec<_> = site.mock.received().into_iter().map(|received| received.path).collect();
    assert!(paths.len() >= 2 && paths.iter().all(|path| *path == paths[0]), "{paths:?}");
}

#[tokio::test]
async fn an_effect_waits_for_its_activation() {
    let site = Site::new(&["a"]);
    site.mock.answers(Answer::Reply(503, String::new()));
    site.queue.add(1, "a", event(), NOW_MS);
    site.queue.add(2, "a", activation(), NOW_MS);
    site.lane(0).drain().await.unwrap();
    let received = site.mock.received();
    assert_eq!(received.len(), 1);
    assert_eq!(received[0].parameter("event_type").as_deref(), Some("1"));
    assert!(site.queue.due_ms(1) >= NOW_MS + 1_000);
    site.mock.answers(Answer::Reply(200, "{\"result\":1}".to_owned()));
    for step in 1..=3 {
        site.clock.set_ms(NOW_MS + step * 10_000);
        site.lane(0).drain().await.unwrap();
    }
    let types: Vec<_> = site
        .mock
        .received()
        .iter()
        .filter_map(|received| received.parameter("event_type"))
        .collect();
    assert_eq!(types, ["1", "3"]);
    assert_eq!((site.queue.end(1), site.queue.end(2)), (Some(Outcome::Sent), Some(Outcome::Sent)));
}

#[tokio::test]
async fn an_effect_goes_after_a_dead_activation() {
    let site = Site::new(&["a"]);
    site.mock.answers(Answer::Reply(400, String::new()));
    site.queue.add(1, "a", event(), NOW_MS);
    site.queue.add(2, "a", activation(), NOW_MS);
    site.lane(0).drain().await.unwrap();
    assert_eq!((site.queue.end(1), site.queue.end(2)), (None, Some(Outcome::Dead)));
    site.clock.set_ms(NOW_MS + 2_000);
    site.lane(0).drain().await.unwrap();
    assert_eq!(site.queue.end(1), Some(Outcome::Dead));
}

/// The server of `a` fails for a day, while `b` has a server that works. They have one outbox.
#[tokio::test]
async fn an_endpoint_that_fails_for_a_day_delays_no_other() {
    let (site, other) = Site::with_two_hosts();
    site.mock.answers(Answer::Reply(502, String::new()));
    for key in 0..100 {
        site.queue.add(key, "a", numbered(key, activation()), NOW_MS);
    }
    let (mut failing, mut working) = (site.lane(0), site.lane(1));
    for step in 0_u32..288 {
        let now_ms = NOW_MS + i64::from(step) * DAY_MS / 288;
        site.clock.set_ms(now_ms);
        let key = 1_000 + step;
        site.queue.add(key, "b", numbered(key, activation()), now_ms);
        let (of_a, of_b) = tokio::join!(failing.drain(), working.drain());
        of_a.and(of_b).unwrap();
        assert_eq!(site.queue.end(key), Some(Outcome::Sent), "{step}");
    }
    assert_eq!(other.received().len(), 288);
    // Without the pauses of the host there would be 800 requests.
    let requests = site.mock.received().len();
    assert!((10..500).contains(&requests), "{requests}");
    site.mock.answers(Answer::Reply(200, "{\"result\":1}".to_owned()));
    for step in 0..288 {
        site.clock.set_ms(NOW_MS + DAY_MS + step * DAY_MS / 288);
        failing.drain().await.unwrap();
    }
    let ends: Vec<_> = (0..100).map(|key| site.queue.end(key)).collect();
    assert!(ends.iter().all(Option::is_some), "nothing is left pending");
    assert!(ends.contains(&Some(Outcome::Sent)));
}

/// The server of `a` keeps as many requests waiting as `a` may have at once. They have one outbox.
#[tokio::test]
async fn an_endpoint_that_does_not_answer_delays_no_other() {
    let (site, other) = Site::with_two_hosts();
    site.mock.answers(Answer::Silence);
    for key in 0..40 {
        site.queue.add(key, "a", numbered(key, activation()), NOW_MS);
        site.queue.add(100 + key, "b", numbered(key, activation()), NOW_MS);
    }
    let shutdown = async {
        site.mock.await_requests(16).await;
        other.await_requests(40).await;
        assert!((0..40).all(|key| site.queue.reasons(key).is_empty()), "none of them has ended");
        site.mock.end_silence(200, "{\"result\":1}");
    };
    deliver(site.sender.clone(), site.queue.clone(), shutdown).await.unwrap();
    assert!((100..140).all(|key| site.queue.end(key) == Some(Outcome::Sent)));
    assert_eq!(site.mock.received().len(), 16);
}

#[tokio::test]
async fn a_host_that_asks_for_rest_gets_it() {
    let site = Site::new(&["a"]);
    site.mock.answers(Answer::With(429, "Retry-After: 120", String::new()));
    site.queue.add(1, "a", activation(), NOW_MS);
    site.lane(0).drain().await.unwrap();
    assert_eq!(site.queue.due_ms(1), NOW_MS + 120_000);
    site.queue.add(2, "a", numbered(2, activation()), NOW_MS);
    site.lane(0).drain().await.unwrap();
    assert_eq!(site.mock.received().len(), 1);
    assert_eq!((site.queue.end(2), site.queue.due_ms(2)), (None, NOW_MS + 120_000));
}

/// A wait of days, by mistake, would make callbacks too old.
#[tokio::test]
async fn a_server_that_asks_for_a_day_gets_an_hour() {
    for status in [408, 429, 500] {
        let site = Site::new(&["a"]);
        site.mock.answers(Answer::With(status, "Retry-After: 86400", String::new()));
        site.queue.add(1, "a", activation(), NOW_MS);
        site.lane(0).drain().await.unwrap();
        assert_eq!(site.queue.due_ms(1), NOW_MS + 3_600_000, "{status}");
    }
}

/// Anybody can report clicks whose callbacks lead to a host of the network that fails.
#[tokio::test]
async fn a_host_of_clicks_that_fails_delays_no_other() {
    let [failing, working] = [Mock::start(), Mock::start()];
    failing.answers(Answer::Reply(500, String::new()));
    working.answers(Answer::Reply(200, "{\"result\":1}".to_owned()));
    let (sender, _) = sender_with(
        "[callbacks]\nallow_loopback = [\"localhost\", \"127.0.0.1\"]\n\
         [[callbacks.endpoint]]\nname = \"a\"\npreset = \"kuaishou\"\nrequests_per_second_max = 10000\n",
        timing(),
        lookup("127.0.0.1"),
    );
    let queue: Arc<Memory> = Arc::default();
    let add = |key: u32, url: &str| {
        let event = numbered(key, activation());
        let credit = Credit { callback: url.into(), ..event.credit };
        queue.add(key, "a", CallbackEvent { credit, ..event }, NOW_MS);
    };
    let failing_url = failing.url("/track").replace("localhost", "127.0.0.1");
    let endpoint = sender.endpoints()[0].clone();
    let mut lane = Lane::new(endpoint, Arc::new(sender), queue.clone()).unwrap();
    (0..12).for_each(|key| add(key, &failing_url));
    lane.drain().await.unwrap();
    (12..15).for_each(|key| add(key, &failing_url));
    (15..60).for_each(|key| add(key, &working.url("/track")));
    lane.drain().await.unwrap();
    assert!(queue.due_ms(12) > NOW_MS && queue.end(12).is_none(), "its host has a pause");
    for key in 15..60 {
        assert_eq!(queue.end(key), Some(Outcome::Sent), "{key}");
    }
    assert!((10..=12).contains(&failing.received().len()));
    // However many are before them.
    (60..200).for_each(|key| add(key, &failing_url));
    (200..210).for_each(|key| add(key, &working.url("/track")));
    lane.drain().await.unwrap();
    assert_eq!(failing.received().len(), 0);
    assert!((60..200).all(|key| queue.due_ms(key) > NOW_MS));
    for key in 200..210 {
        assert_eq!(queue.end(key), Some(Outcome::Sent), "{key}");
    }
}

#[tokio::test]
async fn a_failing_outbox_loses_nothing() {
    let site = Site::new(&["a"]);
    site.queue.add(1, "a", activation(), NOW_MS);
    *site.queue.fails.lock() = true;
    site.lane(0).drain().await.unwrap();
    assert_eq!((site.mock.received().len(), site.queue.end(1)), (0, None));
    *site.queue.fails.lock() = false;
    site.lane(0).drain().await.unwrap();
    assert_eq!(site.queue.end(1), Some(Outcome::Sent));
}

#[tokio::test]
async fn what_was_sent_is_kept_although_the_outbox_fails_at_first() {
    let site = Site::new(&["a"]);
    site.queue.add(1, "a", activation(), NOW_MS);
    *site.queue.failures.lock() = 2;
    site.lane(0).drain().await.unwrap();
    assert_eq!((site.mock.received().len(), site.queue.end(1)), (1, Some(Outcome::Sent)));
}

#[tokio::test]
async fn delivery_ends_after_its_requests() {
    let site = Site::new(&["a", "b"]);
    site.mock.answers(Answer::Silence);
    site.queue.add(1, "a", activation(), NOW_MS);
    site.queue.add(2, "b", activation(), NOW_MS);
    let (asked, was_asked) = oneshot::channel();
    let shutdown = async {
        site.mock.await_requests(2).await;
        asked.send(()).unwrap();
    };
    let mut delivery = pin!(deliver(site.sender.clone(), site.queue.clone(), shutdown));
    let lanes_have_run = async {
        was_asked.await.unwrap();
        for _ in 0..100 {
            yield_now().await;
        }
    };
    tokio::select! {
        biased;
        ended = &mut delivery => panic!("before its requests: {ended:?}"),
        () = lanes_have_run => {}
    }
    assert_eq!((site.queue.end(1), site.queue.end(2)), (None, None));
    site.mock.end_silence(200, "{\"result\":1}");
    delivery.await.unwrap();
    assert_eq!((site.queue.end(1), site.queue.end(2)), (Some(Outcome::Sent), Some(Outcome::Sent)));
    assert_eq!(site.mock.received().len(), 2);
    // Without endpoints there is nothing to do.
    let (none, _) = sender("");
    deliver(Arc::new(none), site.queue.clone(), std::future::pending()).await.unwrap();
}
