//! `adtrail download`: the API's export without the service, or beside it.

use export::ExportQuery;

use super::{Output, WrongUse, known_app, load};
use crate::cli::{self, Download};

pub fn run(options: &Download) -> anyhow::Result<()> {
    let config = load(&options.settings)?;
    let app = known_app(&config, &options.settings, &options.app)?;
    let format = match options.format {
        cli::Format::Csv => export::Format::Csv,
        cli::Format::Ndjson => export::Format::Ndjson,
    };
    let wrong = |error| WrongUse(format!("--{error}"));
    let query = ExportQuery::parse(format, parameters(options)).map_err(wrong)?;
    query.check(app, &config.policy).map_err(wrong)?;
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
        ("preset", &options.preset),
        ("dialect", &options.dialect),
    ];
    let optional =
        [("fields", &options.fields), ("limit", &options.limit), ("after", &options.after)];
    let lists = [
        ("event_name", &options.event_name),
        ("status", &options.status),
        ("channel", &options.channel),
        ("spreadid", &options.spreadid),
        ("install_type", &options.install_type),
        ("additional_fields", &options.additional_fields),
    ];
    let optional = optional.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
    let lists =
        lists.into_iter().flat_map(|(name, values)| values.iter().map(move |value| (name, value)));
    given.into_iter().chain(optional).chain(lists).map(|(name, value)| (name, value.as_str()))
}
