//! The secrets that a preset can ask for.

use config::{CallbackCredentials, Secret};

attribution::named! {
    /// A secret that the settings must have.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum Credential {
        Secret = "secret",
        AccessToken = "access_token",
        Key = "key",
    }
}

impl Credential {
    pub fn of(self, credentials: &CallbackCredentials) -> Option<&Secret> {
        match self {
            Self::Secret => credentials.secret.as_ref(),
            Self::AccessToken => credentials.access_token.as_ref(),
            Self::Key => credentials.key.as_ref(),
        }
    }
}
