//! `adtrail link`.

use attribution::facts::event::SpreadId;
use collect::{Dialects, LinkTarget};
use config::Config;
use jiff::Timestamp;

use super::{UsageError, known_app, load, print};
use crate::cli::{Link, LinkKind};

/// The dialect whose links name fields, in braces, in place of the network's macros.
const GENERIC: &str = "generic";

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
        LinkKind::Person => return print_person_links(&config, base, SpreadId(spreadid)),
    };
    let target = LinkTarget { app: &app.key, channel: &options.channel, spreadid, kind };
    let link = Dialects::load(folder).and_then(|dialects| dialects.link(&config, base, target));
    let link = link.map_err(|error| UsageError(error.to_string()))?;
    if &*link.dialect == GENERIC {
        tracing::warn!(
            "replace each text in braces by the macro of the network, and remove parameters that it does not have"
        );
    }
    if !link.is_verified {
        tracing::warn!(
            dialect = &*link.dialect,
            "the macros of this dialect are not verified: compare the link with the network's documents"
        );
    }
    if link.is_unsigned {
        tracing::warn!(
            "the signatures of this channel are checked, and this link has none: its sender must sign each request"
        );
    }
    print(format!("{}\n", link.url).as_bytes())
}

/// Prints the links of `[[links]]` with this campaign, a line for each.
fn print_person_links(config: &Config, base: &str, spreadid: SpreadId) -> anyhow::Result<()> {
    let mut lines = String::new();
    for link in config.links.iter().filter(|link| link.spreadid == spreadid) {
        let shown = collect::person_link(config, base, link, Timestamp::now());
        if shown.is_unsigned {
            tracing::warn!(
                link = &*link.id,
                "the signatures of its channel are checked, and no key of the settings can sign this link: \
                 do not publish it without a signature"
            );
        }
        lines += &shown.url;
        lines.push('\n');
    }
    if lines.is_empty() {
        let problem =
            format!("--kind: the settings have no [[links]] of this campaign: {}", spreadid.0);
        return Err(UsageError(problem).into());
    }
    print(lines.as_bytes())
}
