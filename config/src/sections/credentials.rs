//! Reads the secrets of an endpoint that gets callbacks.

use crate::parse::secret::Secret;
use crate::parse::section::Section;

/// The secrets of an endpoint. A preset says which of them it needs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CallbackCredentials {
    /// Signs requests.
    pub secret: Option<Secret>,
    /// Signs webhooks too while the receiver changes from it to `secret`.
    pub previous_secret: Option<Secret>,
    /// Is sent.
    pub access_token: Option<Secret>,
    /// Encrypts device ids.
    pub key: Option<Secret>,
}

pub(crate) fn read(credentials: &mut Section<'_>) -> CallbackCredentials {
    let read = CallbackCredentials {
        secret: credentials.secret("secret"),
        previous_secret: credentials.secret("previous_secret"),
        access_token: credentials.secret("access_token"),
        key: credentials.secret("key"),
    };
    if credentials.is_set("previous_secret") && !credentials.is_set("secret") {
        let problem = format!("requires {}", credentials.dotted("secret"));
        credentials.contradict("previous_secret", problem);
    }
    read
}
