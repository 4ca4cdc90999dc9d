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

/// One value for each topic, in the order of [`TopicKind::ALL`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PerTopic<T>(pub [T; 3]);

/// The topics' names.
pub type TopicNames = PerTopic<Arc<str>>;

impl<T> PerTopic<T> {
    pub fn from_fn(value: impl FnMut(TopicKind) -> T) -> Self {
        Self(TopicKind::ALL.map(value))
    }

    pub fn of(&self, topic: TopicKind) -> &T {
        &self.0[topic as usize]
    }

    pub fn of_mut(&mut self, topic: TopicKind) -> &mut T {
        &mut self.0[topic as usize]
    }
}

impl TopicNames {
    /// Names the topics like their settings.
    #[cfg(any(test, feature = "fuzzing"))]
    pub fn of_settings() -> Self {
        Self::from_fn(|topic| topic.setting().into())
    }

    pub fn new(topics: &config::Topics) -> Self {
        Self([&topics.clicks, &topics.activations, &topics.effects].map(Arc::clone))
    }

    pub fn kind(&self, name: &str) -> Option<TopicKind> {
        TopicKind::ALL.into_iter().find(|topic| &**self.of(*topic) == name)
    }
}
