//! `adtrail download`: the API's export without the service, or beside it.

use std::ops::ControlFlow;

use anyhow::Context;
use export::ExportQuery;

use super::{Output, WrongUse, load};
use crate::cli::Download;

pub fn run(options: &Download) -> anyhow::Result<()> {
    let config = load(&options.settings)?;
    let app = config
        .policy
        .app_by_key(&options.app)
        .ok_or_else(|| WrongUse(format!("--app: no such app is configured: {}", options.app)))?;
    let query =
        ExportQuery::parse(parameters(options)).map_err(|error| WrongUse(format!("--{error}")))?;
    let reader = store::embedded::open_for_reading(&config.store)?;
    let mut out = Output::new(options.out.as_deref())?;
    let mut written = Ok(());
    export::write_rows(&reader, &[app], &query, &config.policy, |chunk| {
        written = out.write(&chunk);
        if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    written.context("the rows can not be written")?;
    out.finish().context("the rows can not be written")
}

/// The options under the API's names.
fn parameters(options: &Download) -> impl Iterator<Item = (&str, &str)> {
    let given = [
        ("from", &options.from),
        ("to", &options.to),
        ("timezone", &options.timezone),
        ("type", &options.event_type),
    ];
    let fields = options.fields.iter().map(|fields| ("fields", fields));
    given.into_iter().chain(fields).map(|(name, value)| (name, value.as_str()))
}
