//! `adtrail demo`: the whole pipeline in one process, with generated traffic and a built-in broker.
//!
//! The service is the one that `adtrail run` starts. The demo only produces events, waits, downloads rows as any user
//! would, and prints them. All files are in a temporary folder, which is deleted at the end.

mod broker;
mod metrics;
mod network;
mod progress;
mod report;
mod reports;
pub mod traffic;

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail, ensure};
use attribution::rules::row::EventType;
use config::Config;
use ingest::{Shutdown, TopicKind, TopicNames};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use metrics_exporter_prometheus::PrometheusHandle;
use tempfile::TempDir;

use self::metrics::Metrics;
use crate::cli;
use crate::commands::print;
use crate::http_client;
use crate::service::{self, shutdown_deadline};
use crate::telemetry;
use crate::timing::Timing;
use broker::Broker;
use network::Network;
use progress::Progress;
use report::{Counts, Links};
use traffic::catalogue::{self, APPS};
use traffic::{Plan, Traffic};

/// A fixed seed, so that every machine gets the same events. This one gives varied first rows.
const SEED: u64 = 5;
const DAY_MS: i64 = 86_400_000;
const PAST_MS: i64 = 3 * DAY_MS;
/// About 40,000 messages.
const PAST_JOURNEYS: u32 = 14_700;
/// Duration of live events (10 to 20 per second); limited because the store is in a temporary folder.
const LIVE_MS: i64 = 2 * 3_600_000;
const LIVE_JOURNEYS: u32 = 72_000;
const LIVE_INTERVAL: Duration = Duration::from_millis(100);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Time without progress after which the demo fails.
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(30);

/// Runs until Ctrl-C or, with `--once`, until the first rows are printed.
pub fn run(options: &cli::Demo, timing: Timing) -> anyhow::Result<()> {
    let folder =
        TempDir::with_prefix("adtrail-demo-").context("the temporary folder cannot be created")?;
    let broker = Broker::start()?;
    let network = Network::start()?;
    let settings = write_settings(&broker, &network, folder.path())?;
    let config = config::parse(&fs::read_to_string(&settings)?)?;
    let collect = config.collect.as_ref().context("the settings have no collector")?;
    let collect_listen = collect.listen;
    let names = TopicNames::new(&config.kafka.topics);
    broker.create_topics(&names)?;
    let recorder = telemetry::start_metrics()?;
    let shutdown = Shutdown::default();
    shutdown_deadline::watch(&shutdown, config.shutdown_deadline, timing.forced_exit_grace)?;
    let service = {
        let (config, shutdown, recorder) = (config.clone(), shutdown.clone(), recorder.clone());
        thread::Builder::new()
            .name("service".into())
            .spawn(move || service::run(&config, timing, &shutdown, recorder))
            .context("the service thread cannot be started")?
    };
    let demo =
        Demo { config, settings, collect_listen, names, broker, recorder, shutdown, service };
    let outcome = demo.run(options.once);
    demo.shutdown.request();
    let served = demo.service.join().map_err(|_| anyhow!("the service panicked"))?;
    served.and(outcome)
}

struct Demo {
    config: Config,
    settings: PathBuf,
    collect_listen: SocketAddr,
    names: TopicNames,
    broker: Broker,
    recorder: PrometheusHandle,
    shutdown: Shutdown,
    service: JoinHandle<anyhow::Result<()>>,
}

impl Demo {
    /// Runs the demo. Returns early if the service ends; the service's result has the reason.
    fn run(&self, once: bool) -> anyhow::Result<()> {
        let now = Timestamp::now();
        let to_ms = now.as_millisecond();
        let (seed, from_ms) = (SEED, to_ms - PAST_MS);
        let past = Traffic::new(Plan { seed, from_ms, to_ms, journeys: PAST_JOURNEYS });
        if !self.wait_until_ready() || !self.attribute(past)? {
            return Ok(());
        }
        let day = |time: Timestamp| time.to_zoned(TimeZone::UTC).date();
        let links = Links {
            export: self.config.export_listen,
            admin: self.config.admin_listen,
            collect: self.collect_listen,
            settings: &self.settings,
            from: day(Timestamp::from_millisecond(from_ms)?),
            to: day(now),
        };
        print(self.report(&links)?.as_bytes())?;
        if once {
            return Ok(());
        }
        let links = links.text();
        print(format!("\n{links}\nLive events are produced until Ctrl-C.\n").as_bytes())?;
        self.produce_live_events()
    }

    fn wait_until_ready(&self) -> bool {
        while self.is_running() {
            if http_client::get(self.config.admin_listen, "/readyz").is_ok() {
                return true;
            }
            self.shutdown.sleep(POLL_INTERVAL);
        }
        false
    }

    /// Produces all events and waits until they are attributed; `false` if interrupted.
    fn attribute(&self, past: Traffic) -> anyhow::Result<bool> {
        let messages: Vec<_> = past.collect();
        let total = u64::try_from(messages.len())?;
        let mut progress = Progress::new(total);
        progress.set_step("producing generated events");
        for message in &messages {
            self.broker.send(&self.names, message)?;
        }
        self.broker.flush()?;
        progress.set_step("attributing events");
        let (mut processed, mut progress_at) = (0, Instant::now());
        while processed < total {
            if !self.is_running() {
                return Ok(false);
            }
            self.shutdown.sleep(POLL_INTERVAL);
            let before = processed;
            processed = self.metrics().processed();
            progress.update(processed);
            if processed > before {
                progress_at = Instant::now();
            } else if progress_at.elapsed() > PROGRESS_TIMEOUT {
                bail!("no progress for {PROGRESS_TIMEOUT:?} at event {processed} of {total}");
            }
        }
        progress.finish("attributed");
        Ok(true)
    }

    /// Downloads the first rows and the summary from the service.
    fn report(&self, links: &Links<'_>) -> anyhow::Result<String> {
        let get = |app_key: &str, fields: &str| {
            http_client::get(links.export, &format!("{}&fields={fields}", links.csv_path(app_key)))
        };
        let table = report::table(&get(APPS[0].key, report::FIELDS)?)?;
        let mut counts = Counts::default();
        for app in &APPS {
            counts.add(&get(app.key, "event_type,status")?)?;
        }
        let metrics = self.metrics();
        let accepted = |topic| metrics.accepted(self.names.of(topic));
        for (event_type, topic) in [
            (EventType::Activation, TopicKind::Activations),
            (EventType::Effect, TopicKind::Effects),
        ] {
            let (rows, events) = (counts.of(event_type), accepted(topic));
            ensure!(rows == events, "the CSV has {rows} of {events} {}s", event_type.name());
        }
        let summary = report::summary(&counts, accepted(TopicKind::Clicks), &metrics);
        Ok(format!(
            "\nThe first rows of {}, some of the columns\n\n{table}\n{summary}",
            APPS[0].name
        ))
    }

    /// Sends live events, each at its arrival time, until shutdown. One channel reports its clicks to the collector.
    fn produce_live_events(&self) -> anyhow::Result<()> {
        let from_ms = Timestamp::now().as_millisecond();
        let (seed, to_ms) = (SEED + 1, from_ms + LIVE_MS);
        let live = Traffic::new(Plan { seed, from_ms, to_ms, journeys: LIVE_JOURNEYS });
        let mut live = live.peekable();
        while self.is_running() {
            let now_ms = Timestamp::now().as_millisecond();
            while let Some(message) = live.next_if(|message| message.arrival_ms <= now_ms) {
                match reports::path(&message) {
                    Some(path) => self.send_report(&path),
                    None => self.broker.send(&self.names, &message)?,
                }
            }
            self.shutdown.sleep(LIVE_INTERVAL);
        }
        Ok(())
    }

    /// Sends a report to the collector until it is accepted, as networks do: other clients may keep the collector busy.
    fn send_report(&self, path: &str) {
        let mut is_first = true;
        while http_client::get(self.collect_listen, path).is_err() && self.is_running() {
            if std::mem::take(&mut is_first) {
                tracing::warn!(
                    "the collector does not accept a report of the demo, which is sent again"
                );
            }
            self.shutdown.sleep(LIVE_INTERVAL);
        }
    }

    fn metrics(&self) -> Metrics {
        Metrics(self.recorder.render())
    }

    fn is_running(&self) -> bool {
        !self.shutdown.is_requested() && !self.service.is_finished()
    }
}

/// Writes a settings file as a user would.
fn write_settings(broker: &Broker, network: &Network, folder: &Path) -> anyhow::Result<PathBuf> {
    let collect = choose_address(8082)?;
    let text = format!(
        "# The settings of this demo; config/example.toml explains all settings.\n\n\
         [kafka]\nbrokers = {:?}\n\n\
         [store]\npath = {:?}\n\n\
         [export]\nlisten = \"{}\"\n\n\
         [admin]\nlisten = \"{}\"\n\n\
         [collect]\nlisten = \"{collect}\"\npublic_url = \"http://{collect}\"\n\n{}{}\
         [[links]]\nid = \"poster\"\nspreadid = 101\nfallback = \"https://example.com/\"\n",
        broker.address(),
        folder.join("store"),
        choose_address(8080)?,
        choose_address(8081)?,
        network.settings(),
        catalogue::settings(),
    );
    let file = folder.join("adtrail.toml");
    fs::write(&file, text).with_context(|| format!("cannot be written: {}", file.display()))?;
    Ok(file)
}

/// Returns an address with the preferred port, or a free one if it is in use.
fn choose_address(port: u16) -> anyhow::Result<SocketAddr> {
    let preferred = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    if TcpListener::bind(preferred).is_ok() {
        return Ok(preferred);
    }
    let free =
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    let free = free.context("there is no free port to listen on")?;
    telemetry::write_stderr(format_args!("{preferred} is in use, so the demo listens on {free}\n"));
    Ok(free)
}
