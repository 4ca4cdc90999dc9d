//! Which callbacks a command is about.

use attribution::facts::event::Pid;
use attribution::facts::match_keys::fact_key;
use attribution::outbox::port::Filter;
use attribution::outbox::record::{CallbackKind, EndpointId, EntryState};
use attribution::rules::row::EventType;
use serde::{Deserialize, Serialize};

/// What is not given allows everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Selection {
    pub endpoint: Option<String>,
    pub pid: Option<u32>,
    /// The id of an activation of the app.
    pub activation: Option<String>,
    /// The id of an effect of the app.
    pub effect: Option<String>,
    pub kind: Option<String>,
    pub state: Option<String>,
}

impl Selection {
    /// # Errors
    /// What is wrong with a name.
    pub fn filter(&self) -> Result<Filter, String> {
        let Self { endpoint, pid, activation, effect, kind, state } = self;
        let pid = pid.map(Pid);
        let event = |event_type: EventType, id: &Option<String>| {
            Some(fact_key(event_type, pid?, id.as_ref()?))
        };
        let kind = named("kind", kind.as_deref(), &CallbackKind::ALL, CallbackKind::name)?;
        let state = named("state", state.as_deref(), &EntryState::ALL, EntryState::name)?;
        Ok(Filter {
            endpoint: endpoint.as_deref().map(EndpointId::new),
            pid,
            event: event(EventType::Activation, activation)
                .or_else(|| event(EventType::Effect, effect)),
            kind,
            state,
        })
    }
}

fn named<T: Copy>(
    what: &str,
    text: Option<&str>,
    all: &[T],
    name: fn(T) -> &'static str,
) -> Result<Option<T>, String> {
    let Some(text) = text else { return Ok(None) };
    let known = all.iter().copied().find(|known| name(*known) == text);
    known.map(Some).ok_or_else(|| {
        let names: Vec<_> = all.iter().map(|known| name(*known)).collect();
        format!("{what}: expected one of {}: {text:?}", names.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selection_survives_its_form_as_text() {
        let selection = Selection {
            endpoint: Some("ocean".to_owned()),
            pid: Some(7),
            effect: Some("e-1".to_owned()),
            kind: Some("effect".to_owned()),
            state: Some("dead".to_owned()),
            ..Selection::default()
        };
        let text = serde_json::to_string(&selection).unwrap();
        let read: Selection = serde_json::from_str(&text).unwrap();
        assert_eq!(read, selection);
        let filter = read.filter().unwrap();
        assert_eq!(filter.event, Some(fact_key(EventType::Effect, Pid(7), "e-1")));
        assert_eq!(filter.kind, Some(CallbackKind::Effect));
        assert_eq!(filter.state, Some(EntryState::Dead));
        assert_eq!(Selection::default().filter(), Ok(Filter::default()));
    }

    #[test]
    fn unknown_names_are_errors() {
        let selection = Selection { state: Some("lost".to_owned()), ..Selection::default() };
        let expected =
            "state: expected one of pending, sent, dropped, withheld, too_old, dead: \"lost\"";
        assert_eq!(selection.filter().unwrap_err(), expected);
    }
}
