//! `adtrail peek`: shows the records of a topic.

use std::io::{self, BufWriter, ErrorKind, Write};
use std::ops::ControlFlow;

use anyhow::Context;
use ingest::peek::{Peek, Start};

use super::load_for_kafka;
use crate::cli;
use crate::timing::Timing;

pub fn run(options: &cli::Peek, timing: Timing) -> anyhow::Result<()> {
    let config = load_for_kafka(&options.settings)?;
    let from = match options.from_time {
        _ if options.at_end => Start::End,
        Some(time_ms) => Start::Time(time_ms),
        None => Start::Beginning,
    };
    let peek = Peek {
        config: &config,
        topic: &options.topic,
        from,
        count: options.count,
        raw: options.raw,
        timing: timing.ingest,
    };
    let mut out = BufWriter::new(io::stdout().lock());
    let mut written = Ok(());
    peek.run(|line| {
        written = match line {
            Some(line) => out.write_all(line.as_bytes()),
            None => out.flush(),
        };
        if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    match written.and_then(|()| out.flush()) {
        // The reader has closed the pipe.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        outcome => outcome.context("the records cannot be written"),
    }
}
