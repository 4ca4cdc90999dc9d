//! The rules of attribution, as tables override them.

use attribution::rules::policy::{
    AppPolicy, Origin, PROBABILISTIC_CLICK_MAX_MS, ReinstallEffects, Windows,
};

use crate::parse::duration::{self, parse_ms, parse_ms_or_off};
use crate::parse::error::Problem;
use crate::parse::section::Section;

const REATTRIBUTION_WINDOW: &str = "reattribution_window";
const DUPLICATE_WITHIN: &str = "duplicate_within";

/// The windows that one table gives.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct WindowOverrides {
    click_ms: Option<u64>,
    click_probabilistic_ms: Option<u64>,
    impression_ms: Option<u64>,
    impression_probabilistic_ms: Option<u64>,
}

impl WindowOverrides {
    /// The windows with these in place of theirs.
    pub fn over(self, base: Windows, origin: Origin) -> Windows {
        let given = [
            self.click_ms,
            self.click_probabilistic_ms,
            self.impression_ms,
            self.impression_probabilistic_ms,
        ];
        let mut origins = base.origins;
        for (place, given) in origins.iter_mut().zip(given) {
            *place = if given.is_some() { origin } else { *place };
        }
        let click_probabilistic_ms =
            self.click_probabilistic_ms.unwrap_or(base.click_probabilistic_ms);
        Windows {
            click_ms: self.click_ms.unwrap_or(base.click_ms),
            click_probabilistic_ms: click_probabilistic_ms.min(PROBABILISTIC_CLICK_MAX_MS),
            impression_ms: self.impression_ms.unwrap_or(base.impression_ms),
            impression_probabilistic_ms: self
                .impression_probabilistic_ms
                .unwrap_or(base.impression_probabilistic_ms),
            origins,
        }
    }
}

/// The windows of an `attribution` table.
pub(crate) fn read_windows(table: &mut Section<'_>) -> WindowOverrides {
    WindowOverrides {
        click_ms: table.text("click_window", parse_ms),
        click_probabilistic_ms: read_click_probabilistic_window(table),
        impression_ms: table.text("impression_window", parse_ms),
        impression_probabilistic_ms: table.text("impression_probabilistic_window", parse_ms),
    }
}

/// The contract ends it at a day. That is no mistake, and not what was meant either: it is told.
fn read_click_probabilistic_window(table: &mut Section<'_>) -> Option<u64> {
    const KEY: &str = "click_probabilistic_window";
    let (window_ms, written) =
        table.text(KEY, |text| parse_ms(text).map(|ms| (ms, text.to_owned())))?;
    if window_ms > PROBABILISTIC_CLICK_MAX_MS {
        let taken = "taken as \"24h\", the most that clicks matched by address may have";
        table.warn(KEY, taken, &format!("{written:?}"));
    }
    Some(window_ms)
}

/// Writes what a whole `attribution` table gives over the app's rules.
pub(crate) fn read_rules(table: &mut Section<'_>, app: &mut AppPolicy, origin: Origin) {
    let set = |setting: &mut u64, value: Option<u64>| *setting = value.unwrap_or(*setting);
    app.windows = read_windows(table).over(app.windows, origin);
    app.probabilistic = table.boolean("probabilistic").unwrap_or(app.probabilistic);
    let window = table.text(REATTRIBUTION_WINDOW, parse_ms);
    let within = table.text(DUPLICATE_WITHIN, parse_ms);
    let is_unreadable = window.is_none() && table.is_given(REATTRIBUTION_WINDOW)
        || within.is_none() && table.is_given(DUPLICATE_WITHIN);
    set(&mut app.reattribution_window_ms, window);
    set(&mut app.duplicate_within_ms, within);
    // Beside what can not be read any order would be a guess.
    if !is_unreadable {
        require_order(table, app);
    }
    set(&mut app.clock_skew_ms, table.text("clock_skew", parse_ms));
    set(&mut app.effect_window_ms, table.text("effect_window", parse_ms));
    app.correction_horizon_ms =
        table.text("correction_horizon", parse_ms_or_off).unwrap_or(app.correction_horizon_ms);
    app.reinstall_effects =
        table.text("reinstall_effects", parse_reinstall_effects).unwrap_or(app.reinstall_effects);
}

/// An activation is first asked whether it is a duplicate: a reattribution window that is over
/// before that would never be seen.
fn require_order(table: &mut Section<'_>, app: &AppPolicy) {
    let (window_ms, within_ms) = (app.reattribution_window_ms, app.duplicate_within_ms);
    if window_ms >= within_ms {
        return;
    }
    let (window, within) = (duration::shown(window_ms), duration::shown(within_ms));
    // Of two, the one that was written over the other or after it.
    match table.last_given([REATTRIBUTION_WINDOW, DUPLICATE_WITHIN]) {
        Some(REATTRIBUTION_WINDOW) => {
            let problem = format!("expected at least duplicate_within, which is {within}");
            table.reject(REATTRIBUTION_WINDOW, problem, window);
        }
        Some(key) => {
            let problem = format!("expected at most reattribution_window, which is {window}");
            table.reject(key, problem, within);
        }
        // What the table is laid over has them so, and it is told there.
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
