//! The sessions of browsers. Each begins with a sign-in and stands for its token. Only hashes of their ids are kept, in
//! memory: a restart ends all sessions, and users sign in again.

use std::collections::HashMap;
use std::fmt;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};

/// A session without a request for this long ends.
const IDLE_MAX: SignedDuration = SignedDuration::from_hours(1);
/// A session ends this long after the sign-in.
const AGE_MAX: SignedDuration = SignedDuration::from_hours(24);
/// Sessions of one token. Above this number, its oldest ends.
const PER_TOKEN_MAX: usize = 100;
/// Sessions of all tokens. Above this number, the oldest ends.
const TOTAL_MAX: usize = if cfg!(test) { 250 } else { 10_000 };
const ID_BYTES: usize = 32;
/// Length of an id in unpadded Base64.
const ID_CHARS: usize = (ID_BYTES * 8).div_ceil(6);

/// SHA-256 of a session's id.
type IdDigest = [u8; 32];

/// The open sessions by the digest of their id.
#[derive(Default)]
pub(crate) struct OpenSessions(Mutex<HashMap<IdDigest, Session>>);

struct Session {
    /// The id of the token.
    token: Box<str>,
    begun: Timestamp,
    used: Timestamp,
}

impl OpenSessions {
    /// Begins a session of the token with this id, and returns the session's id: 256 random bits.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn begin(&self, token: &str, now: Timestamp) -> Result<String, getrandom::Error> {
        let mut bytes = [0; ID_BYTES];
        getrandom::fill(&mut bytes)?;
        let id = BASE64_URL_SAFE_NO_PAD.encode(bytes);
        let mut sessions = self.0.lock();
        sessions.retain(|_, session| session.is_open(now));
        let is_of_token = |session: &Session| *session.token == *token;
        if sessions.values().filter(|session| is_of_token(session)).count() >= PER_TOKEN_MAX {
            end_oldest(&mut sessions, is_of_token);
        }
        if sessions.len() >= TOTAL_MAX {
            end_oldest(&mut sessions, |_| true);
        }
        sessions.insert(digest(&id), Session { token: token.into(), begun: now, used: now });
        Ok(id)
    }

    /// Returns the id of the token of an open session, and counts this as its latest use.
    pub fn token(&self, id: &str, now: Timestamp) -> Option<Box<str>> {
        // Nothing long is hashed.
        if id.len() != ID_CHARS {
            return None;
        }
        let mut sessions = self.0.lock();
        let session = sessions.get_mut(&digest(id)).filter(|session| session.is_open(now))?;
        session.used = session.used.max(now);
        Some(session.token.clone())
    }

    /// Ends the sessions of tokens whose id is not one of these.
    pub fn end_unless(&self, is_kept: impl Fn(&str) -> bool) {
        self.0.lock().retain(|_, session| is_kept(&session.token));
    }

    pub fn end(&self, id: &str) {
        if id.len() == ID_CHARS {
            self.0.lock().remove(&digest(id));
        }
    }
}

impl fmt::Debug for OpenSessions {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("(not shown)")
    }
}

impl Session {
    fn is_open(&self, now: Timestamp) -> bool {
        now.duration_since(self.used) < IDLE_MAX && now.duration_since(self.begun) < AGE_MAX
    }
}

fn digest(id: &str) -> IdDigest {
    Sha256::digest(id.as_bytes()).into()
}

/// Ends the oldest session that is a candidate.
fn end_oldest(sessions: &mut HashMap<IdDigest, Session>, is_candidate: impl Fn(&Session) -> bool) {
    let candidates = sessions.iter().filter(|(_, session)| is_candidate(session));
    let oldest = candidates.min_by_key(|(_, session)| session.begun).map(|(digest, _)| *digest);
    if let Some(oldest) = oldest {
        sessions.remove(&oldest);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// The time this many seconds after the first sign-in.
    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_773_100_800 + seconds).unwrap()
    }

    fn begin(sessions: &OpenSessions, token: &str, seconds: i64) -> String {
        sessions.begin(token, at(seconds)).unwrap()
    }

    #[test]
    fn a_session_ends_when_it_is_idle_or_old() {
        let sessions = OpenSessions::default();
        let (idle, age) = (IDLE_MAX.as_secs(), AGE_MAX.as_secs());
        let token = |id: &str, seconds: i64| sessions.token(id, at(seconds));
        let unused = begin(&sessions, "a", 0);
        assert_eq!(token(&unused, idle - 1).as_deref(), Some("a"));
        assert_eq!(token(&unused, 2 * idle - 2).as_deref(), Some("a"));
        assert_eq!(token(&unused, 3 * idle - 2), None);
        let used = begin(&sessions, "b", 0);
        for seconds in (0..age).step_by(usize::try_from(idle / 2).unwrap()) {
            assert_eq!(token(&used, seconds).as_deref(), Some("b"), "{seconds}");
        }
        assert_eq!(token(&used, age - 1).as_deref(), Some("b"));
        assert_eq!(token(&used, age), None);
        // Ended sessions are forgotten with the next sign-in.
        begin(&sessions, "a", age);
        assert_eq!(sessions.0.lock().len(), 1);
    }

    #[test]
    fn ids_are_random_and_are_not_kept() {
        let sessions = OpenSessions::default();
        let ids: Vec<String> = (0..50).map(|_| begin(&sessions, "a", 0)).collect();
        assert_eq!(ids.iter().collect::<HashSet<_>>().len(), 50);
        for id in &ids {
            let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
            assert!(id.len() == ID_CHARS && id.chars().all(is_allowed), "{id}");
            let bytes = BASE64_URL_SAFE_NO_PAD.decode(id).unwrap();
            assert!(!sessions.0.lock().keys().any(|kept| *kept == *bytes));
        }
        assert_eq!(format!("{sessions:?}"), "(not shown)");
        let other = format!("{}{}", &ids[0][1..], &ids[0][..1]);
        for wrong in ["", "a", &ids[0][1..], &format!("{}A", ids[0]), &other] {
            assert_eq!(sessions.token(wrong, at(0)), None, "{wrong}");
        }
        sessions.end(&ids[0]);
        assert_eq!(sessions.token(&ids[0], at(0)), None);
        assert_eq!(sessions.token(&ids[1], at(0)).as_deref(), Some("a"));
    }

    #[test]
    fn the_oldest_session_of_a_token_ends_first() {
        let sessions = OpenSessions::default();
        let other = begin(&sessions, "b", 0);
        let seconds = |n: usize| i64::try_from(n).unwrap();
        let ids: Vec<String> =
            (0..=PER_TOKEN_MAX).map(|n| begin(&sessions, "a", seconds(n))).collect();
        let open = |id: &String| sessions.token(id, at(200)).is_some();
        assert!(open(&other) && !open(&ids[0]));
        assert!(ids[1..].iter().all(open));
        // The total is limited, too, and another token has the oldest session.
        for token in ["c", "d"] {
            (0..PER_TOKEN_MAX).for_each(|_| drop(begin(&sessions, token, 200)));
        }
        assert!(!open(&other) && !open(&ids[1]) && open(&ids[PER_TOKEN_MAX]));
        assert_eq!(sessions.0.lock().len(), TOTAL_MAX);
    }
}
