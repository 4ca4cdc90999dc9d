//! Hides in a response what it repeats of anything private: what a request has of it, and other forms of the same.

use reqwest::Url;

use super::Endpoint;
use super::request::{callback_url, shortened, values};
use crate::crypto::{md5_hex, sha256_hex};
use crate::event::CallbackEvent;
use crate::template::fields::{HIDDEN, Values, is_private_param};
use crate::template::{Template, url_encode};

/// Shorter texts are too common to be recognised in a response.
const PRIVATE_BYTES_MIN: usize = 6;
/// The digits of an MD5, the shortest hash that is recognised.
const HASH_DIGITS_MIN: usize = 32;

/// Returns what people may see of a response, or of a reason that can have a text of it.
pub(crate) fn shown_answer(
    endpoint: &Endpoint,
    event: &CallbackEvent,
    signatures: &[String],
    body: &[u8],
) -> Box<str> {
    let mut text = String::from_utf8_lossy(body).into_owned();
    for private in private_texts(endpoint, event, signatures, &text) {
        // Many servers write a slash in JSON with a backslash.
        for form in [private.clone(), url_encode(&private), private.replace('/', "\\/")] {
            if text.contains(&form) {
                text = text.replace(&form, HIDDEN);
            }
        }
    }
    let visible: String = text.chars().filter(|c| !c.is_control()).collect();
    shortened(&visible)
}

/// Returns what this response may repeat and must not show, the longest texts first, because one may be a part of
/// another one.
fn private_texts(
    endpoint: &Endpoint,
    event: &CallbackEvent,
    signatures: &[String],
    response: &str,
) -> Vec<String> {
    // Most responses are short, and so is the reason of what was taken.
    if response.len() < PRIVATE_BYTES_MIN {
        return Vec::new();
    }
    let mut texts = secrets(endpoint);
    texts.extend(ids(event, has_hash(response)));
    texts.extend(of_credit(event));
    texts.push(event.ip.to_string());
    let sent = values(endpoint, event, "", 0);
    if endpoint.settings.url.is_some() {
        texts.extend(endpoint.url.iter().flat_map(|url| of_own_url(url, &sent)));
    }
    for template in endpoint.preset.templates().into_iter().chain(&endpoint.url) {
        texts.extend(template.private_values(&sent));
    }
    texts.extend(signatures.iter().cloned());
    // Servers write the padding of base64 in JSON in different ways.
    let unpadded = texts.iter().map(|text| text.trim_end_matches('=').to_owned());
    texts.extend(unpadded.collect::<Vec<_>>());
    texts.retain(|private| (PRIVATE_BYTES_MIN..=response.len()).contains(&private.len()));
    texts.sort_unstable_by(|one, two| two.len().cmp(&one.len()).then_with(|| one.cmp(two)));
    texts.dedup();
    texts
}

fn secrets(endpoint: &Endpoint) -> Vec<String> {
    let credentials = &endpoint.settings.credentials;
    let secrets = [
        &credentials.secret,
        &credentials.previous_secret,
        &credentials.access_token,
        &credentials.key,
    ];
    secrets.into_iter().flatten().map(|secret| secret.expose().to_owned()).collect()
}

/// Returns the path and the query of a URL of the settings, and their parts, which can be tokens.
fn of_own_url(url: &Template, sent: &Values<'_>) -> Vec<String> {
    let url = url.render(sent).and_then(|url| Url::parse(&url).ok());
    let Some(url) = url else { return Vec::new() };
    let mut texts = query_values(&url);
    texts.extend(url.path().split('/').chain([url.path()]).map(str::to_owned));
    texts.extend(url.query().map(str::to_owned));
    texts
}

/// Returns the values of a query, as they are and decoded.
fn query_values(url: &Url) -> Vec<String> {
    let pairs = url.query().unwrap_or_default().split('&');
    let mut texts: Vec<String> =
        pairs.filter_map(|pair| pair.split_once('=')).map(|(_, value)| value.to_owned()).collect();
    texts.extend(url.query_pairs().map(|(_, value)| value.into_owned()));
    texts
}

/// Returns the ids, and also their hashes if the response has any.
fn ids(event: &CallbackEvent, with_hashes: bool) -> Vec<String> {
    let mut texts = Vec::new();
    for id in event.ids.values() {
        for form in [id.to_string(), id.to_lowercase(), id.to_uppercase()] {
            if with_hashes {
                let hashes = [md5_hex(&form), sha256_hex(&form)];
                texts.extend(hashes.iter().map(|hash| hash.to_uppercase()));
                texts.extend(hashes);
            }
            texts.push(form);
        }
    }
    texts
}

fn of_credit(event: &CallbackEvent) -> Vec<String> {
    let credit = &event.credit;
    let private_params = credit.params.iter().filter(|(name, _)| is_private_param(name));
    let mut texts: Vec<String> = private_params.map(|(_, value)| value.to_string()).collect();
    texts.extend([&credit.callback, &credit.click_id].map(|text| text.to_string()));
    // A network may repeat only the token of the URL.
    if let Some(url) = callback_url(&credit.callback).and_then(|url| Url::parse(&url).ok()) {
        texts.extend(query_values(&url));
    }
    texts
}

/// Checks whether a text can have a hash. To hash all ids for each response is expensive.
fn has_hash(text: &str) -> bool {
    let mut runs = text.as_bytes().split(|byte| !byte.is_ascii_hexdigit());
    runs.any(|run| run.len() >= HASH_DIGITS_MIN)
}
