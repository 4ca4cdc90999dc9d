//! Which of the events that an endpoint wants it gets. A function of facts, so that an attempt after a crash decides as
//! the one before.

use std::cmp::Ordering;

use config::CallbackConditions;
use xxhash_rust::xxh3::xxh3_64;

use super::NotSent;
use crate::decimal;
use crate::event::CallbackEvent;

pub(super) struct Conditions(CallbackConditions);

impl Conditions {
    pub fn new(settings: CallbackConditions) -> Self {
        Self(settings)
    }

    pub fn need_earlier(&self) -> bool {
        self.0.first_only || self.0.once_per_ms.is_some()
    }

    pub fn check(&self, event: &CallbackEvent) -> Result<(), NotSent> {
        let is_in_share = self.0.share_percent.is_none_or(|percent| is_in_share(event, percent));
        if !is_in_share {
            return Err(NotSent::Unwanted("the activation is not in the share"));
        }
        if !event.kind.is_effect() {
            return Ok(());
        }
        // No network takes a refund: it would count it as another conversion.
        let is_refused = |revenue: &str| !event.kind.is_webhook() && decimal::is_negative(revenue);
        if is_refused(&event.revenue) {
            return Err(NotSent::Unwanted("no ad network takes a negative revenue"));
        }
        if !self.has_revenue(&event.revenue) {
            return Err(NotSent::Unwanted("the revenue is less than revenue_min"));
        }
        // An effect that was not sent for its revenue is not the first one.
        let is_sent = |revenue: &str| self.has_revenue(revenue) && !is_refused(revenue);
        let earlier = event.earlier.iter().filter(|earlier| is_sent(&earlier.revenue));
        let mut times_ms = earlier.map(|earlier| earlier.time_ms).peekable();
        if self.0.first_only && times_ms.peek().is_some() {
            return Err(NotSent::Unwanted("not the first effect of its name"));
        }
        if let Some(length_ms) = self.0.once_per_ms {
            let window = |time_ms| window(event, time_ms, length_ms);
            if times_ms.any(|time_ms| window(time_ms) == window(event.time_ms)) {
                return Err(NotSent::Unwanted("not the first effect of its name in its window"));
            }
        }
        Ok(())
    }

    fn has_revenue(&self, revenue: &str) -> bool {
        let Some(least) = &self.0.revenue_min else { return true };
        decimal::compare(revenue, least).is_some_and(Ordering::is_ge)
    }
}

/// Returns the number of the window in which a time is; the first one begins at the activation.
fn window(event: &CallbackEvent, time_ms: i64, length_ms: u64) -> i64 {
    let start_ms = event.activation_time_ms.unwrap_or(0);
    let length_ms = i64::try_from(length_ms).unwrap_or(i64::MAX).max(1);
    time_ms.saturating_sub(start_ms).div_euclid(length_ms)
}

/// All events of an activation are in the share, or none.
fn is_in_share(event: &CallbackEvent, percent: u32) -> bool {
    let hash = xxh3_64(format!("{}\0{}", event.app, event.activation_id).as_bytes());
    hash % 100 < u64::from(percent)
}

#[cfg(test)]
mod tests {
    use attribution::outbox::record::CallbackKind;

    use super::*;
    use crate::event::Earlier;
    use crate::event::tests::{activation, event};

    const HOUR_MS: i64 = 3_600_000;

    fn earlier(time_ms: i64, revenue: &str) -> Earlier {
        Earlier { time_ms, revenue: revenue.into() }
    }

    /// Checks an effect at this time after its activation, with this revenue.
    fn is_sent(
        settings: &CallbackConditions,
        after_ms: i64,
        revenue: &str,
        others: &[(i64, &str)],
    ) -> bool {
        let start_ms = activation().time_ms;
        let others = others.iter().map(|(after_ms, revenue)| earlier(start_ms + after_ms, revenue));
        let event = CallbackEvent {
            time_ms: start_ms + after_ms,
            revenue: revenue.into(),
            earlier: others.collect(),
            ..event()
        };
        Conditions::new(settings.clone()).check(&event).is_ok()
    }

    #[test]
    fn revenue_has_a_threshold() {
        let settings = CallbackConditions {
            revenue_min: Some("6.00".into()),
            ..CallbackConditions::default()
        };
        let check = |revenue: &str| is_sent(&settings, 0, revenue, &[]);
        assert!(check("6") && check("6.0000") && check("100"));
        assert!(!check("5.99") && !check("") && !check("-7"));
        let free = CallbackEvent { revenue: "".into(), ..activation() };
        assert_eq!(Conditions::new(settings).check(&free), Ok(()), "an activation has no revenue");
    }

    #[test]
    fn a_network_gets_no_negative_revenue() {
        let check = |kind: CallbackKind, revenue: &str| {
            let refund = CallbackEvent { kind, revenue: revenue.into(), ..event() };
            Conditions::new(CallbackConditions::default()).check(&refund)
        };
        let refused = Err(NotSent::Unwanted("no ad network takes a negative revenue"));
        assert_eq!(check(CallbackKind::Effect, "-5"), refused);
        assert_eq!(check(CallbackKind::Effect, "-0.001"), refused);
        assert_eq!(check(CallbackKind::Effect, "-0"), Ok(()));
        assert_eq!(check(CallbackKind::Effect, ""), Ok(()));
        assert_eq!(check(CallbackKind::EffectAttributed, "-5"), Ok(()));
    }

    #[test]
    fn a_refund_is_not_the_first_effect_of_a_network() {
        let first = CallbackConditions { first_only: true, ..CallbackConditions::default() };
        assert!(is_sent(&first, 10, "1", &[(5, "-1")]));
        let daily =
            CallbackConditions { once_per_ms: Some(86_400_000), ..CallbackConditions::default() };
        assert!(is_sent(&daily, 10, "1", &[(5, "-1")]));
        assert!(!is_sent(&daily, 10, "1", &[(5, "0")]));
    }

    #[test]
    fn the_first_effect_above_the_threshold_is_the_first_one() {
        let first = CallbackConditions { first_only: true, ..CallbackConditions::default() };
        assert!(is_sent(&first, 10, "1", &[]));
        assert!(!is_sent(&first, 10, "1", &[(5, "")]));
        let above = CallbackConditions { revenue_min: Some("6".into()), ..first };
        assert!(is_sent(&above, 10, "6", &[(5, "5")]));
        assert!(!is_sent(&above, 10, "6", &[(5, "6")]));
    }

    #[test]
    fn a_window_has_one_effect() {
        let settings = CallbackConditions {
            once_per_ms: Some(24 * 3_600_000),
            ..CallbackConditions::default()
        };
        assert!(is_sent(&settings, 23 * HOUR_MS, "", &[]));
        assert!(!is_sent(&settings, 23 * HOUR_MS, "", &[(HOUR_MS, "")]));
        assert!(is_sent(&settings, 24 * HOUR_MS, "", &[(23 * HOUR_MS, "")]));
        assert!(is_sent(&settings, 0, "", &[(-1, "")]), "before the activation");
    }

    #[test]
    fn a_share_is_of_activations() {
        let sent = |percent: u32| {
            let settings = CallbackConditions {
                share_percent: Some(percent),
                ..CallbackConditions::default()
            };
            let conditions = Conditions::new(settings);
            let is_sent = |number: u32| {
                let id: Box<str> = format!("a-{number}").into();
                let effect = CallbackEvent { activation_id: id.clone(), ..event() };
                let install = CallbackEvent { activation_id: id, ..activation() };
                let outcome = conditions.check(&install).is_ok();
                assert_eq!(conditions.check(&effect).is_ok(), outcome);
                outcome
            };
            (0..1_000).filter(|number| is_sent(*number)).count()
        };
        assert!((600..800).contains(&sent(70)));
        assert!(sent(1) < 50);
    }
}
