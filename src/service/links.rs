//! The links of the collector, for the page "Links" and for operators.

use std::sync::Arc;

use attribution::facts::event::SpreadId;
use collect::{CollectRoutes, Collector, Dialects, LinkKind, LinkTarget};
use config::Config;
use export::http::admin::Requests;
use export::{PersonLink, ReportLink, ReportUrl, TrackingLinks};
use jiff::Timestamp;
use serde_json::Value;

/// The links of the settings.
struct Links {
    config: Config,
    /// `collect.public_url`.
    base: Box<str>,
    /// `None` if they cannot be read.
    dialects: Option<Dialects>,
    /// `None` if other processes collect.
    collector: Option<Collector>,
}

/// Returns the links of the settings; `None` if the settings have no URL of the collector.
pub fn tracking_links(
    config: &Config,
    collector: Option<Collector>,
) -> Option<Arc<dyn TrackingLinks>> {
    let collect = config.collect.as_ref()?;
    let base = collect.public_url.clone()?;
    let dialects = Dialects::load(collect.dialects.as_deref()).inspect_err(|error| {
        tracing::warn!(%error, "the page has no links for the consoles of networks");
    });
    Some(Arc::new(Links { config: config.clone(), base, dialects: dialects.ok(), collector }))
}

impl TrackingLinks for Links {
    fn report_url(&self, link: ReportLink<'_>) -> Option<ReportUrl> {
        let link = self.dialects.as_ref()?.link(&self.config, &self.base, target(link)).ok()?;
        let collect::Link { url, dialect, is_verified, is_unsigned } = link;
        Some(ReportUrl { url, dialect, is_verified, is_unsigned })
    }

    fn person_links(&self, spreadid: SpreadId) -> Vec<PersonLink> {
        let of_campaign = self.config.links.iter().filter(|link| link.spreadid == spreadid);
        let now = Timestamp::now();
        let links = of_campaign.map(|link| {
            let collect::PersonLink { url, is_unsigned } =
                collect::person_link(&self.config, &self.base, link, now);
            PersonLink { id: link.id.clone(), url, is_unsigned }
        });
        links.collect()
    }

    fn recent_reports(&self, link: ReportLink<'_>) -> Option<Value> {
        self.collector.as_ref()?.recent_reports(target(link))
    }

    fn recent_clicks(&self, id: &str) -> Option<Value> {
        self.collector.as_ref()?.recent_clicks(id)
    }
}

fn target(link: ReportLink<'_>) -> LinkTarget<'_> {
    let ReportLink { app, channel, spreadid, is_impression } = link;
    let kind = if is_impression { LinkKind::Impression } else { LinkKind::Click };
    LinkTarget { app, channel, spreadid: spreadid.0, kind }
}

/// Returns the last requests of a link, for operators.
pub fn requests(routes: CollectRoutes) -> Requests {
    Arc::new(move |parameters: &[(String, String)]| {
        let collector = routes.collector();
        let found = match value(parameters, "link") {
            Some(id) => collector.recent_clicks(id),
            None => named(parameters).and_then(|target| collector.recent_reports(target)),
        };
        let expected = "expected app, channel, campaign (its spreadid) and kind (click or impression) of one of the \
                        [[campaigns]], or link, the id of one of the [[links]]";
        found.ok_or_else(|| expected.to_owned())
    })
}

fn named(parameters: &[(String, String)]) -> Option<LinkTarget<'_>> {
    let kind = match value(parameters, "kind")? {
        "click" => LinkKind::Click,
        "impression" => LinkKind::Impression,
        _ => return None,
    };
    Some(LinkTarget {
        app: value(parameters, "app")?,
        channel: value(parameters, "channel")?,
        spreadid: value(parameters, "campaign")?.parse().ok()?,
        kind,
    })
}

fn value<'p>(parameters: &'p [(String, String)], name: &str) -> Option<&'p str> {
    parameters.iter().find(|(known, _)| known == name).map(|(_, value)| &**value)
}
