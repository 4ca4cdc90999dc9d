//! Writes the link that a network calls: the same parameters that `read` reads.

use config::Config;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::catalogue::Dialects;
use super::{Dialect, Placeholder};
use crate::CollectError;

/// Characters that a path segment must not have as they are.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// What a link reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LinkKind {
    Click,
    Impression,
}

impl LinkKind {
    /// Returns the name in paths, events and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Click => "click",
            Self::Impression => "impression",
        }
    }
}

/// The campaign that a link reports.
#[derive(Debug, Clone, Copy)]
pub struct LinkTarget<'a> {
    /// The key of the app.
    pub app: &'a str,
    /// The id of the channel.
    pub channel: &'a str,
    pub spreadid: u32,
    pub kind: LinkKind,
}

/// A link for the console of a network.
#[derive(Debug, PartialEq, Eq)]
pub struct Link {
    pub url: String,
    pub dialect: Box<str>,
    /// False if the network's documents have not been compared with the dialect.
    pub is_verified: bool,
}

impl Dialects {
    /// Writes the link of a campaign. `base` is the URL of the collector, without a slash at its end.
    ///
    /// # Errors
    /// If the channel names a dialect that does not exist.
    pub fn link(
        &self,
        config: &Config,
        base: &str,
        target: LinkTarget<'_>,
    ) -> Result<Link, CollectError> {
        let dialect = self.of_channel(config, target.channel)?;
        let url = dialect.url(base, target);
        Ok(Link { url, dialect: dialect.name.clone(), is_verified: dialect.is_verified })
    }
}

impl Dialect {
    pub(super) fn url(
        &self,
        base: &str,
        LinkTarget { app, channel, spreadid, kind }: LinkTarget<'_>,
    ) -> String {
        let segment = |text| utf8_percent_encode(text, SEGMENT);
        let (app, channel) = (segment(app), segment(channel));
        let mut url = format!("{base}/{}/{app}/{channel}?spreadid={spreadid}", kind.name());
        for parameter in &self.parameters {
            let value = match (&parameter.placeholder, kind) {
                (Placeholder::Macro { click, .. }, LinkKind::Click) => click,
                (Placeholder::Macro { impression, .. }, LinkKind::Impression) => impression,
                (Placeholder::Fixed(value), _) => value,
            };
            url.push_str(&format!("&{}={value}", parameter.name));
        }
        url
    }
}
