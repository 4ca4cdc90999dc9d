//! Reads the tracking links that people click, and where each leads.

use std::collections::BTreeMap;

use attribution::facts::event::SpreadId;
use attribution::rules::policy::{Campaign, Policy};
use url::Url;

use crate::parse::error::Problem;
use crate::parse::section::Section;

const ID_CHARS_MAX: usize = 64;
const PARAMETER_CHARS_MAX: usize = 40;
const GOOGLE_PLAY: &str = "play.google.com";
/// The parameter of a Google Play URL that the store hands to the installed app.
const REFERRER: &str = "referrer";

/// An entry of `[[links]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// The last part of its path.
    pub id: Box<str>,
    pub spreadid: SpreadId,
    /// The key of the campaign's app.
    pub app: Box<str>,
    /// The campaign's channel.
    pub channel: Box<str>,
    pub is_retargeting: bool,
    pub android: Option<LinkTarget>,
    pub ios: Option<LinkTarget>,
    /// For all other systems, and for those without a target of their own.
    pub fallback: LinkTarget,
    /// The parameter of targets outside of Google Play that gets the click id.
    pub click_id_parameter: Option<Box<str>>,
}

/// Where a link leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkTarget {
    /// In ASCII, without a fragment.
    pub url: Box<str>,
    /// The store hands the parameter `referrer` to the installed app.
    pub is_google_play: bool,
}

/// The campaigns of the settings.
pub(crate) struct KnownCampaigns<'a> {
    pub policy: &'a Policy,
    /// False if an invalid campaign was left out. Unknown ones are not reported then.
    pub complete: bool,
}

pub(crate) fn read(root: &mut Section<'_>, campaigns: &KnownCampaigns<'_>) -> Vec<Link> {
    let mut taken = BTreeMap::new();
    let (links, _) = root.tables("links", |link| {
        let id = link.text("id", parse_id);
        let spreadid = link.integer::<u32>("spreadid", 1..=u64::from(u32::MAX)).map(SpreadId);
        let purpose = link.text("purpose", parse_purpose);
        let android = link.text("android", parse_target);
        let ios = link.text("ios", parse_target);
        let fallback = link.text("fallback", parse_target);
        let click_id_parameter = link.text("click_id_parameter", parse_parameter);
        link.require("id", "the last part of the link's path");
        link.require("spreadid", "the spreadid of one of the [[campaigns]]");
        link.require("fallback", "the URL for systems without one of their own");
        for (key, target) in [("android", &android), ("ios", &ios), ("fallback", &fallback)] {
            let target = target.as_ref().zip(click_id_parameter.as_ref());
            if let Some((target, _)) = target.filter(|(target, name)| target.repeats(name)) {
                let problem = "expected a URL without click_id_parameter: the collector adds it";
                link.reject(key, problem, format!("{:?}", target.url));
            }
        }
        id.iter().for_each(|id| link.require_unique("id", id, &mut taken));
        let campaign = spreadid.and_then(|spreadid| campaigns.find(spreadid));
        if let (Some(SpreadId(spreadid)), None, true) = (spreadid, campaign, campaigns.complete) {
            let problem = "expected the spreadid of one of the [[campaigns]]";
            link.reject("spreadid", problem, spreadid.to_string());
        }
        let campaign = campaign?;
        Some(Link {
            id: id?,
            spreadid: campaign.spreadid,
            app: campaigns.policy.app(campaign.pid)?.key.clone(),
            channel: campaign.channel.clone(),
            is_retargeting: purpose.unwrap_or(false),
            android,
            ios,
            fallback: fallback?,
            click_id_parameter,
        })
    });
    links
}

impl LinkTarget {
    /// Checks whether the collector would add this parameter a second time.
    fn repeats(&self, name: &str) -> bool {
        let has_it = |url: Url| url.query_pairs().any(|(known, _)| known == name);
        !self.is_google_play && Url::parse(&self.url).is_ok_and(has_it)
    }
}

impl KnownCampaigns<'_> {
    fn find(&self, spreadid: SpreadId) -> Option<&Campaign> {
        self.policy.campaign_of_any_app(spreadid)
    }
}

fn parse_id(text: &str) -> Result<Box<str>, Problem> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if (1..=ID_CHARS_MAX).contains(&text.len()) && text.bytes().all(is_allowed) {
        Ok(text.into())
    } else {
        Err("expected an id of 1 to 64 characters of a-z, A-Z, 0-9, '_' and '-'".into())
    }
}

/// Returns true if a touch by this link is for retargeting.
fn parse_purpose(text: &str) -> Result<bool, Problem> {
    match text {
        "ua" => Ok(false),
        "retargeting" => Ok(true),
        _ => Err(r#"expected "ua" or "retargeting""#.into()),
    }
}

fn parse_parameter(text: &str) -> Result<Box<str>, Problem> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if (1..=PARAMETER_CHARS_MAX).contains(&text.len()) && text.bytes().all(is_allowed) {
        Ok(text.into())
    } else {
        Err("expected a parameter of 1 to 40 characters of a-z, A-Z, 0-9, '_' and '-'".into())
    }
}

fn parse_target(text: &str) -> Result<LinkTarget, Problem> {
    let expected = "expected an http, https or market URL without fragment, such as \
                    \"https://apps.apple.com/app/id1\"";
    let url = Url::parse(text).map_err(|_| expected)?;
    let is_web = matches!(url.scheme(), "http" | "https") && url.has_host();
    if !(is_web || url.scheme() == "market") || url.fragment().is_some() || url.password().is_some()
    {
        return Err(expected.into());
    }
    let is_google_play = url.scheme() == "market" || url.host_str() == Some(GOOGLE_PLAY);
    if is_google_play && url.query_pairs().any(|(name, _)| name == REFERRER) {
        let problem = "expected a URL without referrer: the collector adds it, with the click id";
        return Err(problem.into());
    }
    Ok(LinkTarget { url: url.as_str().into(), is_google_play })
}
