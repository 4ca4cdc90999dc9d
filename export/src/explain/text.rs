//! Explanations as text.

use std::fmt::{self, Write};

use attribution::explain::explanation::Explanation;
use attribution::rules::policy::Policy;

use super::view::{Answer, TouchView, View, WHY, view};

/// Returns the explanation as lines of text.
pub fn text(explanation: &Explanation, policy: &Policy) -> String {
    let mut out = String::new();
    if let Some(view) = view(explanation, policy) {
        // Writing to a string cannot fail.
        let _ = write_view(&view, &mut out);
    }
    out
}

fn write_view(view: &View, out: &mut String) -> fmt::Result {
    writeln!(out, "Activation {} of {}, {}", view.event_id, view.app, view.event_time)?;
    writeln!(out, "\n  {}", view.outcome)?;
    if let Some(outcome) = &view.outcome_recomputed {
        writeln!(out, "\nDecided with other settings; with the current settings it would be")?;
        writeln!(out, "  {outcome}")?;
        writeln!(out, "Windows and reasons below are those of the current settings.")?;
    }
    let (why, more) = view.answers.split_at(WHY.min(view.answers.len()));
    write_answers(why, out)?;
    write_touches(view, out)?;
    write_answers(more, out)?;
    writeln!(out, "\nSettings version {}", view.settings_version)
}

fn write_answers(answers: &[Answer], out: &mut String) -> fmt::Result {
    for (question, sentences) in answers {
        writeln!(out, "\n{question}\n  {}", sentences.join("\n  "))?;
    }
    Ok(())
}

fn write_touches(View { touches, unlisted, .. }: &View, out: &mut String) -> fmt::Result {
    if touches.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nTouches, best first")?;
    for touch in touches {
        let TouchView { verdict, kind, id, time, age, spreadid, channel, how, .. } = touch;
        writeln!(out, "  {verdict:<13}{kind} {id}, {time} ({age})")?;
        write!(out, "  {:<13}campaign {spreadid} of channel {channel}", "")?;
        how.iter().try_for_each(|how| write!(out, "; {how}"))?;
        writeln!(out)?;
        let mut further = touch.reason.iter().chain(&touch.ignored);
        further.try_for_each(|line| writeln!(out, "  {:<13}{line}", ""))?;
    }
    let noun = if *unlisted == 1 { "touch" } else { "touches" };
    if *unlisted > 0 {
        writeln!(out, "  and at least {unlisted} more {noun} with one of its keys, not listed")?;
    }
    Ok(())
}
