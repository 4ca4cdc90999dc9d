//! Classes of activations (the contract's section 2).

use crate::event::EventTime;
use crate::policy::AppPolicy;
use crate::row::InstallType;

/// An activation in the set of those that share a device id with the one to classify, ordered
/// by (time, id).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Member {
    pub time: EventTime,
    pub id: Box<str>,
}

/// What an activation is, and the `install` that a reinstall follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Class {
    pub install_type: InstallType,
    /// The id of the last `install` of its set, for a reinstall.
    pub original: Option<Box<str>>,
}

/// Classifies the last of the members, which are sorted and not empty.
pub fn classify(app: &AppPolicy, members: &[Member]) -> Class {
    let mut last_install: Option<&Member> = None;
    let mut last_real: Option<&Member> = None;
    let mut install_type = InstallType::Install;
    for member in members {
        let since = |earlier: &Member| member.time.since(earlier.time).unwrap_or(0);
        install_type = if last_real.is_some_and(|real| since(real) < app.duplicate_within_ms) {
            InstallType::Duplicate
        } else if last_install.is_none_or(|install| since(install) > app.reattribution_window_ms) {
            InstallType::Install
        } else {
            InstallType::Reinstall
        };
        if install_type != InstallType::Duplicate {
            last_real = Some(member);
        }
        if install_type == InstallType::Install {
            last_install = Some(member);
        }
    }
    let original = last_install
        .filter(|_| install_type == InstallType::Reinstall)
        .map(|install| install.id.clone());
    Class { install_type, original }
}

/// Whether members older than the oldest of these can change no class of theirs: some member
/// stands so long after the one before it that it is an `install` whatever came earlier.
pub fn is_settled(app: &AppPolicy, members: &[Member]) -> bool {
    members.windows(2).any(|pair| {
        let gap_ms = pair[1].time.since(pair[0].time).unwrap_or(0);
        gap_ms > app.reattribution_window_ms.max(app.duplicate_within_ms)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Pid;
    use InstallType::{Duplicate, Install, Reinstall};

    const DAYS_90: i64 = 90 * 86_400_000;

    #[track_caller]
    fn check(times: &[i64], expected: &[InstallType]) {
        let app = AppPolicy::new(Pid(1), "a");
        let members: Vec<_> = times
            .iter()
            .enumerate()
            .map(|(index, time)| Member {
                time: EventTime::from_millis(*time).unwrap(),
                id: format!("a-{index}").into(),
            })
            .collect();
        let found: Vec<_> =
            (1..=members.len()).map(|n| classify(&app, &members[..n]).install_type).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn installs_reinstalls_and_duplicates() {
        check(&[0], &[Install]);
        check(&[0, 59_999], &[Install, Duplicate]);
        check(&[0, 60_000], &[Install, Reinstall]);
        check(&[0, 59_999, 60_000], &[Install, Duplicate, Reinstall]);
        check(&[0, 0], &[Install, Duplicate]);
        check(&[0, DAYS_90], &[Install, Reinstall]);
        check(&[0, DAYS_90 + 1], &[Install, Install]);
        check(&[0, 70_000, DAYS_90 + 1], &[Install, Reinstall, Install]);
    }

    #[test]
    fn a_reinstall_names_the_install_before_it() {
        let app = AppPolicy::new(Pid(1), "a");
        let member =
            |time, id: &str| Member { time: EventTime::from_millis(time).unwrap(), id: id.into() };
        let members = [member(0, "a"), member(70_000, "b"), member(200_000, "c")];
        assert_eq!(classify(&app, &members).original.as_deref(), Some("a"));
    }

    #[test]
    fn a_long_gap_settles_what_follows() {
        let app = AppPolicy::new(Pid(1), "a");
        let members = |gap| {
            [0, gap]
                .map(|time| Member { time: EventTime::from_millis(time).unwrap(), id: "x".into() })
        };
        assert!(!is_settled(&app, &members(DAYS_90)));
        assert!(is_settled(&app, &members(DAYS_90 + 1)));
    }
}
