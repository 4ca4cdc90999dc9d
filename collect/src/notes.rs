//! What is known of an event that was received: for `--echo`, and for the last requests of a link.

use std::sync::Arc;

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::dialect::link::LinkKind;
use crate::dialect::pairs::Pairs;
use crate::dialect::parse::COMMON;
use crate::dialect::{Dialect, Presence};
use crate::signature::Outcome;

pub(crate) struct Notes {
    /// The key of the app.
    pub app: Box<str>,
    pub link: UsedLink,
    pub signature: Option<Outcome>,
    /// What else than a person has probably used the link.
    pub bot: Option<&'static str>,
    /// `None` without `--echo`.
    pub values: Option<Box<Values>>,
    /// The dialect of a network's report.
    dialect: Option<Arc<Dialect>>,
    /// One for each parameter of the dialect, in the same order.
    pub presence: Box<[Presence]>,
}

/// The link that a request used.
#[derive(Debug)]
pub(crate) enum UsedLink {
    None,
    /// A link of a network, with the campaign that its report names.
    Report {
        kind: LinkKind,
        spreadid: Option<u32>,
    },
    /// The id of a link of people.
    Person(Box<str>),
}

impl Notes {
    pub fn new(app: &str, has_values: bool) -> Self {
        let values = has_values.then(Box::default);
        Self {
            app: app.into(),
            link: UsedLink::None,
            signature: None,
            bot: None,
            values,
            dialect: None,
            presence: Box::default(),
        }
    }

    /// Adds what a network's report has.
    pub fn set_report(
        &mut self,
        dialect: &Arc<Dialect>,
        presence: Box<[Presence]>,
        pairs: &Pairs<'_>,
        signature: Option<Outcome>,
    ) {
        if let Some(values) = &mut self.values {
            values.set_report(dialect, &presence, pairs);
        }
        self.dialect = Some(Arc::clone(dialect));
        self.presence = presence;
        self.signature = signature;
    }

    /// Adds the parameters of a request without a dialect.
    pub fn set_parameters(&mut self, pairs: &Pairs<'_>, signature: Option<Outcome>) {
        if let Some(values) = &mut self.values {
            values.set_all(pairs);
        }
        self.signature = signature;
    }

    pub fn set_event(&mut self, event: &str) {
        if let Some(values) = &mut self.values {
            values.event = RawValue::from_string(event.to_owned()).ok();
        }
    }

    /// Returns the names of the dialect's parameters that the report has in this way.
    pub fn names_with(&self, presence: Presence) -> impl Iterator<Item = &str> {
        let dialect = self.dialect.iter();
        dialect.flat_map(move |dialect| dialect.names_with(&self.presence, presence))
    }
}

/// What only `--echo` shows of an event: it has device ids, addresses and tokens.
#[derive(Debug, Default)]
pub(crate) struct Values {
    /// The parameters that were read.
    pub read: Map<String, Value>,
    /// Names of the other parameters.
    pub unknown: Vec<String>,
    /// The event as it is produced, or as it was received if it could not be completed.
    pub event: Option<Box<RawValue>>,
}

impl Values {
    /// Keeps the parameters of a network's report.
    fn set_report(&mut self, dialect: &Dialect, presence: &[Presence], pairs: &Pairs<'_>) {
        let parameters = dialect.parameters.iter().zip(presence);
        let read = parameters.filter(|(_, presence)| **presence == Presence::Value);
        let read = read.map(|(parameter, _)| (&*parameter.name, parameter.meaning.has_spaces()));
        let read = COMMON.into_iter().map(|name| (name, false)).chain(read);
        let values = read.filter_map(|(name, has_spaces)| {
            Some((name.to_owned(), Value::from(pairs.value(name, has_spaces)?)))
        });
        self.read = values.collect();
        let is_known = |name: &str| {
            COMMON.contains(&name) || dialect.parameters.iter().any(|one| *one.name == *name)
        };
        self.unknown = pairs.names().filter(|name| !is_known(name)).map(str::to_owned).collect();
    }

    /// Keeps all parameters.
    fn set_all(&mut self, pairs: &Pairs<'_>) {
        let value = |name: &str| Some((name.to_owned(), Value::from(pairs.value(name, true)?)));
        self.read = pairs.names().filter_map(value).collect();
    }
}
