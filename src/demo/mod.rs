//! `adtrail demo`: all of it in one process, with made-up traffic and a broker of its own.
//!
//! The service is the one that `adtrail run` starts; the demo only feeds it, waits, asks it for
//! rows as any user would, and shows what it got. Everything is in a temporary folder, which is
//! gone at the end.

mod broker;
mod client;
mod figures;
mod progress;
mod report;
pub mod traffic;

use std::fs;
use std::io::{self, Write};
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

use crate::cli;
use crate::service::{self, shutdown_deadline};
use crate::telemetry;
use crate::timing::Timing;
use broker::Broker;
use figures::Figures;
use progress::Progress;
use report::{Counts, Places};
use traffic::catalogue::{self, APPS};
use traffic::{Plan, Traffic};

/// The same events on every machine; with this one the first rows show much of what there is.
const SEED: u64 = 5;
const DAY_MS: i64 = 86_400_000;
const PAST_MS: i64 = 3 * DAY_MS;
/// About 40,000 messages.
const PAST_JOURNEYS: u32 = 14_700;
/// Live events, 10 to 20 a second, end after so long: the store is a temporary folder.
const LIVE_MS: i64 = 2 * 3_600_000;
const LIVE_JOURNEYS: u32 = 72_000;
const LIVE_EVERY: Duration = Duration::from_millis(100);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Without any progress for so long something is wrong.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs until Ctrl-C, or, asked to show it once, until the first rows were shown.
///
/// # Errors
/// What keeps the service from starting, or ended it.
pub fn run(options: &cli::Demo, timing: Timing) -> anyhow::Result<()> {
    let folder = TempDir::with_prefix("adtrail-demo-").context("no temporary folder")?;
    let broker = Broker::start()?;
    let settings = write_settings(&broker, folder.path())?;
    let config = config::parse(&fs::read_to_string(&settings)?)?;
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
            .context("no thread for the service")?
    };
    let demo = Demo { config, settings, names, broker, recorder, shutdown, service };
    let shown = demo.show(options.once);
    demo.shutdown.request();
    let served = demo.service.join().map_err(|_| anyhow!("the service has panicked"))?;
    served.and(shown)
}

struct Demo {
    config: Config,
    settings: PathBuf,
    names: TopicNames,
    broker: Broker,
    recorder: PrometheusHandle,
    shutdown: Shutdown,
    service: JoinHandle<anyhow::Result<()>>,
}

impl Demo {
    /// Comes back early where the service ends, which then says why.
    fn show(&self, once: bool) -> anyhow::Result<()> {
        let now = Timestamp::now();
        let to_ms = now.as_millisecond();
        let (seed, from_ms) = (SEED, to_ms - PAST_MS);
        let past = Traffic::new(Plan { seed, from_ms, to_ms, journeys: PAST_JOURNEYS });
        if !self.wait_until_ready() || !self.attribute(past)? {
            return Ok(());
        }
        let day = |time: Timestamp| time.to_zoned(TimeZone::UTC).date();
        let places = Places {
            export: self.config.export_listen,
            admin: self.config.admin_listen,
            settings: &self.settings,
            from: day(Timestamp::from_millisecond(from_ms)?),
            to: day(now),
        };
        tell(&self.report(&places)?)?;
        if once {
            return Ok(());
        }
        tell(&format!("\n{}\nLive events keep coming, until Ctrl-C.\n", places.text()))?;
        self.trickle()
    }

    fn wait_until_ready(&self) -> bool {
        while self.goes_on() {
            if client::get(self.config.admin_listen, "/readyz").is_ok() {
                return true;
            }
            self.shutdown.sleep(LOOK_EVERY);
        }
        false
    }

    /// Produces everything and waits until it is attributed; `false` if that was broken off.
    fn attribute(&self, past: Traffic) -> anyhow::Result<bool> {
        let messages: Vec<_> = past.collect();
        let total = u64::try_from(messages.len())?;
        let mut progress = Progress::new(total);
        progress.doing("producing made-up events");
        for message in &messages {
            self.broker.send(&self.names, message)?;
        }
        self.broker.flush()?;
        progress.doing("attributing them");
        let (mut settled, mut moved_at) = (0, Instant::now());
        while settled < total {
            if !self.goes_on() {
                return Ok(false);
            }
            self.shutdown.sleep(LOOK_EVERY);
            let before = settled;
            settled = self.figures().settled();
            progress.at(settled);
            if settled > before {
                moved_at = Instant::now();
            } else if moved_at.elapsed() > PATIENCE {
                bail!("no progress for {PATIENCE:?} at event {settled} of {total}");
            }
        }
        progress.finish("attributed");
        Ok(true)
    }

    /// First rows and summary, from the service itself.
    fn report(&self, places: &Places<'_>) -> anyhow::Result<String> {
        let get = |app_key: &str, fields: &str| {
            client::get(places.export, &format!("{}&fields={fields}", places.csv(app_key)))
        };
        let table = report::table(&get(APPS[0].key, report::FIELDS)?)?;
        let mut counts = Counts::default();
        for app in &APPS {
            counts.add(&get(app.key, "event_type,status")?)?;
        }
        let figures = self.figures();
        let accepted = |topic| figures.accepted(self.names.of(topic));
        for (event_type, topic) in [
            (EventType::Activation, TopicKind::Activations),
            (EventType::Effect, TopicKind::Effects),
        ] {
            let (rows, events) = (counts.of(event_type), accepted(topic));
            ensure!(rows == events, "the CSV has {rows} {}s of {events}", event_type.name());
        }
        let summary = report::summary(&counts, accepted(TopicKind::Clicks), &figures);
        Ok(format!(
            "\nThe first rows of {}, in some of their columns\n\n{table}\n{summary}",
            APPS[0].name
        ))
    }

    /// Produces live events, each when it is due, until asked to stop.
    fn trickle(&self) -> anyhow::Result<()> {
        let from_ms = Timestamp::now().as_millisecond();
        let (seed, to_ms) = (SEED + 1, from_ms + LIVE_MS);
        let live = Traffic::new(Plan { seed, from_ms, to_ms, journeys: LIVE_JOURNEYS });
        let mut live = live.peekable();
        while self.goes_on() {
            let now_ms = Timestamp::now().as_millisecond();
            while let Some(message) = live.next_if(|message| message.arrival_ms <= now_ms) {
                self.broker.send(&self.names, &message)?;
            }
            self.shutdown.sleep(LIVE_EVERY);
        }
        Ok(())
    }

    fn figures(&self) -> Figures {
        Figures(self.recorder.render())
    }

    fn goes_on(&self) -> bool {
        !self.shutdown.is_requested() && !self.service.is_finished()
    }
}

/// The settings as a user would write them.
fn write_settings(broker: &Broker, folder: &Path) -> anyhow::Result<PathBuf> {
    let text = format!(
        "# The settings of this demo; config/example.toml explains all there are.\n\n\
         [kafka]\nbrokers = {:?}\n\n\
         [store]\npath = {:?}\n\n\
         [export]\nlisten = \"{}\"\n\n\
         [admin]\nlisten = \"{}\"\n\n{}",
        broker.address(),
        folder.join("store"),
        choose_address(8080)?,
        choose_address(8081)?,
        catalogue::settings(),
    );
    let file = folder.join("adtrail.toml");
    fs::write(&file, text).with_context(|| format!("can not be written: {}", file.display()))?;
    Ok(file)
}

/// The port wished for, or a free one if it is taken.
fn choose_address(port: u16) -> anyhow::Result<SocketAddr> {
    let wished = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    if TcpListener::bind(wished).is_ok() {
        return Ok(wished);
    }
    let free =
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    let free = free.context("no free port to listen on")?;
    crate::telemetry::tell(format_args!("{wished} is taken, so this demo uses {free}\n"));
    Ok(free)
}

fn tell(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("nobody reads the output")
}
