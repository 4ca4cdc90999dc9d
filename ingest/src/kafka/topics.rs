//! The three topics, by the kind of their events.

use std::sync::Arc;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TopicKind {
    /// Clicks and impressions.
    Clicks,
    Activations,
    Effects,
}

impl TopicKind {
    pub const ALL: [Self; 3] = [Self::Clicks, Self::Activations, Self::Effects];

    /// Returns the name of the setting for the topic's name.
    pub fn setting(self) -> &'static str {
        match self {
            Self::Clicks => "kafka.clicks",
            Self::Activations => "kafka.activations",
            Self::Effects => "kafka.effects",
        }
    }
}

/// One value for each topic.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PerTopic<T> {
    clicks: T,
    activations: T,
    effects: T,
}

/// The topics' names.
pub type TopicNames = PerTopic<Arc<str>>;

impl<T> PerTopic<T> {
    pub fn from_fn(mut value: impl FnMut(TopicKind) -> T) -> Self {
        Self {
            clicks: value(TopicKind::Clicks),
            activations: value(TopicKind::Activations),
            effects: value(TopicKind::Effects),
        }
    }

    pub fn of(&self, topic: TopicKind) -> &T {
        match topic {
            TopicKind::Clicks => &self.clicks,
            TopicKind::Activations => &self.activations,
            TopicKind::Effects => &self.effects,
        }
    }

    pub fn of_mut(&mut self, topic: TopicKind) -> &mut T {
        match topic {
            TopicKind::Clicks => &mut self.clicks,
            TopicKind::Activations => &mut self.activations,
            TopicKind::Effects => &mut self.effects,
        }
    }
}

impl TopicNames {
    pub fn new(topics: &config::Topics) -> Self {
        Self::from_fn(|topic| match topic {
            TopicKind::Clicks => topics.clicks.clone(),
            TopicKind::Activations => topics.activations.clone(),
            TopicKind::Effects => topics.effects.clone(),
        })
    }

    pub fn kind(&self, name: &str) -> Option<TopicKind> {
        TopicKind::ALL.into_iter().find(|topic| &**self.of(*topic) == name)
    }
}
