//! `adtrail callbacks test`.

use anyhow::{Context, bail};
use attribution::facts::printable::printable;
use attribution::outbox::record::CallbackKind;
use attribution::rules::policy::AppPolicy;
use attribution::rules::row::EventType;
use callback::{Attempt, CallbackEvent, Endpoint, Outcome};
use config::Config;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::{filter, pid};
use crate::cli::TestCallback;
use crate::commands::{UsageError, known_app, load, print, require_apps, unknown_name};
use crate::service::callbacks::sample::Sample;
use crate::service::callbacks::selection::Selection;
use crate::service::callbacks::{Callbacks, now};
use crate::timing::Timing;

pub fn run(options: &TestCallback, timing: Timing) -> anyhow::Result<()> {
    let config = load(&options.settings)?;
    require_apps(&config, &options.settings)?;
    let callbacks = Callbacks::new(&config).map_err(|error| UsageError(error.to_string()))?;
    let endpoint = find(&callbacks, &options.endpoint)?;
    let is_of_options = options.activation.is_some() || options.effect.is_some();
    let event = match is_of_options {
        true => stored(options, &config, &callbacks, endpoint, timing)?,
        false => sample(options, &config, endpoint)?,
    };
    let runtime = Runtime::new().context("the runtime of the request cannot be started")?;
    let context = runtime.enter();
    let sender = callbacks.sender(timing.callback)?;
    drop(context);
    let finished = runtime.block_on(sender.try_once(endpoint, &event));
    let shown = shown(finished.outcome, finished.attempt.as_ref());
    print(format!("{shown:#}\n").as_bytes())?;
    match finished.outcome {
        Outcome::Sent => Ok(()),
        Outcome::Dropped | Outcome::Dead | Outcome::Retry { .. } | Outcome::Postponed { .. } => {
            bail!("{}: the endpoint has not taken the callback", endpoint.name())
        }
    }
}

fn find<'c>(callbacks: &'c Callbacks, name: &str) -> Result<&'c Endpoint, UsageError> {
    let found = callbacks.endpoints().iter().find(|endpoint| endpoint.name() == name);
    found.map(|endpoint| &**endpoint).ok_or_else(|| {
        let known = callbacks.endpoints().iter().map(|known| known.name());
        unknown_name("ENDPOINT", "no such endpoint is configured", name, known.collect())
    })
}

/// Returns the kind that the options name, or the first one of the endpoint that is of an activation or of an effect.
fn kind(
    options: &TestCallback,
    endpoint: &Endpoint,
    is_chosen: impl Fn(CallbackKind) -> bool,
) -> Result<CallbackKind, UsageError> {
    let kinds = endpoint.kinds();
    let problem = |text: &str| UsageError(format!("--kind: {text}"));
    match &options.kind {
        None => {
            let found = kinds.iter().copied().find(|kind| is_chosen(*kind));
            found.ok_or_else(|| problem("the endpoint gets no callbacks about such events"))
        }
        Some(name) => {
            let named = CallbackKind::from_name(name).filter(|kind| kinds.contains(kind));
            named.filter(|kind| is_chosen(*kind)).ok_or_else(|| {
                let names: Vec<_> = kinds.iter().map(|kind| kind.name()).collect();
                problem(&format!("expected one of {}: {name:?}", names.join(", ")))
            })
        }
    }
}

/// Returns the event of the options as it is stored.
fn stored(
    options: &TestCallback,
    config: &Config,
    callbacks: &Callbacks,
    endpoint: &Endpoint,
    timing: Timing,
) -> anyhow::Result<CallbackEvent> {
    let selection = Selection {
        pid: pid(config, &options.settings, options.app.as_deref())?,
        activation: options.activation.clone(),
        effect: options.effect.clone(),
        ..Selection::default()
    };
    let is_effect = options.effect.is_some();
    let kind = kind(options, endpoint, |kind| kind.is_effect() == is_effect)?;
    let event = filter(&selection)?.event.context("expected --activation or --effect")?;
    let reader = store::open_for_reading(&config.store, &config.policy)?;
    let queue = callbacks.queue(&reader, timing.callback);
    queue.describe(endpoint.name(), event, kind)?.with_context(|| {
        let id = options.activation.as_ref().or(options.effect.as_ref());
        let id = id.map(|id| printable(id)).unwrap_or_default();
        format!("the store has no such event: {id}")
    })
}

fn sample(
    options: &TestCallback,
    config: &Config,
    endpoint: &Endpoint,
) -> Result<CallbackEvent, UsageError> {
    let first = endpoint.apps().first().map(|key| &**key);
    let app: &AppPolicy = match options.app.as_deref().or(first) {
        Some(key) => known_app(config, &options.settings, key)?,
        None => {
            let none = || UsageError("--app: no app is configured".to_owned());
            config.policy.apps().next().ok_or_else(none)?
        }
    };
    let kind = kind(options, endpoint, |_| true)?;
    let activation = EventType::Activation.name();
    let names = endpoint.event_names();
    let effect = names.iter().flatten().copied().find(|name| *name != activation);
    let name = if kind.is_effect() { effect.unwrap_or("purchase") } else { activation };
    let channel = endpoint.channels().first().map_or("", |channel| &**channel);
    let callback = options.callback.as_deref();
    let number = getrandom::u64().unwrap_or_default();
    Ok(Sample { kind, app, channel, name, callback, now: now(), number }.event())
}

fn shown(outcome: Outcome, attempt: Option<&Attempt>) -> Value {
    let outcome = match outcome {
        Outcome::Sent => "sent",
        Outcome::Dropped => "dropped",
        Outcome::Dead => "dead",
        Outcome::Retry { .. } => "failed",
        Outcome::Postponed { .. } => "postponed",
    };
    json!({
        "outcome": outcome,
        "reason": attempt.map(|attempt| &*attempt.reason),
        "status": attempt.and_then(|attempt| attempt.status),
        "method": attempt.map(|attempt| &*attempt.request.method),
        "url": attempt.map(|attempt| &*attempt.request.url),
        "body": attempt.map(|attempt| &*attempt.request.body),
        "response": attempt.map(|attempt| &*attempt.answer),
    })
}
