//! Master procedures: slow and failed ones, lost responses, and changes of the active master.

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

use crate::support::fake::{Call, Model, Reply, Servers, TABLE};

const UNKNOWN: i32 = 0;
const RUNNING: i32 = 1;
const FINISHED: i32 = 2;

/// The procedures of a cluster, shared by its masters.
#[derive(Debug, Default)]
struct Procedures {
    /// The nonces of started procedures. The id of a procedure is its index plus 1.
    started: Vec<(u64, u64)>,
    /// The number of further polls for which procedures are still running.
    polls: usize,
    exception: Option<ForeignException>,
    are_forgotten: bool,
}

impl Procedures {
    fn reply(&mut self, call: &Call) -> Reply {
        let nonces = match &*call.method {
            "CreateTable" => {
                let request = CreateTableRequest::decode(call.param.clone()).unwrap();
                (request.nonce_group, request.nonce)
            }
            "DeleteTable" | "EnableTable" | "DisableTable" => {
                let request = TableRequest::decode(call.param.clone()).unwrap();
                (request.nonce_group, request.nonce)
            }
            // Starts with a lowercase letter, unlike all other methods.
            "getProcedureResult" => return self.result(call),
            other => panic!("unexpected method {other}"),
        };
        // 0 means no nonce.
        let nonces = (nonces.0.filter(|&n| n > 0).unwrap(), nonces.1.filter(|&n| n > 0).unwrap());
        let known = self.started.iter().position(|known| *known == nonces);
        let index = known.unwrap_or_else(|| {
            self.started.push(nonces);
            self.started.len() - 1
        });
        Reply::response(&ProcedureResponse { proc_id: Some(index as u64 + 1) })
    }

    fn result(&mut self, call: &Call) -> Reply {
        let id = GetProcedureResultRequest::decode(call.param.clone()).unwrap().proc_id;
        assert!((1..=self.started.len() as u64).contains(&id), "procedure {id} was not started");
        let (state, exception) = match self.polls {
            _ if self.are_forgotten => (UNKNOWN, None),
            0 => (FINISHED, self.exception.clone()),
            _ => (RUNNING, None),
        };
        self.polls = self.polls.saturating_sub(1);
        Reply::response(&GetProcedureResultResponse { state, exception })
    }
}

/// Returns servers whose masters run these procedures, unless `before` returns another reply.
async fn masters(
    procedures: Procedures,
    mut before: impl FnMut(&Call, &mut Model, &mut Procedures) -> Option<Reply> + Send + 'static,
) -> (Servers, Client, Arc<Mutex<Procedures>>) {
    let servers = Servers::new();
    let client = servers.connect(Servers::config()).await.unwrap();
    let shared = Arc::new(Mutex::new(procedures));
    let known = shared.clone();
    servers.script(move |call, model| {
        let procedures = &mut *known.lock().unwrap();
        is_to_master(call).then(|| {
            let reply = before(call, model, procedures);
            reply.unwrap_or_else(|| procedures.reply(call))
        })
    });
    (servers, client, shared)
}

async fn create(client: &Client) -> Result<(), Error> {
    let spec = TableSpec::new(TABLE).family(Family::new("d"));
    client.admin().create(&spec, &["m".into()]).await
}

fn is_to_master(call: &Call) -> bool {
    call.service == "MasterService"
}

#[tokio::test(start_paused = true)]
async fn creation_returns_once_its_procedure_has_finished() {
    let procedures = Procedures { polls: 9, ..Procedures::default() };
    let (servers, client, procedures) = masters(procedures, |_, _, _| None).await;
    let started = Instant::now();
    create(&client).await.unwrap();
    assert_eq!(procedures.lock().unwrap().started.len(), 1);
    assert_eq!(servers.count(|call| call.method == "getProcedureResult"), 10);
    // The delay between polls starts at 20 ms and doubles.
    let waited = started.elapsed();
    assert!(waited > Duration::from_secs(4) && waited < Duration::from_secs(10), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn exception_of_a_failed_procedure_is_returned() {
    let generic = GenericException {
        class_name: Some("a.DoNotRetryIOException".to_owned()),
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
async fn procedure_that_the_master_has_forgotten_is_an_error() {
    let procedures = Procedures { are_forgotten: true, ..Procedures::default() };
    let (_, client, _) = masters(procedures, |_, _, _| None).await;
    let error = create(&client).await.unwrap_err().to_string();
    assert!(error.contains("no longer knows the result of CreateTable"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn procedure_that_never_finishes_ends_at_the_deadline() {
    let procedures = Procedures { polls: usize::MAX, ..Procedures::default() };
    let (_, client, _) = masters(procedures, |_, _, _| None).await;
    let started = Instant::now();
    let error = create(&client).await.unwrap_err();
    assert!(error.to_string().contains("CreateTable timed out after 60s"), "{error}");
    assert!((57..=60).contains(&started.elapsed().as_secs()), "{:?}", started.elapsed());
}

/// Checks that a table is created once with a fault at each of the four calls to the master.
async fn check_at_every_call(
    fault: impl Fn(&Call, &mut Model, &mut Procedures) -> Reply + Copy + Send + 'static,
) {
    for at in 0..4 {
        let (mut calls, procedures) = (0, Procedures { polls: 2, ..Procedures::default() });
        let (servers, client, procedures) = masters(procedures, move |call, model, procedures| {
            calls += 1;
            (calls == at + 1).then(|| fault(call, model, procedures))
        })
        .await;
        create(&client).await.unwrap();
        assert_eq!(procedures.lock().unwrap().started.len(), 1, "at call {at}");
        let calls = servers.count(is_to_master);
        assert!((4..=6).contains(&calls), "{calls} calls, with a fault at {at}");
    }
}

#[tokio::test(start_paused = true)]
async fn request_with_a_lost_response_is_repeated_with_the_same_nonce() {
    check_at_every_call(|call, _, procedures| {
        procedures.reply(call);
        Reply::Close
    })
    .await;
    check_at_every_call(|call, _, procedures| {
        procedures.reply(call);
        Reply::Never
    })
    .await;
    check_at_every_call(|_, _, _| Reply::Close).await;
}

#[tokio::test(start_paused = true)]
async fn change_of_the_active_master_is_followed() {
    // The master dies, and another one takes over its procedures.
    check_at_every_call(|call, model, procedures| {
        procedures.reply(call);
        model.down.insert("s1:1".to_owned());
        model.master = Some("s3:1".to_owned());
        Reply::Close
    })
    .await;
    // The called server is no longer the active master, or not yet.
    check_at_every_call(|_, model, _| {
        model.master = Some("s2:1".to_owned());
        Reply::exception("ipc.ServerNotRunningYetException")
    })
    .await;
    check_at_every_call(|_, _, _| Reply::exception("PleaseHoldException")).await;
}

#[tokio::test(start_paused = true)]
async fn cluster_without_a_master_is_waited_for() {
    let (servers, client, procedures) = masters(Procedures::default(), |_, _, _| None).await;
    servers.model(|model| model.master = None);
    let started = Instant::now();
    let error = create(&client).await.unwrap_err();
    assert!(matches!(error, Error::Deadline { .. }), "{error}");
    assert!(error.to_string().contains("no active master"), "{error}");
    assert!(started.elapsed() <= Duration::from_secs(60));
    servers.model_after(5, |model| model.master = Some("s2:1".to_owned()));
    let started = Instant::now();
    create(&client).await.unwrap();
    assert!((5..8).contains(&started.elapsed().as_secs()), "{:?}", started.elapsed());
    assert_eq!(procedures.lock().unwrap().started.len(), 1);
}

const ENABLED: Option<i32> = Some(0);
const DISABLED: Option<i32> = Some(1);
const DISABLING: Option<i32> = Some(2);

/// Runs an operation whose first attempt gets `first_reply`, and whose later attempts get an exception. After five
/// seconds the table is in `state`.
async fn run_with_refused_retries(
    operation: &str,
    first_reply: Reply,
    class: &'static str,
    state: Option<i32>,
) -> Result<(), Error> {
    let mut calls = 0;
    let (servers, client, _) = masters(Procedures::default(), move |_, model, _| {
        calls += 1;
        if calls == 1 {
            model.state = DISABLING;
        }
        Some(if calls == 1 { first_reply.clone() } else { Reply::exception(class) })
    })
    .await;
    servers.model_after(5, move |model| model.state = state);
    let admin = client.admin();
    match operation {
        "create" => create(&client).await,
        "delete" => admin.delete(TABLE).await,
        "enable" => admin.enable(TABLE).await,
        _ => admin.disable(TABLE).await,
    }
}

#[tokio::test(start_paused = true)]
async fn target_state_reached_by_a_lost_attempt_is_a_success() {
    for (operation, class, state) in [
        ("create", "TableExistsException", ENABLED),
        ("delete", "TableNotFoundException", None),
        ("enable", "TableNotDisabledException", ENABLED),
        ("disable", "TableNotEnabledException", DISABLED),
    ] {
        // The master has forgotten the nonce. The client waits for the change of state.
        let started = Instant::now();
        run_with_refused_retries(operation, Reply::Close, class, state).await.unwrap();
        assert!(
            (5..8).contains(&started.elapsed().as_secs()),
            "{operation}: {:?}",
            started.elapsed()
        );
        // The change of state never completes.
        let error =
            run_with_refused_retries(operation, Reply::Close, class, DISABLING).await.unwrap_err();
        let expected = "is still being enabled or disabled";
        assert!(error.to_string().contains(expected), "{operation}: {error}");
        // If the first attempt was certainly not executed, or was itself refused, it did not cause the state.
        let not_executed = Reply::exception("PleaseHoldException");
        for first_reply in [not_executed, Reply::exception(class)] {
            let error =
                run_with_refused_retries(operation, first_reply, class, state).await.unwrap_err();
            assert!(error.to_string().contains(class), "{error}");
            assert_eq!(error.advice(), RetryAdvice::Change);
        }
        // Any other exception is returned.
        let denied = "security.AccessDeniedException";
        let error =
            run_with_refused_retries(operation, Reply::Close, denied, state).await.unwrap_err();
        assert!(error.to_string().contains(denied), "{error}");
    }
}

/// Another client disables the table, which can only be enabled afterwards.
#[tokio::test(start_paused = true)]
async fn change_by_another_client_is_waited_for_before_a_retry() {
    let mut calls = 0;
    let (servers, client, procedures) = masters(Procedures::default(), move |_, model, _| {
        calls += 1;
        match calls {
            1 => {
                model.state = DISABLING;
                Some(Reply::Close)
            }
            _ if model.state == DISABLING => Some(Reply::exception("TableNotDisabledException")),
            _ => None,
        }
    })
    .await;
    servers.model_after(5, |model| model.state = DISABLED);
    let started = Instant::now();
    client.admin().enable(TABLE).await.unwrap();
    assert!((5..10).contains(&started.elapsed().as_secs()), "{:?}", started.elapsed());
    assert_eq!(procedures.lock().unwrap().started.len(), 1);
}
