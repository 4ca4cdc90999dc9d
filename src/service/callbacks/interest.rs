//! Which decisions an endpoint wants to know of.

use attribution::outbox::interest::Interest;
use attribution::outbox::record::EndpointId;
use attribution::rules::policy::Policy;
use attribution::rules::row::EventType;
use callback::Endpoint;

/// Returns what the rules need to know of an endpoint.
pub fn interest(endpoint: &Endpoint, policy: &Policy) -> Interest {
    let activation = EventType::Activation.name();
    let pid = |key: &str| policy.app_by_key(key).map(|app| app.pid);
    let effects = endpoint.event_names().map(|names| {
        let effects = names.into_iter().filter(|name| *name != activation);
        effects.map(Into::into).collect::<Vec<Box<str>>>()
    });
    let kinds = endpoint.kinds().iter().copied().filter(|kind| endpoint.sends(*kind));
    Interest {
        endpoint: EndpointId::new(endpoint.name()),
        apps: endpoint.apps().iter().filter_map(|key| pid(key)).collect(),
        channels: endpoint.channels().to_vec(),
        kinds: kinds.collect(),
        event_names: effects.unwrap_or_default(),
        settle_ms: endpoint.settle_ms(),
        max_age_ms: endpoint.max_age_ms(),
        late_credit: endpoint.late_credit(),
    }
}

#[cfg(test)]
mod tests {
    use attribution::facts::event::Pid;
    use attribution::outbox::record::CallbackKind;

    use super::*;
    use crate::service::callbacks::Callbacks;

    const SETTINGS: &str = "[[apps]]\npid = 1\nkey = \"app-x\"\n\n[[apps]]\npid = 2\nkey = \"app-y\"\n\n\
                            [[channels]]\nid = \"toutiao\"\n\n[[callbacks.endpoint]]\nname = \"a\"\n";

    fn interest_of(lines: &str) -> Interest {
        let config = config::parse(&format!("{SETTINGS}{lines}\n")).unwrap();
        let callbacks = Callbacks::new(&config).unwrap();
        interest(&callbacks.endpoints()[0], &config.policy)
    }

    #[test]
    fn a_network_wants_the_events_that_it_has_names_for() {
        let lines = "preset = \"oceanengine\"\nchannels = [\"toutiao\"]\napps = [\"app-y\"]\n\
                     settle = \"5s\"\nevents.purchase = \"\"\n";
        let interest = interest_of(lines);
        assert_eq!(interest.apps, [Pid(2)]);
        assert_eq!(interest.channels, ["toutiao".into()]);
        assert_eq!(interest.kinds, [CallbackKind::Activation, CallbackKind::Effect]);
        assert_eq!(interest.event_names, ["register".into()]);
        assert_eq!((interest.settle_ms, interest.max_age_ms), (5_000, 86_400_000));
    }

    #[test]
    fn what_has_no_name_is_not_wanted() {
        let unity = "preset = \"unity\"\nchannels = [\"toutiao\"]\nvalues.game_id = \"1\"\n";
        assert_eq!(interest_of(unity).kinds, [CallbackKind::Activation]);
        let effects = "preset = \"oceanengine\"\nchannels = [\"toutiao\"]\n\
                       events.activation = \"\"\n";
        assert_eq!(interest_of(effects).kinds, [CallbackKind::Effect]);
        let again = "preset = \"unity\"\nchannels = [\"toutiao\"]\nvalues.game_id = \"1\"\n\
                     events = { activation = \"\", reinstall = \"again\" }\n";
        assert_eq!(interest_of(again).kinds, [CallbackKind::Activation]);
    }

    #[test]
    fn a_webhook_wants_all_effects() {
        let lines = "preset = \"webhook\"\nurl = \"https://a.example/\"\n\
                     credentials.secret = \"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"\n";
        let interest = interest_of(lines);
        assert!(interest.apps.is_empty() && interest.channels.is_empty());
        assert!(interest.event_names.is_empty());
        assert!(interest.kinds.contains(&CallbackKind::EffectAttributed));
        assert!(interest.kinds.contains(&CallbackKind::ActivationChanged));
        assert!(!interest.kinds.contains(&CallbackKind::Effect));
    }
}
