//! What masters do by procedures, and how: slowly, in part, twice, or another one in their place.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use hbase_client::proto::admin::{
    CreateTableRequest, GetProcedureResultRequest, GetProcedureResultResponse, ProcedureResponse,
    TableRequest,
};
use hbase_client::proto::rpc::{ForeignException, GenericException};
use hbase_client::{Client, Error, Family, RetryAdvice, TableSpec};
use prost::Message;
use tokio::time::Instant;

use crate::support::fake::{Heard, Model, Reply, Servers, TABLE};

const HBASE: &str = "org.apache.hadoop.hbase";
const UNKNOWN: i32 = 0;
const RUNNING: i32 = 1;
const FINISHED: i32 = 2;

/// What all masters of a cluster know of procedures.
#[derive(Debug, Default)]
struct Procedures {
    /// The nonces of those that were begun: their numbers are their places, from 1.
    begun: Vec<(u64, u64)>,
    /// So often each is still running when it is asked for.
    polls: usize,
    exception: Option<ForeignException>,
    are_forgotten: bool,
}

impl Procedures {
    fn reply(&mut self, heard: &Heard) -> Reply {
        let nonces = match &*heard.method {
            "CreateTable" => {
                let request = CreateTableRequest::decode(heard.param.clone()).unwrap();
                (request.nonce_group, request.nonce)
            }
            "DeleteTable" | "EnableTable" | "DisableTable" => {
                let request = TableRequest::decode(heard.param.clone()).unwrap();
                (request.nonce_group, request.nonce)
            }
            // With a small letter: no master knows another one.
            "getProcedureResult" => return self.result(heard),
            other => panic!("nobody asks for {other}"),
        };
        // 0 would be none.
        let nonces = (nonces.0.filter(|&n| n > 0).unwrap(), nonces.1.filter(|&n| n > 0).unwrap());
        let known = self.begun.iter().position(|known| *known == nonces);
        let place = known.unwrap_or_else(|| {
            self.begun.push(nonces);
            self.begun.len() - 1
        });
        Reply::answer(&ProcedureResponse { proc_id: Some(place as u64 + 1) })
    }

    fn result(&mut self, heard: &Heard) -> Reply {
        let id = GetProcedureResultRequest::decode(heard.param.clone()).unwrap().proc_id;
        assert!((1..=self.begun.len() as u64).contains(&id), "{id} was not begun");
        let (state, exception) = match self.polls {
            _ if self.are_forgotten => (UNKNOWN, None),
            0 => (FINISHED, self.exception.clone()),
            _ => (RUNNING, None),
        };
        self.polls = self.polls.saturating_sub(1);
        Reply::answer(&GetProcedureResultResponse { state, exception })
    }
}

/// Servers whose masters have these procedures, unless what stands before says something else.
async fn masters(
    procedures: Procedures,
    mut before: impl FnMut(&Heard, &mut Model, &mut Procedures) -> Option<Reply> + Send + 'static,
) -> (Servers, Client, Arc<Mutex<Procedures>>) {
    let servers = Servers::new();
    let client = servers.connect(Servers::config()).await.unwrap();
    let shared = Arc::new(Mutex::new(procedures));
    let known = shared.clone();
    servers.script(move |heard, model| {
        let procedures = &mut *known.lock().unwrap();
        let is_asked = heard.service == "MasterService";
        is_asked.then(|| {
            let reply = before(heard, model, procedures);
            reply.unwrap_or_else(|| procedures.reply(heard))
        })
    });
    (servers, client, shared)
}

async fn create(client: &Client) -> Result<(), Error> {
    let spec = TableSpec::new(TABLE).family(Family::new("d"));
    client.admin().create(&spec, &["m".into()]).await
}

fn is_of_master(heard: &Heard) -> bool {
    heard.service == "MasterService"
}

#[tokio::test(start_paused = true)]
async fn table_is_there_once_its_procedure_has_finished() {
    let procedures = Procedures { polls: 9, ..Procedures::default() };
    let (servers, client, procedures) = masters(procedures, |_, _, _| None).await;
    let begun = Instant::now();
    create(&client).await.unwrap();
    assert_eq!(procedures.lock().unwrap().begun.len(), 1);
    assert_eq!(servers.count(|heard| heard.method == "getProcedureResult"), 10);
    // 20 ms at first, and twice as long each time: a master is not asked all the time.
    let waited = begun.elapsed();
    assert!(waited > Duration::from_secs(4) && waited < Duration::from_secs(10), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn procedure_that_failed_tells_why() {
    let generic = GenericException {
        class_name: Some(format!("{HBASE}.DoNotRetryIOException")),
        message: Some("as the test wants".to_owned()),
    };
    let exception = Some(ForeignException { generic: Some(generic) });
    let procedures = Procedures { polls: 2, exception, ..Procedures::default() };
    let (_, client, _) = masters(procedures, |_, _, _| None).await;
    let error = create(&client).await.unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error}");
    assert!(error.to_string().contains("DoNotRetryIOException: as the test wants"), "{error}");
    assert_eq!(error.advice(), RetryAdvice::Change);
}

#[tokio::test(start_paused = true)]
async fn procedure_that_the_master_does_not_know_is_no_success() {
    let procedures = Procedures { are_forgotten: true, ..Procedures::default() };
    let (_, client, _) = masters(procedures, |_, _, _| None).await;
    let error = create(&client).await.unwrap_err().to_string();
    assert!(error.contains("does not know any more whether CreateTable was done"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn procedure_that_never_finishes_ends_at_the_deadline() {
    let procedures = Procedures { polls: usize::MAX, ..Procedures::default() };
    let (_, client, _) = masters(procedures, |_, _, _| None).await;
    let begun = Instant::now();
    let error = create(&client).await.unwrap_err();
    assert!(error.to_string().contains("CreateTable was not done within 60s"), "{error}");
    assert!((57..=60).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
}

/// At each call to the master, of which a creation has four; the table is made once.
async fn check_at_every_call(
    happening: impl Fn(&Heard, &mut Model, &mut Procedures) -> Reply + Copy + Send + 'static,
) {
    for at in 0..4 {
        let (mut calls, procedures) = (0, Procedures { polls: 2, ..Procedures::default() });
        let (servers, client, procedures) = masters(procedures, move |heard, model, procedures| {
            calls += 1;
            (calls == at + 1).then(|| happening(heard, model, procedures))
        })
        .await;
        create(&client).await.unwrap();
        assert_eq!(procedures.lock().unwrap().begun.len(), 1, "at call {at}");
        let calls = servers.count(is_of_master);
        assert!((4..=6).contains(&calls), "{calls} calls, with something at {at}");
    }
}

#[tokio::test(start_paused = true)]
async fn lost_answer_is_asked_for_with_the_same_nonce() {
    check_at_every_call(|heard, _, procedures| {
        procedures.reply(heard);
        Reply::Close
    })
    .await;
    check_at_every_call(|heard, _, procedures| {
        procedures.reply(heard);
        Reply::Never
    })
    .await;
    check_at_every_call(|_, _, _| Reply::Close).await;
}

#[tokio::test(start_paused = true)]
async fn master_that_changes_is_followed() {
    // The master dies, and another one takes over, which knows what was begun.
    check_at_every_call(|heard, model, procedures| {
        procedures.reply(heard);
        model.down.insert("s1:1".to_owned());
        model.master = Some("s3:1".to_owned());
        Reply::Close
    })
    .await;
    // One that is not master any more, and one that is not yet.
    check_at_every_call(|_, model, _| {
        model.master = Some("s2:1".to_owned());
        Reply::exception("org.apache.hadoop.hbase.ipc.ServerNotRunningYetException")
    })
    .await;
    check_at_every_call(|_, _, _| Reply::exception("org.apache.hadoop.hbase.PleaseHoldException"))
        .await;
}

#[tokio::test(start_paused = true)]
async fn cluster_without_a_master_is_waited_for() {
    let (servers, client, procedures) = masters(Procedures::default(), |_, _, _| None).await;
    servers.model(|model| model.master = None);
    let electing = servers.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(5)).await;
        electing.model(|model| model.master = Some("s2:1".to_owned()));
    });
    let begun = Instant::now();
    create(&client).await.unwrap();
    assert!((5..8).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
    assert_eq!(procedures.lock().unwrap().begun.len(), 1);
}

const ENABLED: Option<i32> = Some(0);
const DISABLED: Option<i32> = Some(1);
const DISABLING: Option<i32> = Some(2);

/// The first try ends so, and the second one is refused; five seconds later the table is of that state.
async fn then_refused(
    what: &str,
    first: Reply,
    class: &'static str,
    state: Option<i32>,
) -> Result<(), Error> {
    let mut calls = 0;
    let (servers, client, _) = masters(Procedures::default(), move |_, model, _| {
        calls += 1;
        if calls == 1 {
            model.state = DISABLING;
        }
        Some(if calls == 1 { first.clone() } else { Reply::exception(class) })
    })
    .await;
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(5)).await;
        servers.model(|model| model.state = state);
    });
    let admin = client.admin();
    match what {
        "create" => create(&client).await,
        "delete" => admin.delete(TABLE).await,
        "enable" => admin.enable(TABLE).await,
        _ => admin.disable(TABLE).await,
    }
}

#[tokio::test(start_paused = true)]
async fn what_ones_own_lost_try_has_done_is_no_failure() {
    for (what, class, state) in [
        ("create", "org.apache.hadoop.hbase.TableExistsException", ENABLED),
        ("delete", "org.apache.hadoop.hbase.TableNotFoundException", None),
        ("enable", "org.apache.hadoop.hbase.TableNotDisabledException", ENABLED),
        ("disable", "org.apache.hadoop.hbase.TableNotEnabledException", DISABLED),
    ] {
        // As of a master that has forgotten the nonce; what it has begun is waited for.
        let begun = Instant::now();
        then_refused(what, Reply::Close, class, state).await.unwrap();
        assert!((5..8).contains(&begun.elapsed().as_secs()), "{what}: {:?}", begun.elapsed());
        // That never ends.
        let error = then_refused(what, Reply::Close, class, DISABLING).await.unwrap_err();
        assert!(error.to_string().contains("has not come to its end"), "{what}: {error}");
        // One that was surely not begun, and one that is refused at once, did nothing.
        let held = Reply::exception("org.apache.hadoop.hbase.PleaseHoldException");
        for first in [held, Reply::exception(class)] {
            let error = then_refused(what, first, class, state).await.unwrap_err();
            assert!(error.to_string().contains(class), "{error}");
            assert_eq!(error.advice(), RetryAdvice::Change);
        }
        // What else is refused, is.
        let denied = "org.apache.hadoop.hbase.security.AccessDeniedException";
        let error = then_refused(what, Reply::Close, denied, state).await.unwrap_err();
        assert!(error.to_string().contains(denied), "{error}");
    }
}

/// Somebody else's disabling, at whose end the table can be enabled.
#[tokio::test(start_paused = true)]
async fn what_somebody_else_is_doing_is_waited_for_and_asked_again_then() {
    let mut calls = 0;
    let (servers, client, procedures) = masters(Procedures::default(), move |_, model, _| {
        calls += 1;
        match calls {
            1 => {
                model.state = DISABLING;
                Some(Reply::Close)
            }
            _ if model.state == DISABLING => {
                Some(Reply::exception("org.apache.hadoop.hbase.TableNotDisabledException"))
            }
            _ => None,
        }
    })
    .await;
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(5)).await;
        servers.model(|model| model.state = DISABLED);
    });
    let begun = Instant::now();
    client.admin().enable(TABLE).await.unwrap();
    assert!((5..10).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
    assert_eq!(procedures.lock().unwrap().begun.len(), 1);
}
