//! Writes the link that a network calls: the same parameters that `read` reads.

use config::Config;
use jiff::Timestamp;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::catalogue::Dialects;
use super::{Dialect, Placeholder};
use crate::CollectError;
use crate::signature;

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
    /// True if the channel's signatures are checked, and the link has no parameter for one.
    pub is_unsigned: bool,
}

/// A link that people click.
#[derive(Debug, PartialEq, Eq)]
pub struct PersonLink {
    pub url: String,
    /// True if the channel's signatures are checked, and the link has none.
    pub is_unsigned: bool,
}

/// Writes the URL of a link that people click, signed if the channel's signatures are checked and can be made here.
/// `base` is the URL of the collector, without a slash at its end.
pub fn person_link(config: &Config, base: &str, link: &config::Link, now: Timestamp) -> PersonLink {
    // An id has no character that is escaped in a URL.
    let url = format!("{base}/go/{}", link.id);
    let checked = config.signatures.get(&link.channel).filter(|of| of.is_checked());
    let signed = checked.and_then(|of| signature::signed_url(of, &url, now));
    let is_unsigned = checked.is_some() && signed.is_none();
    PersonLink { url: signed.unwrap_or(url), is_unsigned }
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
        let checked = config.signatures.get(target.channel).filter(|of| of.is_checked());
        let has_place = |name: &str| dialect.parameters.iter().any(|one| *one.name == *name);
        let is_unsigned = checked.is_some_and(|of| !has_place(signature::parameter(of.scheme)));
        let (dialect, is_verified) = (dialect.name.clone(), dialect.is_verified);
        Ok(Link { url, dialect, is_verified, is_unsigned })
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
