//! The `adtrail` binary: parses the command line, starts telemetry, and runs the command.

use std::io::{self, Write};

use adtrail::cli::{Catalogue, Cli, Command, HBase};
use adtrail::commands::maintenance::{backup, copy, restore, verify};
use adtrail::commands::{
    UsageError, callbacks, catalogue, check_config, check_events, collector, conformance, download,
    explain, hbase, health, link, log_level, peek, regions, reload, replay, replay_dlq, run, token,
};
use adtrail::telemetry::Traces;
use adtrail::{Timing, demo, open_files, telemetry};
use clap::Parser;
use config::private_files;
use signal_hook::low_level;

fn main() -> ! {
    #[cfg(feature = "crash-points")]
    let _crash_points = config::fail::FailScenario::setup();
    let cli = Cli::parse();
    // These write files that the user names, with the rights that the user wants. The store of a replay is protected by
    // the mode of its directory.
    let writes_files = matches!(
        cli.command,
        Command::Download(_) | Command::Replay(_) | Command::Catalogue(Catalogue::Adopt(_))
    );
    if !writes_files {
        private_files::restrict_new_files();
    }
    telemetry::abort_on_panic();
    telemetry::handle_file_limits();
    open_files::raise_limit();
    let code = match run(&cli) {
        Ok(()) => 0,
        Err(error) => {
            telemetry::write_stderr(format_args!("adtrail: {error:#}\n"));
            if error.is::<UsageError>() { 2 } else { 1 }
        }
    };
    let _ = io::stdout().flush();
    // Without the exit handler of OpenSSL, which frees what a thread of librdkafka may still use to connect.
    low_level::exit(code)
}

fn run(cli: &Cli) -> anyhow::Result<()> {
    let traces = match cli.command.is_service() {
        true => Traces::from_env().map_err(UsageError)?,
        false => Traces::default(),
    };
    telemetry::start_logs(cli.log_format, &traces);
    let timing = Timing::from_env()?;
    let outcome = dispatch(&cli.command, timing);
    traces.flush(timing.trace_flush_timeout);
    outcome
}

fn dispatch(command: &Command, timing: Timing) -> anyhow::Result<()> {
    match command {
        Command::Run(settings) => run::run(settings, timing),
        Command::Attribute(settings) => run::attribute(settings, timing),
        Command::Export(settings) => run::export(settings, timing),
        Command::Collect(options) => collector::run(options, timing),
        Command::Link(options) => link::run(options),
        Command::HBase(HBase::Init(options)) => hbase::run(options),
        Command::Copy(options) => copy::run(options),
        Command::Demo(options) => demo::run(options, timing),
        Command::Download(options) => download::run(options),
        Command::Explain(options) => explain::run(options),
        Command::Replay(options) => replay::run(options),
        Command::CheckEvents(options) => check_events::run(options),
        Command::Peek(options) => peek::run(options, timing),
        Command::ReplayDlq(options) => replay_dlq::run(options, timing),
        Command::Regions(options) => regions::run(options),
        Command::Backup(options) => backup::run(options, timing),
        Command::Restore(options) => restore::run(options),
        Command::Verify(options) => verify::run(options),
        Command::Callbacks(command) => callbacks::run(command, timing),
        Command::Catalogue(command) => catalogue::run(command),
        Command::Health(options) => health::run(options),
        Command::LogLevel(options) => log_level::run(options),
        Command::CheckConfig(settings) => check_config::run(settings),
        Command::Reload(settings) => reload::run(settings),
        Command::Token(options) => token::run(options),
        Command::Conformance(options) => conformance::run(options),
    }
}
