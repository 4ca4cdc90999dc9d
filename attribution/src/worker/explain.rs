//! Reads what an explanation tells: all that the decision was made from, and the touches around it
//! that one would ask about.

use std::collections::BTreeSet;

use super::Desk;
use super::desk::scan;
use super::touches::Case;
use crate::attribute::{self, Decision};
use crate::classify::{Class, Member, Walk};
use crate::event::{Family, Pid};
use crate::expiry;
use crate::explain::{self, CameIn, Explanation, consider};
use crate::ids::DeviceIds;
use crate::ledger::{Cause, Causes, FactKey, Facts, Home, Scan};
use crate::matching::{self, MARK_MS, MatchKey, PlacedClass, TouchClass};
use crate::policy::{DAY_MS, HOUR_MS, Policy};

/// Touches of one key and class that are looked at besides those of the decision.
const AROUND: usize = 8;
/// So many are read, and more only if the decision needs them, or whoever came second.
const READ_MAX: usize = 1_000;
/// For whoever came second, no more are read than these.
const SECOND_MAX: usize = 20_000;
/// Of one key and class, so many are counted.
const COUNTED_MAX: usize = 1_000;
/// How long after the activation a touch is still worth telling of.
const AFTER_MS: u64 = HOUR_MS;
/// How long before it.
const BEFORE_MS: u64 = 180 * DAY_MS;

/// Why an activation is credited as it is; `None` if there is none with this id.
pub fn explain<L: Facts>(
    facts: &mut L,
    policy: &Policy,
    pid: Pid,
    event_id: &str,
) -> Result<Option<Explanation>, L::Error> {
    let mut desk = Desk::new(facts, policy);
    let key = matching::fact_key(Family::Activation, pid, event_id);
    desk.load([key])?;
    let Some(Home::Activation(home)) = desk.home(&key).cloned() else { return Ok(None) };
    let (Some(decision), Some(app)) = (home.decision, policy.app(pid)) else { return Ok(None) };
    let class = Class { install_type: decision.install_type, original: decision.original.clone() };
    let changed_by = desk.came_in(&home.changed_by)?;
    let before = desk.walk_before(key)?;
    let is_class_repeatable = Walk::step(before.as_ref(), app, Member::of(&home.fact)).1 == class;
    let Some(case) = desk.case(key, class, false) else { return Ok(None) };
    let expired_before =
        expiry::expired_before(policy, app, home.fact.time, desk.ledger().consumed_until());
    let without_touches =
        desk.subject(&case).and_then(|subject| attribute::without_touches(&subject, &case.class));
    let mut cases = [case];
    desk.start_reading(&mut cases)?;
    // At least once: a click that the activation names needs no search.
    desk.read_touches(&mut cases)?;
    while cases.iter().any(|case| desk.is_to_read_on(case, &decision)) {
        desk.read_touches(&mut cases)?;
    }
    let [case] = &mut cases;
    let is_second_unread = !desk.has_second(case, &decision);
    let anew = desk.decision(case).filter(|anew| *anew != decision);
    let is_repeatable = anew.is_none();
    // Without all touches it would be another one anyway.
    let anew = anew.filter(|_| expired_before.is_none());
    let mut around = Around::default();
    if without_touches.is_some() {
        case.touches.clear();
    } else {
        around = desk.look_around(case, app.probabilistic)?;
    }
    let case = &*case;
    let evidence = desk.evidence(case);
    let Some(subject) = desk.subject(case) else { return Ok(None) };
    let mut considered = consider(&subject, &decision, &evidence);
    let uncounted = evidence.touches.len() - considered.len();
    let unlisted = around.others.len() + uncounted + explain::cut(&mut considered);
    Ok(Some(Explanation {
        activation: home.fact,
        decision,
        anew,
        is_repeatable,
        is_class_repeatable,
        previous: home.previous,
        changed_by,
        changed_by_more: home.changed_by.has_more,
        revision: home.present.map_or(0, |present| present.revision),
        before,
        considered,
        unlisted,
        has_more: around.has_more || !case.is_read(),
        is_second_unread,
        expired_before,
    }))
}

/// Touches with the activation's keys that are not looked at.
#[derive(Default)]
struct Around {
    others: BTreeSet<FactKey>,
    /// Whether some of them were not counted.
    has_more: bool,
}

impl<L: Facts> Desk<'_, L> {
    /// Further than the decision needs: who came second may be older than the contributors.
    fn is_to_read_on(&self, case: &Case, decision: &Decision) -> bool {
        let read = case.touches.len();
        let is_enough = || {
            read >= READ_MAX
                && self.decision(case).is_some()
                && (read >= SECOND_MAX || self.has_second(case, decision))
        };
        !case.is_read() && !is_enough()
    }

    /// Whether whoever came second is among those that were read.
    fn has_second(&self, case: &Case, decision: &Decision) -> bool {
        case.is_read()
            || self.subject(case).is_none_or(|subject| {
                explain::is_second_settled(&subject, decision, &self.evidence(case))
            })
    }

    /// What came in when the decision changed, with the names that it has now.
    fn came_in(&mut self, causes: &Causes) -> Result<Vec<CameIn>, L::Error> {
        self.load(causes.facts.iter().map(|cause| cause.fact))?;
        let came_in = |Cause { fact, time, again }: &Cause| {
            let home = self.home(fact);
            let kind = match home {
                Some(Home::Touch(touch)) if touch.time == *time => Some(touch.kind),
                _ => None,
            };
            let id = home.map(|home| home.id().into());
            CameIn { id, kind, family: fact.family, time: *time, again: *again }
        };
        Ok(causes.facts.iter().map(came_in).collect())
    }

    /// Adds touches that could be no candidates: too late, too old, of another device, or of user
    /// acquisition before a reinstall.
    fn look_around(&mut self, case: &mut Case, probabilistic: bool) -> Result<Around, L::Error> {
        let mut around = Around::default();
        let Some(activation) = self.activation(&case.key) else { return Ok(around) };
        let (pid, time) = (activation.pid, activation.time);
        // Apart, so that those after it do not hide those just before it.
        let times = [(time.minus(BEFORE_MS), time), (time.plus(1), time.plus(AFTER_MS))];
        let places: Vec<MatchKey> = if probabilistic {
            matching::probabilistic_keys(&activation.device).collect()
        } else {
            Vec::new()
        };
        let mut keys: Vec<MatchKey> = Vec::new();
        for class in TouchClass::all() {
            keys.extend(case.ids.iter().map(|id| matching::touch_by_id(class, id)));
        }
        let mark_times = (time.minus(7 * DAY_MS + MARK_MS), time.plus(AFTER_MS));
        let mut marks: Vec<(MatchKey, Scan)> = Vec::new();
        for place in places {
            for has_lookback in [false, true] {
                let key = matching::marks(place, has_lookback);
                marks.push((place, scan(pid, Family::Touch, key, mark_times)));
            }
        }
        let mark_scans: Vec<Scan> = marks.iter().map(|(_, scan)| *scan).collect();
        let mut marked: BTreeSet<(MatchKey, PlacedClass)> = BTreeSet::new();
        self.scan_all(&mark_scans, |number, entry| {
            let place = marks.get(number).map(|(place, _)| *place);
            marked.extend(place.map(|place| (place, PlacedClass::of_mark(&entry))));
        })?;
        keys.extend(marked.iter().map(|(place, class)| matching::touch_by_place(*class, *place)));
        let scans: Vec<Scan> = keys
            .into_iter()
            .flat_map(|key| times.map(|times| scan(pid, Family::Touch, key, times)))
            .map(|scan| Scan { limit: COUNTED_MAX, ..scan })
            .collect();
        let pages = self.ledger().scan(&scans)?;
        let near = || pages.iter().flat_map(|page| page.iter().take(AROUND));
        self.load(near().map(|entry| entry.fact))?;
        for entry in near() {
            if let Some(Home::Touch(touch)) = self.at(entry) {
                case.touches.entry(entry.fact).or_insert_with(|| DeviceIds::new(&touch.ids));
            }
        }
        around.has_more = pages.iter().any(|page| page.len() >= COUNTED_MAX);
        let others = pages.iter().flatten().map(|entry| entry.fact);
        around.others.extend(others.filter(|key| !case.touches.contains_key(key)));
        Ok(around)
    }
}
