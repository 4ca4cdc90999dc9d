//! Tracking links that people click: the click becomes an event, and the person goes on to the store or page.

use std::net::IpAddr;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use config::{Link, LinkTarget};
use ingest::TopicKind;
use ingest::kafka::event_producer::ProduceError;
use jiff::Timestamp;
use listener::ClientAddress;
use serde_json::{Map, Value, json};

use super::client::client_address;
use super::problem::{Problem, Reason};
use crate::Collector;
use crate::dialect::pairs::Pairs;
use crate::metrics::Labels;
use crate::notes::UsedLink;
use crate::signature::{self, Outcome};

/// How long a person waits for Kafka. The click is still produced or spooled afterwards.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// The part of a user agent that is kept, and of a parameter: what the decoder accepts.
const UA_BYTES_MAX: usize = 2_048;
const PARAMETER_BYTES_MAX: usize = 8_192;
/// Parameters of the link that are kept in `params`.
const KEPT: [&str; 5] = ["sub1", "sub2", "sub3", "sub4", "sub5"];

/// Parts of the user agents, in lower case, of programs that follow links by themselves.
const CRAWLERS: [&str; 22] = [
    "adsbot",
    "ahrefsbot",
    "applebot",
    "baiduspider",
    "bingbot",
    "bytespider",
    "curl/",
    "discordbot",
    "facebookexternalhit",
    "go-http-client",
    "googlebot",
    "headlesschrome",
    "linkedinbot",
    "petalbot",
    "python-requests",
    "semrushbot",
    "slackbot",
    "telegrambot",
    "twitterbot",
    "wget/",
    "whatsapp/",
    "yandexbot",
];
/// Headers by which browsers mark requests that no person has made.
const PURPOSES: [&str; 4] = ["purpose", "sec-purpose", "x-purpose", "x-moz"];

/// A request extension: the address of the request has had too many.
#[derive(Debug, Clone, Copy)]
pub(super) struct BeyondRate;

/// Redirects to the target of the link. A `HEAD` request is not a click, nor is one that is beyond the rate of its
/// address.
pub(crate) async fn go(
    State(collector): State<Collector>,
    Path(id): Path<String>,
    Extension(ClientAddress(peer)): Extension<ClientAddress>,
    request: Request<Body>,
) -> Result<Response, Problem> {
    let link = collector.link(&id).ok_or_else(Problem::unknown_link)?;
    let Parts { method, uri, headers, extensions, .. } = request.into_parts().0;
    let is_beyond_rate = extensions.get::<BeyondRate>().is_some();
    let ua = user_agent(&headers);
    let system = System::of(&ua);
    let target = system.target(link);
    let id = click_id().ok_or_else(Problem::no_random)?;
    let location = location(target, link, &id);
    if method != Method::HEAD && !is_beyond_rate {
        let (signature, query) = collector.check_person_signature(&link.channel, &uri);
        let click = Click {
            id: &id,
            ip: client_address(peer, &headers, |address| collector.is_trusted_proxy(address)),
            ua: &ua,
            system,
            bot: bot(&headers, &ua),
            query,
            signature,
        };
        produce(&collector, link, &click).await;
    }
    // A URL of the settings is ASCII, and so is the click id.
    let location = HeaderValue::try_from(location).map_err(|_| Problem::unknown_link())?;
    let mut response = (StatusCode::FOUND, [(header::LOCATION, location)]).into_response();
    if is_beyond_rate {
        response.extensions_mut().insert(Reason::beyond_rate());
    }
    Ok(response)
}

/// Produces the click, and waits a little for its acknowledgement. The person goes on in any case.
async fn produce(collector: &Collector, link: &Link, click: &Click<'_>) {
    let Some(app) = collector.app(&link.app) else { return };
    let labels = Labels { kind: "click", channel: &link.channel };
    let mut received = collector.receive(labels, &app.key);
    received.notes.link = UsedLink::Person(link.id.clone());
    (received.notes.bot, received.notes.signature) = (click.bot, click.signature);
    let event = click.event(link).to_string();
    received.notes.set_event(&event);
    let Some(waits) = collector.wait_with_click(event.len()) else {
        received.refused(ProduceError::QueueFull.into());
        collector.metrics().redirected_unacknowledged();
        return;
    };
    let pending = collector.submit(event, TopicKind::Clicks, app);
    let acknowledged = tokio::spawn(async move {
        let outcome = received.acknowledged(pending).await;
        drop(waits);
        outcome
    });
    let outcome = tokio::time::timeout(WAIT_MAX, acknowledged).await;
    if !matches!(outcome, Ok(Ok(Ok(())))) {
        collector.metrics().redirected_unacknowledged();
    }
}

/// A click on a link.
struct Click<'a> {
    id: &'a str,
    ip: IpAddr,
    ua: &'a str,
    system: System,
    bot: Option<&'static str>,
    query: &'a str,
    signature: Option<Outcome>,
}

impl Click<'_> {
    fn event(&self, link: &Link) -> Value {
        let mut params = Map::new();
        params.insert("link".to_owned(), Value::from(&*link.id));
        params.extend(self.bot.map(|bot| ("bot".to_owned(), bot.into())));
        if let Some(outcome) = self.signature {
            params.insert(signature::PARAM.to_owned(), outcome.name().into());
        }
        if let Some(pairs) = Pairs::parse(self.query, "") {
            let kept = KEPT.into_iter().filter_map(|name| Some((name, pairs.value(name, true)?)));
            let kept_text = |value: &str| Value::from(cut(value, PARAMETER_BYTES_MAX));
            params.extend(kept.map(|(name, value)| (name.to_owned(), kept_text(&value))));
        }
        json!({
            "type": "click",
            "app": &*link.app,
            "spreadid": link.spreadid.0,
            "time": Timestamp::now().as_millisecond(),
            "click_id": self.id,
            "purpose": if link.is_retargeting { "retargeting" } else { "ua" },
            "ip": self.ip.to_string(),
            "ua": self.ua,
            "os": self.system.name(),
            "params": params,
        })
    }
}

/// The operating system of a person, by the user agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum System {
    Android,
    Ios,
    Other,
}

impl System {
    fn of(ua: &str) -> Self {
        if ua.contains("Android") {
            Self::Android
        } else if ["iPhone", "iPad", "iPod"].iter().any(|name| ua.contains(name)) {
            Self::Ios
        } else {
            Self::Other
        }
    }

    /// Returns the name of the event's field `os`; empty if it is not known.
    fn name(self) -> &'static str {
        match self {
            Self::Android => "android",
            Self::Ios => "ios",
            Self::Other => "",
        }
    }

    fn target(self, link: &Link) -> &LinkTarget {
        let own = match self {
            Self::Android => link.android.as_ref(),
            Self::Ios => link.ios.as_ref(),
            Self::Other => None,
        };
        own.unwrap_or(&link.fallback)
    }
}

fn user_agent(headers: &HeaderMap) -> String {
    let value = headers.get(header::USER_AGENT).map_or(&b""[..], HeaderValue::as_bytes);
    cut(&String::from_utf8_lossy(value), UA_BYTES_MAX).to_owned()
}

/// Returns the beginning of a text, in whole characters.
fn cut(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

/// Returns what else than a person has probably made the request.
fn bot(headers: &HeaderMap, ua: &str) -> Option<&'static str> {
    let mut purposes = PURPOSES.iter().filter_map(|name| headers.get(*name)?.to_str().ok());
    let is_prefetch = |purpose: &str| {
        let purpose = purpose.to_ascii_lowercase();
        ["prefetch", "prerender", "preview"].iter().any(|word| purpose.contains(word))
    };
    let ua = ua.to_ascii_lowercase();
    if purposes.any(is_prefetch) {
        Some("prefetch")
    } else if CRAWLERS.iter().any(|name| ua.contains(name)) {
        Some("crawler")
    } else {
        None
    }
}

/// Returns a random id of 128 bits; `None` if the system has no random numbers.
fn click_id() -> Option<String> {
    let mut bytes = [0_u8; 16];
    getrandom::fill(&mut bytes).ok()?;
    Some(format!("go-{:032x}", u128::from_be_bytes(bytes)))
}

/// Returns the URL of the target with the click id.
fn location(target: &LinkTarget, link: &Link, click_id: &str) -> String {
    let separator = if target.url.contains('?') { '&' } else { '?' };
    let url = &target.url;
    match (target.is_google_play, &link.click_id_parameter) {
        (true, _) => format!("{url}{separator}referrer=click_id%3D{click_id}"),
        (false, Some(name)) => format!("{url}{separator}{name}={click_id}"),
        (false, None) => url.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::WAITING_CLICK_BYTES_MAX;
    use crate::test_bed::Bed;

    const ANDROID: &str = "Mozilla/5.0 (Linux; Android 14; Pixel 8) AppleWebKit/537.36";
    const IPHONE: &str = "Mozilla/5.0 (iPhone; CPU iPhone OS 17_4 like Mac OS X)";

    const SETTINGS: &str = "[[apps]]\npid = 1\nkey = \"app-x\"\n[[channels]]\nid = \"c\"\n\
                    [[campaigns]]\nspreadid = 7\npid = 1\nchannel = \"c\"\n\
                    [[links]]\nid = \"l\"\nspreadid = 7\nclick_id_parameter = \"cid\"\n\
                    android = \"https://play.google.com/store/apps/details?id=x\"\n\
                    ios = \"https://apps.apple.com/app/id1?mt=8\"\n\
                    fallback = \"https://a.example/b\"\n";

    fn link() -> Link {
        config::parse(SETTINGS).unwrap().links.remove(0)
    }

    #[track_caller]
    fn check(ua: &str, expected: &str) {
        let link = link();
        assert_eq!(location(System::of(ua).target(&link), &link, "go-1"), expected, "{ua}");
    }

    #[test]
    fn the_system_determines_the_target() {
        let play = "https://play.google.com/store/apps/details?id=x&referrer=click_id%3Dgo-1";
        check(ANDROID, play);
        check(IPHONE, "https://apps.apple.com/app/id1?mt=8&cid=go-1");
        for other in ["", "Mozilla/5.0 (X11; Linux x86_64)", "Mozilla/5.0 (Phone; OpenHarmony 5.0)"]
        {
            check(other, "https://a.example/b?cid=go-1");
        }
        // A system without a target of its own.
        let link = Link { ios: None, click_id_parameter: None, ..link() };
        let shown = location(System::of(IPHONE).target(&link), &link, "go-1");
        assert_eq!(shown, "https://a.example/b");
    }

    #[test]
    fn the_event_has_what_the_request_shows() {
        let link = link();
        let ip = "203.0.113.9".parse().unwrap();
        let click = Click {
            id: "go-1",
            ip,
            ua: ANDROID,
            system: System::of(ANDROID),
            bot: Some("crawler"),
            query: "sub1=a+b&spreadid=9&sub9=c",
            signature: Some(Outcome::Missing),
        };
        let mut event = click.event(&link);
        assert!(event["time"].take().as_i64().is_some());
        let expected = json!({
            "type": "click", "app": "app-x", "spreadid": 7, "time": null, "click_id": "go-1", "purpose": "ua",
            "ip": "203.0.113.9", "ua": ANDROID, "os": "android",
            "params": {"link": "l", "bot": "crawler", "signature": "missing", "sub1": "a b"},
        });
        assert_eq!(event, expected);
    }

    /// Otherwise the decoder would reject it, and the click would be lost.
    #[test]
    fn long_texts_are_cut() {
        let ua = "x".repeat(UA_BYTES_MAX + 1);
        let headers =
            HeaderMap::from_iter([(header::USER_AGENT, HeaderValue::try_from(ua).unwrap())]);
        let sub1 = format!("x{}", "%C3%A9".repeat(PARAMETER_BYTES_MAX / 2));
        let click = Click {
            id: "go-1",
            ip: "203.0.113.9".parse().unwrap(),
            ua: &user_agent(&headers),
            system: System::Other,
            bot: None,
            query: &format!("sub1={sub1}"),
            signature: None,
        };
        let event = click.event(&link());
        let kept = event["params"]["sub1"].as_str().unwrap();
        assert_eq!(kept, format!("x{}", "\u{e9}".repeat(PARAMETER_BYTES_MAX / 2 - 1)));
        let config = config::parse(SETTINGS).unwrap();
        let topic = Some(TopicKind::Clicks);
        let decoded = ingest::decode::decode(event.to_string().as_bytes(), topic, &config.policy);
        assert!(decoded.is_ok(), "{event}");
    }

    /// Returns a collector without Kafka and without a spool.
    fn collector(settings: &str) -> Collector {
        let text = format!(
            "[kafka]\nbrokers = \"127.0.0.1:1\"\n[collect]\nlisten = \"127.0.0.1:1\"\n{settings}\n{SETTINGS}"
        );
        let config = config::parse(&text).unwrap();
        Collector::start(&config, config.collect.as_ref().unwrap(), None).unwrap()
    }

    fn click() -> Click<'static> {
        Click {
            id: "go-1",
            ip: "203.0.113.9".parse().unwrap(),
            ua: ANDROID,
            system: System::of(ANDROID),
            bot: None,
            query: "",
            signature: None,
        }
    }

    /// A disk or a cluster that hangs for minutes does not fill the memory.
    #[tokio::test]
    async fn clicks_that_wait_are_limited() {
        let collector = collector("");
        let others = collector.wait_with_click(WAITING_CLICK_BYTES_MAX as usize);
        assert!(others.is_some());
        produce(&collector, &link(), &click()).await;
        let recent = collector.recent_clicks("l").unwrap();
        assert_eq!(recent["requests"][0]["code"], "unavailable", "{recent}");
        drop(others);
        assert!(collector.wait_with_click(WAITING_CLICK_BYTES_MAX as usize).is_some());
    }

    /// The person has been redirected long before.
    #[tokio::test]
    async fn clicks_that_wait_end_with_the_process() {
        let collector = collector("acknowledgement_timeout = \"60s\"");
        produce(&collector, &link(), &click()).await;
        let code = || collector.recent_clicks("l").unwrap()["requests"][0]["code"].clone();
        assert_eq!(code(), Value::Null);
        collector.flush().await;
        assert_eq!(code(), "unavailable");
    }

    /// Sends a request for a person by way of a proxy; `link` is an id with a query. Returns once the click, if it is
    /// one, is in the spool.
    async fn ask(bed: &Bed, method: Method, link: &str) -> Response {
        let id = link.split('?').next().unwrap().to_owned();
        let request = Request::builder().method(method).uri(format!("/go/{link}"));
        let request = request.header("x-forwarded-for", "203.0.113.9").body(Body::empty()).unwrap();
        let proxy = Extension(ClientAddress("10.0.0.1".parse().unwrap()));
        let response = go(State(bed.collector.clone()), Path(id), proxy, request).await;
        bed.collector.flush().await;
        response.unwrap()
    }

    #[tokio::test]
    async fn a_head_request_is_answered_but_is_not_a_click() {
        let bed = Bed::new("");
        for (method, clicks) in [(Method::HEAD, 0), (Method::GET, 1)] {
            let response = ask(&bed, method, "l").await;
            let location = &response.headers()[header::LOCATION];
            assert_eq!(
                (response.status(), location.as_bytes()),
                (StatusCode::FOUND, &b"https://a.example/b"[..])
            );
            assert_eq!(bed.lines.lock().len(), clicks);
        }
    }

    #[tokio::test]
    async fn a_click_has_the_address_that_a_trusted_proxy_names() {
        for (settings, ip) in
            [("", "10.0.0.1"), ("trusted_proxies = [\"10.0.0.0/8\"]", "203.0.113.9")]
        {
            let bed = Bed::new(settings);
            ask(&bed, Method::GET, "l").await;
            assert_eq!(bed.lines.lock()[0]["event"]["ip"], ip);
        }
    }

    /// Apps append parameters to the links that people open in them. The signature is that of Python's `hmac`.
    #[tokio::test]
    async fn what_follows_the_signature_is_not_part_of_the_click() {
        let hex = "e9576750596820e3978b39d62d98e40962d07a452029bce820f746eda1f00343";
        let check = async |mode: &str, query: &str, expected: Value| {
            let bed = Bed::new(&format!(
                "public_url = \"https://click.example.com\"\n[[channels]]\nid = \"e\"\n\
                 [channels.signature]\nscheme = \"hmac_sha256\"\nmode = \"{mode}\"\n\
                 keys = [{{ secret = \"key-1\" }}]\n\
                 [[campaigns]]\nspreadid = 8\npid = 1\nchannel = \"e\"\n\
                 [[links]]\nid = \"m\"\nspreadid = 8\nfallback = \"https://a.example/b\"\n"
            ));
            ask(&bed, Method::GET, &format!("m?{query}")).await;
            let params = bed.lines.lock()[0]["event"]["params"].clone();
            assert_eq!(params, expected, "{mode} {query}");
        };
        let signed = format!("sub1=a&signature={hex}");
        let appended = format!("{signed}&fbclid=x&sub2=b");
        for mode in ["report", "enforce"] {
            let valid = json!({"link": "m", "signature": "valid", "sub1": "a"});
            check(mode, &signed, valid.clone()).await;
            check(mode, &appended, valid).await;
            let invalid = json!({"link": "m", "signature": "invalid", "sub1": "a", "sub2": "b"});
            check(mode, &format!("sub2=b&{signed}"), invalid).await;
        }
        check("off", &appended, json!({"link": "m", "sub1": "a", "sub2": "b"})).await;
    }

    #[test]
    fn requests_of_programs_are_flagged() {
        let check = |name: &'static str, value: &'static str, ua: &str, expected: Option<&str>| {
            let headers: HeaderMap =
                [(header::HeaderName::from_static(name), HeaderValue::from_static(value))]
                    .into_iter()
                    .collect();
            assert_eq!(bot(&headers, ua), expected, "{name}: {value}, {ua}");
        };
        check("accept", "*/*", ANDROID, None);
        check("accept", "*/*", "Mozilla/5.0 (Linux; Android 13; CUBOT X70)", None);
        check("accept", "*/*", "Mozilla/5.0 (compatible; Googlebot/2.1)", Some("crawler"));
        check("sec-purpose", "prefetch;prerender", ANDROID, Some("prefetch"));
        check("x-purpose", "preview", IPHONE, Some("prefetch"));
    }

    #[test]
    fn click_ids_are_unique() {
        let (one, other) = (click_id().unwrap(), click_id().unwrap());
        assert!(one != other && one.len() == 35 && one.starts_with("go-"), "{one} {other}");
    }
}
