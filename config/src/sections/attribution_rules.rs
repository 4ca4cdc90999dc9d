//! Reads attribution rules. The table of each level (app, channel, campaign) overrides the rules of the level above.

use attribution::rules::policy::{
    AppPolicy, Origin, PROBABILISTIC_MAX_MS, ReinstallEffects, Windows,
};

use crate::parse::duration::{self, parse_ms, parse_ms_or_off};
use crate::parse::error::Problem;
use crate::parse::section::Section;

const REATTRIBUTION_WINDOW: &str = "reattribution_window";
const DUPLICATE_WITHIN: &str = "duplicate_within";

/// The windows that one table sets.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct WindowOverrides {
    click_ms: Option<u64>,
    click_probabilistic_ms: Option<u64>,
    impression_ms: Option<u64>,
    impression_probabilistic_ms: Option<u64>,
}

impl WindowOverrides {
    /// Returns `base` with the set windows replaced, and `origin` as their origin.
    pub fn apply_to(self, base: Windows, origin: Origin) -> Windows {
        let overrides = [
            self.click_ms,
            self.click_probabilistic_ms,
            self.impression_ms,
            self.impression_probabilistic_ms,
        ];
        let mut origins = base.origins;
        for (window_origin, value) in origins.iter_mut().zip(overrides) {
            *window_origin = if value.is_some() { origin } else { *window_origin };
        }
        Windows {
            click_ms: self.click_ms.unwrap_or(base.click_ms),
            click_probabilistic_ms: self
                .click_probabilistic_ms
                .unwrap_or(base.click_probabilistic_ms),
            impression_ms: self.impression_ms.unwrap_or(base.impression_ms),
            impression_probabilistic_ms: self
                .impression_probabilistic_ms
                .unwrap_or(base.impression_probabilistic_ms),
            origins,
        }
    }
}

/// Reads the windows of an `attribution` table.
pub(crate) fn read_windows(table: &mut Section<'_>) -> WindowOverrides {
    WindowOverrides {
        click_ms: table.text("click_window", parse_ms),
        click_probabilistic_ms: read_probabilistic_window(table, "click_probabilistic_window"),
        impression_ms: table.text("impression_window", parse_ms),
        impression_probabilistic_ms: read_probabilistic_window(
            table,
            "impression_probabilistic_window",
        ),
    }
}

/// Reads a window that the contract limits to a day. A longer one is probably unintended, but not an error, so it only
/// causes a warning.
fn read_probabilistic_window(table: &mut Section<'_>, key: &'static str) -> Option<u64> {
    let (window_ms, raw_text) =
        table.text(key, |text| parse_ms(text).map(|ms| (ms, text.to_owned())))?;
    if window_ms > PROBABILISTIC_MAX_MS {
        let consequence =
            "reduced to \"24h\", the maximum for touches that are matched probabilistically";
        table.warn(key, consequence, &format!("{raw_text:?}"));
    }
    Some(window_ms.min(PROBABILISTIC_MAX_MS))
}

/// Applies a complete `attribution` table to the app's rules.
pub(crate) fn read_rules(table: &mut Section<'_>, app: &mut AppPolicy, origin: Origin) {
    let set = |setting: &mut u64, value: Option<u64>| *setting = value.unwrap_or(*setting);
    app.windows = read_windows(table).apply_to(app.windows, origin);
    app.probabilistic = table.boolean("probabilistic").unwrap_or(app.probabilistic);
    let reattribution_ms = table.text(REATTRIBUTION_WINDOW, parse_ms);
    let duplicate_ms = table.text(DUPLICATE_WITHIN, parse_ms);
    let has_invalid = reattribution_ms.is_none() && table.is_set(REATTRIBUTION_WINDOW)
        || duplicate_ms.is_none() && table.is_set(DUPLICATE_WITHIN);
    set(&mut app.reattribution_window_ms, reattribution_ms);
    set(&mut app.duplicate_within_ms, duplicate_ms);
    // If one of the two is invalid, they cannot be compared.
    if !has_invalid {
        require_window_order(table, app);
    }
    set(&mut app.clock_skew_ms, table.text("clock_skew", parse_ms));
    set(&mut app.effect_window_ms, table.text("effect_window", parse_ms));
    app.correction_horizon_ms =
        table.text("correction_horizon", parse_ms_or_off).unwrap_or(app.correction_horizon_ms);
    app.reinstall_effects =
        table.text("reinstall_effects", parse_reinstall_effects).unwrap_or(app.reinstall_effects);
}

/// Reports a reattribution window that is shorter than `duplicate_within`: it would have no effect, because
/// classification checks for duplicates first.
fn require_window_order(table: &mut Section<'_>, app: &AppPolicy) {
    let (reattribution_ms, duplicate_ms) = (app.reattribution_window_ms, app.duplicate_within_ms);
    if reattribution_ms >= duplicate_ms {
        return;
    }
    let reattribution = duration::format_ms(reattribution_ms);
    let duplicate = duration::format_ms(duplicate_ms);
    // The key that was set last is reported.
    match table.last_set([REATTRIBUTION_WINDOW, DUPLICATE_WITHIN]) {
        Some(REATTRIBUTION_WINDOW) => {
            let problem = format!("expected at least duplicate_within, which is {duplicate}");
            table.reject(REATTRIBUTION_WINDOW, problem, reattribution);
        }
        Some(key) => {
            let problem =
                format!("expected at most reattribution_window, which is {reattribution}");
            table.reject(key, problem, duplicate);
        }
        // Both values are inherited; the error was reported at that level.
        None => {}
    }
}

fn parse_reinstall_effects(text: &str) -> Result<ReinstallEffects, Problem> {
    match text {
        "original" => Ok(ReinstallEffects::Original),
        "organic" => Ok(ReinstallEffects::Organic),
        _ => Err(r#"expected "original" or "organic""#.into()),
    }
}
