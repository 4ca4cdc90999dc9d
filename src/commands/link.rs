//! `adtrail link`.

use attribution::facts::event::SpreadId;
use collect::{Dialects, LinkTarget};

use super::{UsageError, known_app, load, print};
use crate::cli::{Link, LinkKind};

pub fn run(options: &Link) -> anyhow::Result<()> {
    let config = load(&options.settings)?;
    let app = known_app(&config, &options.settings, &options.app)?;
    let collect = config.collect.as_ref();
    let base = collect.and_then(|collect| collect.public_url.as_deref()).ok_or_else(|| {
        let problem = "no URL of the collector: set collect.listen and collect.public_url, such as \
                       \"https://click.example.com\"";
        UsageError(problem.to_owned())
    })?;
    let spreadid = options.campaign;
    let campaign = config.policy.campaign(app.pid, SpreadId(spreadid));
    if campaign.is_none_or(|campaign| *campaign.channel != *options.channel) {
        let problem = format!(
            "--campaign: the settings have no such campaign of this app and channel: {spreadid}"
        );
        return Err(UsageError(problem).into());
    }
    let folder = collect.and_then(|collect| collect.dialects.as_deref());
    let kind = match options.kind {
        LinkKind::Click => collect::LinkKind::Click,
        LinkKind::Impression => collect::LinkKind::Impression,
    };
    let target = LinkTarget { app: &app.key, channel: &options.channel, spreadid, kind };
    let link = Dialects::load(folder).and_then(|dialects| dialects.link(&config, base, target));
    let link = link.map_err(|error| UsageError(error.to_string()))?;
    if !link.is_verified {
        tracing::warn!(
            dialect = &*link.dialect,
            "the macros of this dialect are not verified: compare the link with the network's documents"
        );
    }
    print(format!("{}\n", link.url).as_bytes())
}
