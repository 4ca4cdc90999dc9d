//! The service: all roles in one process over the embedded store.

use std::sync::Arc;
use std::sync::mpsc::{channel, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use attribution::ledger::{Facts, Ledger, Progress};
use attribution::worker::Worker;
use config::Config;
use export::admin::Admin;
use export::{Access, ExportState};
use ingest::{Health, Shutdown};
use metrics_exporter_prometheus::PrometheusHandle;
use store::embedded::{Embedded, EngineMetrics, Room};
use store::scan::Reader;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use crate::control;
use crate::pipeline::{self, PipelineMetrics};

/// Batches that wait for the worker: one is being decided, two are ready.
const BATCHES_WAITING: usize = 2;
const SUPERVISION: Duration = Duration::from_millis(50);
/// What downloads have to end in once they are cut off.
const CUT_OFF_MAX: Duration = Duration::from_secs(1);

/// Runs until the wish to stop, then drains: what has been read is committed, downloads under
/// way may end, and all is over by the deadline of the settings.
///
/// # Errors
/// What keeps the service from starting, or ended it.
pub fn run(config: &Config, shutdown: &Shutdown, recorder: PrometheusHandle) -> anyhow::Result<()> {
    let runtime = Runtime::new().context("the runtime for the listeners does not start")?;
    let listeners = Listeners::bind(&runtime, config)?;
    let embedded = Embedded::open(&config.store, &config.policy)?;
    let (reader, checkpoints) = (embedded.reader(), embedded.checkpoints());
    let engine = EngineMetrics::new(embedded.engine());
    let room = embedded.wait_for_room();
    let mut worker = Worker::new(embedded, Arc::clone(&config.policy));
    let positions = worker.ledger_mut().positions()?;
    let progress = Progress { positions, consumed_until: worker.ledger().consumed_until() };

    // Before anything is read: until here a signal just ends the process, and nothing is lost by it.
    listen_for_signals(&runtime, shutdown).context("signals can not be listened for")?;
    let metrics = Arc::new(PipelineMetrics::new(config));
    let health = Arc::new(Health::default());
    let (batches, batches_in) = sync_channel(BATCHES_WAITING);
    let (committed, committed_in) = channel();
    let (stop, state) = (shutdown.clone(), Arc::clone(&health));
    let intake = ingest::start(config, &progress, batches, committed_in, stop, state)?;
    let attribution = pipeline::start(worker, batches_in, committed, Arc::clone(&metrics))?;
    let control = control::start(&config.store.path, checkpoints, shutdown)?;

    let access = Access::new(&config.tokens, config.downloads_per_token_max);
    let intake_state = Arc::clone(&health);
    let complete_until = Arc::new(move || intake_state.complete_until());
    let export =
        ExportState::new(reader.clone(), Arc::clone(&config.policy), access, complete_until);
    let admin = admin((metrics, recorder), (engine, reader), (health, room.clone()));
    tracing::info!(
        export = %config.export_listen,
        admin = %config.admin_listen,
        store = %config.store.path.display(),
        "adtrail runs"
    );
    let servers = runtime.spawn(listeners.serve(export, admin, shutdown.clone()));
    let mut is_full = false;
    while !shutdown.is_requested() {
        if intake.is_finished() || attribution.is_finished() || servers.is_finished() {
            shutdown.request();
        }
        let waits = room.is_awaited();
        if waits != is_full {
            is_full = waits;
            tell_of_room(config, is_full);
        }
        shutdown.sleep(SUPERVISION);
    }
    room.give_up();
    let deadline = Instant::now() + config.shutdown_deadline;
    let outcome = end(intake, attribution, control, deadline);
    let remaining = deadline.saturating_duration_since(Instant::now());
    let served = runtime.block_on(async { tokio::time::timeout(remaining, servers).await });
    // A download that is still under way is cut off here, and its client can tell. Its line in the
    // log may be written yet.
    runtime.shutdown_timeout(CUT_OFF_MAX);
    let left = outcome?;
    if let Ok(served) = served {
        served.context("the listeners failed")?.context("the listeners failed")?;
    }
    match left {
        0 => tracing::info!("adtrail has stopped; everything read is committed"),
        left => tracing::info!(left, "adtrail has stopped; so many records are read again"),
    }
    Ok(())
}

fn tell_of_room(config: &Config, is_full: bool) {
    let path = config.store.path.display();
    if is_full {
        tracing::error!(
            store = %path,
            "the disk of store.path is full: nothing is committed, and soon nothing read, until there is \
             room; downloads go on, and nothing is lost"
        );
    } else {
        tracing::info!(store = %path, "there is room on the disk of store.path again");
    }
}

/// Waits for the threads, and tells the reason if one of them failed: how many records were read and
/// are not committed.
fn end(
    intake: JoinHandle<Result<u64, ingest::IngestError>>,
    attribution: JoinHandle<anyhow::Result<()>>,
    control: JoinHandle<()>,
    deadline: Instant,
) -> anyhow::Result<u64> {
    while !(intake.is_finished() && attribution.is_finished() && control.is_finished()) {
        if Instant::now() >= deadline {
            bail!("not stopped within run.shutdown_deadline; what is not committed is read again");
        }
        std::thread::sleep(SUPERVISION);
    }
    let panicked = "a thread has panicked";
    attribution.join().map_err(|_| anyhow::anyhow!(panicked))??;
    let left = intake.join().map_err(|_| anyhow::anyhow!(panicked))??;
    control.join().map_err(|_| anyhow::anyhow!(panicked))?;
    Ok(left)
}

fn admin(
    (metrics, recorder): (Arc<PipelineMetrics>, PrometheusHandle),
    (engine, reader): (EngineMetrics, Reader),
    (health, room): (Arc<Health>, Room),
) -> Admin {
    let observed = Arc::clone(&health);
    let render = move || {
        engine.observe();
        metrics.scrape(&observed, &reader, || recorder.render())
    };
    let ready = move || {
        if room.is_awaited() {
            Err("the disk of store.path is full: nothing is committed until there is room"
                .to_owned())
        } else if health.is_ready() {
            Ok(())
        } else if health.is_silent() {
            Err("the thread that reads kafka has said nothing for a minute".to_owned())
        } else if let Some(topics) = health.denied() {
            Err(format!("kafka does not let adtrail read: {topics}"))
        } else if health.is_connected() && health.are_letters_waiting() {
            Err("dead letters are not acknowledged, reading waits for them".to_owned())
        } else if health.is_connected() && health.is_assigned() {
            Err("events wait for a schema, and the schema registry does not answer".to_owned())
        } else if health.is_connected() {
            Err("no partitions are assigned yet".to_owned())
        } else if let Some(reason) = health.refusal() {
            Err(format!("kafka refuses the connection: {reason}"))
        } else {
            Err("kafka can not be reached".to_owned())
        }
    };
    Admin { metrics: Arc::new(render), readiness: Arc::new(ready) }
}

/// Both listeners, bound before anything else is started.
struct Listeners {
    export: TcpListener,
    admin: TcpListener,
}

impl Listeners {
    fn bind(runtime: &Runtime, config: &Config) -> anyhow::Result<Self> {
        let bind = |setting: &str, address| {
            runtime
                .block_on(TcpListener::bind(address))
                .with_context(|| format!("{setting} = \"{address}\" can not be listened on"))
        };
        Ok(Self {
            export: bind("export.listen", config.export_listen)?,
            admin: bind("admin.listen", config.admin_listen)?,
        })
    }

    async fn serve(
        self,
        export: ExportState,
        admin: Admin,
        shutdown: Shutdown,
    ) -> std::io::Result<()> {
        let admin = export::admin::serve(self.admin, admin, requested(shutdown.clone()));
        let export = export::serve(self.export, export, requested(shutdown));
        tokio::try_join!(export, admin).map(|_| ())
    }
}

async fn requested(shutdown: Shutdown) {
    while !shutdown.is_requested() {
        tokio::time::sleep(SUPERVISION).await;
    }
}

/// From now on SIGINT and SIGTERM are wishes to stop, however many come.
fn listen_for_signals(runtime: &Runtime, shutdown: &Shutdown) -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let _within = runtime.enter();
    let (mut interrupt, mut terminate) =
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let stop = shutdown.clone();
    runtime.spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        tracing::info!("stopping");
        stop.request();
    });
    Ok(())
}
