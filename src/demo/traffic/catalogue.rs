//! The apps, channels and campaigns of the generated traffic.

use std::fmt::Write as _;

use fastrand::Rng;

#[derive(Debug)]
pub struct App {
    pub pid: u32,
    pub key: &'static str,
    pub name: &'static str,
    /// Relative share of the app among devices.
    weight: u32,
    pub currency: &'static str,
    /// True if probabilistic matching is on.
    probabilistic: bool,
    pub campaigns: &'static [Campaign],
}

#[derive(Debug)]
pub struct Campaign {
    pub spreadid: u32,
    pub channel: &'static Channel,
    pub name: &'static str,
    /// Relative share among the app's campaigns for new users.
    weight: u32,
    pub is_retargeting: bool,
    /// True if the campaign is missing in the settings, as happens in practice.
    is_unlisted: bool,
}

#[derive(Debug)]
pub struct Channel {
    pub id: &'static str,
    pub form: IdForm,
}

/// How a channel sends device ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdForm {
    Raw,
    Md5,
    Md5UpperCase,
    /// The id of the operating system instead of the advertising id.
    System,
}

static TOUTIAO: Channel = Channel { id: "toutiao", form: IdForm::Raw };
static KUAISHOU: Channel = Channel { id: "kuaishou", form: IdForm::Md5 };
static BAIDU: Channel = Channel { id: "baidu", form: IdForm::Md5UpperCase };
static GOOGLE: Channel = Channel { id: "google", form: IdForm::Raw };
static WECHAT: Channel = Channel { id: "wechat", form: IdForm::System };
/// The channel that reports live clicks to the collector; it has the generic dialect.
pub static REPORTED: &Channel = &TOUTIAO;
static CHANNELS: [&Channel; 5] = [&TOUTIAO, &KUAISHOU, &BAIDU, &GOOGLE, &WECHAT];

pub static APPS: [App; 3] = [
    App {
        pid: 1,
        key: "demo-shop",
        name: "Demo Shop",
        weight: 5,
        currency: "CNY",
        probabilistic: false,
        campaigns: &[
            Campaign::new(101, &TOUTIAO, "Spring feed"),
            Campaign::new(102, &KUAISHOU, "Short video"),
            Campaign::new(103, &BAIDU, "Brand search"),
            Campaign {
                is_retargeting: true,
                weight: 0,
                ..Campaign::new(104, &TOUTIAO, "Come back")
            },
            Campaign { is_unlisted: true, weight: 1, ..Campaign::new(199, &WECHAT, "") },
        ],
    },
    App {
        pid: 2,
        key: "demo-puzzle",
        name: "Demo Puzzle",
        weight: 3,
        currency: "USD",
        probabilistic: true,
        campaigns: &[
            Campaign::new(201, &GOOGLE, r#"Playables "A", wave 2"#),
            Campaign::new(202, &WECHAT, "Mini games"),
        ],
    },
    App {
        pid: 3,
        key: "demo-fit",
        name: "每日健身",
        weight: 2,
        currency: "CNY",
        probabilistic: false,
        campaigns: &[Campaign::new(301, &KUAISHOU, "健身季 💪")],
    },
];

impl Campaign {
    const fn new(spreadid: u32, channel: &'static Channel, name: &'static str) -> Self {
        Self { spreadid, channel, name, weight: 20, is_retargeting: false, is_unlisted: false }
    }
}

impl App {
    /// Draws an app, by weight.
    pub fn draw(rng: &mut Rng) -> &'static Self {
        draw(rng, &APPS, |app| app.weight)
    }

    /// Draws a campaign for new users, by weight.
    pub fn draw_campaign(&self, rng: &mut Rng) -> &'static Campaign {
        draw(rng, self.campaigns, |campaign| campaign.weight)
    }

    pub fn retargeting(&self) -> Option<&'static Campaign> {
        self.campaigns.iter().find(|campaign| campaign.is_retargeting)
    }
}

/// Returns the channel of a campaign.
pub fn channel(spreadid: u64) -> Option<&'static str> {
    let mut campaigns = APPS.iter().flat_map(|app| app.campaigns);
    let found = campaigns.find(|campaign| u64::from(campaign.spreadid) == spreadid);
    found.map(|campaign| campaign.channel.id)
}

/// Returns the catalogue as settings: `[[apps]]`, `[[channels]]` and `[[campaigns]]`.
pub fn settings() -> String {
    let mut text = String::new();
    // A quoted string without control characters is the same in TOML as in Rust. Writing to a String cannot fail.
    for App { pid, key, name, probabilistic, .. } in &APPS {
        let _ = writeln!(text, "[[apps]]\npid = {pid}\nkey = {key:?}\nname = {name:?}");
        let _ = writeln!(text, "[apps.attribution]\nprobabilistic = {probabilistic}\n");
    }
    for Channel { id, .. } in CHANNELS {
        let _ = writeln!(text, "[[channels]]\nid = {id:?}\n");
    }
    for App { pid, campaigns, .. } in &APPS {
        for campaign in campaigns.iter().filter(|campaign| !campaign.is_unlisted) {
            let Campaign { spreadid, channel, name, .. } = campaign;
            let _ = writeln!(text, "[[campaigns]]\nspreadid = {spreadid}\npid = {pid}");
            let _ = writeln!(text, "channel = {:?}\nname = {name:?}\n", channel.id);
        }
    }
    text
}

/// Draws an item with a probability proportional to its weight.
fn draw<T>(rng: &mut Rng, from: &'static [T], weight: impl Fn(&T) -> u32) -> &'static T {
    let mut drawn = rng.u32(0..from.iter().map(&weight).sum());
    let item = from.iter().find(|item| {
        let is_drawn = drawn < weight(item);
        drawn = drawn.saturating_sub(weight(item));
        is_drawn
    });
    item.unwrap_or(&from[0])
}
