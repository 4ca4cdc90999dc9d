//! `adtrail download`: the API's export without the service, or beside it.

use export::ExportQuery;

use super::{Output, WrongUse, known_app, load};
use crate::cli::Download;

pub fn run(options: &Download) -> anyhow::Result<()> {
    let config = load(&options.settings)?;
    let app = known_app(&config, &options.settings, &options.app)?;
    let query =
        ExportQuery::parse(parameters(options)).map_err(|error| WrongUse(format!("--{error}")))?;
    let reader = store::embedded::open_for_reading(&config.store)?;
    let out = Output::new(options.out.as_deref())?;
    out.fill(|sink| export::write_rows(&reader, &[app], &query, &config.policy, sink))?;
    Ok(())
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
