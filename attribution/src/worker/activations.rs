//! Decides activations: reads the touches of a whole batch of them page by page, and stops for
//! each as soon as its decision is settled.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use foldhash::fast::FixedState;

use super::Desk;
use super::classes::Classified;
use super::desk::scan;
use super::settled::Settled;
use crate::attribute::{self, Decision, Evidence};
use crate::candidate::{Subject, Tier, counted_max_ms, window_max_ms};
use crate::classify::Class;
use crate::event::{Activation, EventTime, Family, Purpose, TouchKind};
use crate::ids::{self, DeviceIds};
use crate::ledger::{FactKey, Home, IndexEntry, Ledger, Scan};
use crate::matching::{self, MARK_MS, MatchKey, PlacedClass, TouchClass};
use crate::row::InstallType;

/// Activations that are decided together: as many as one round of reading should serve, and as
/// the touches of which fit into memory.
const TOGETHER: usize = 512;

/// How much longer than the last page the next one is, so that the touches that were read are
/// looked at again a few times and not once a page.
const PAGE_GROWTH: usize = 4;

/// An activation that is being decided.
struct Case {
    key: FactKey,
    class: Class,
    has_new_walks: bool,
    ids: DeviceIds,
    searches: Vec<Search>,
    /// By id, each once.
    touches: BTreeMap<FactKey, DeviceIds>,
}

/// One scan of the index of touches, and how far it has come.
struct Search {
    scan: Scan,
    /// In which its touches can win; none if they only count.
    tier: Option<Tier>,
    counts: bool,
    found: Vec<IndexEntry>,
    is_read: bool,
}

impl<L: Ledger> Desk<'_, L> {
    /// Decides on the batch's activations, on those whose class is another now and on those that
    /// a touch can change. Returns those whose effects can change.
    pub fn decide_activations(
        &mut self,
        settled: &Settled,
        classified: &[Classified],
        touched: Vec<FactKey>,
    ) -> Result<HashSet<FactKey, FixedState>, L::Error> {
        let mut cases = self.cases(settled, classified, touched);
        let mut changed: HashSet<FactKey, FixedState> = HashSet::default();
        while !cases.is_empty() {
            let rest = cases.split_off(cases.len().min(TOGETHER));
            self.decide_together(std::mem::replace(&mut cases, rest), &mut changed)?;
            self.forget_touches();
        }
        // A replaced activation may show the same row and still be another fact to its effects.
        changed.extend(settled.outgoing_activations.iter().map(|(key, _)| *key));
        Ok(changed)
    }

    fn decide_together(
        &mut self,
        mut open: Vec<Case>,
        changed: &mut HashSet<FactKey, FixedState>,
    ) -> Result<(), L::Error> {
        self.add_place_searches(&mut open)?;
        let named: Vec<_> = open.iter().filter_map(|case| self.named_click(case)).collect();
        self.load(named)?;
        while !open.is_empty() {
            self.read_touches(&mut open)?;
            let mut rest = Vec::new();
            for mut case in open {
                self.note_touches(&mut case);
                let Some(decision) = self.decision(&case) else {
                    rest.push(case);
                    continue;
                };
                // Another worker may have written this very decision and not its effects yet.
                if self.decide_activation(case.key, decision, case.has_new_walks) || L::SHARED {
                    changed.insert(case.key);
                }
            }
            open = rest;
        }
        Ok(())
    }

    fn cases(
        &mut self,
        settled: &Settled,
        classified: &[Classified],
        touched: Vec<FactKey>,
    ) -> Vec<Case> {
        let arrived: HashSet<&FactKey, FixedState> = settled.activations.iter().collect();
        let touched: HashSet<FactKey, FixedState> = touched.into_iter().collect();
        let mut cases = Vec::with_capacity(classified.len() + touched.len());
        let mut walked: HashSet<FactKey, FixedState> = HashSet::default();
        for Classified { key, class, has_new_walks } in classified {
            walked.insert(*key);
            let is_open = arrived.contains(key)
                || touched.contains(key)
                || self.class(key).as_ref() != Some(class);
            if is_open {
                cases.extend(self.case(*key, class.clone(), *has_new_walks));
            } else if let (true, Some(decision)) = (*has_new_walks, self.decision_on(key)) {
                self.decide_activation(*key, decision.clone(), true);
            }
        }
        let unwalked = touched.into_iter().filter(|key| !walked.contains(key));
        cases.extend(unwalked.filter_map(|key| self.case(key, self.class(&key)?, false)));
        cases
    }

    fn decision_on(&self, key: &FactKey) -> Option<&Decision> {
        match self.home(key)? {
            Home::Activation(home) => home.decision.as_ref(),
            _ => None,
        }
    }

    /// As it was decided last.
    fn class(&self, key: &FactKey) -> Option<Class> {
        let Decision { install_type, original, .. } = self.decision_on(key)?;
        Some(Class { install_type: *install_type, original: original.clone() })
    }

    fn case(&self, key: FactKey, class: Class, has_new_walks: bool) -> Option<Case> {
        let (activation, app) = (self.activation(&key)?, self.app(&key)?);
        let ids = DeviceIds::new(&activation.ids);
        let subject = Subject { policy: self.policy, app, activation, ids: &ids };
        let searches = match attribute::without_touches(&subject, &class) {
            Some(_) => Vec::new(),
            None => id_searches(&subject, &class),
        };
        Some(Case { key, class, has_new_walks, ids, searches, touches: BTreeMap::new() })
    }

    /// Has each case search its places for the touches that are marked there and can match.
    fn add_place_searches(&mut self, cases: &mut [Case]) -> Result<(), L::Error> {
        let mut scans = Vec::new();
        let mut places = Vec::new();
        for (number, case) in cases.iter().enumerate() {
            let Some(subject) = self.subject(case) else { continue };
            if attribute::without_touches(&subject, &case.class).is_some() {
                continue;
            }
            for (place, scan) in mark_scans(&subject) {
                scans.push(scan);
                places.push((number, place));
            }
        }
        let mut found: BTreeSet<(usize, MatchKey, PlacedClass)> = BTreeSet::new();
        self.scan_all(&scans, |scan, entry| {
            let Some((number, place)) = places.get(scan) else { return };
            found.insert((*number, *place, PlacedClass::of_mark(&entry)));
        })?;
        for (number, place, marked) in found {
            let Some(case) = cases.get(number) else { continue };
            let Some(subject) = self.subject(case) else { continue };
            let search = place_search(&subject, &case.class, place, marked);
            cases[number].searches.extend(search);
        }
        Ok(())
    }

    /// Reads the next page of every search that is not at its end.
    fn read_touches(&mut self, cases: &mut [Case]) -> Result<(), L::Error> {
        let mut open: Vec<&mut Search> = cases
            .iter_mut()
            .flat_map(|case| &mut case.searches)
            .filter(|search| !search.is_read)
            .collect();
        let scans: Vec<Scan> = open.iter().map(|search| search.scan).collect();
        let pages = self.ledger().scan(&scans)?;
        let mut facts = Vec::new();
        for (search, page) in open.iter_mut().zip(pages) {
            search.is_read = page.len() < search.scan.limit;
            search.scan.after = page.last().copied().or(search.scan.after);
            search.scan.limit *= PAGE_GROWTH;
            facts.extend(page.iter().map(|entry| entry.fact));
            search.found = page;
        }
        self.load(facts)
    }

    fn note_touches(&self, case: &mut Case) {
        let found = case.searches.iter_mut().flat_map(|search| std::mem::take(&mut search.found));
        let found: Vec<_> =
            found.filter(|entry| self.at(entry).is_some()).map(|entry| entry.fact).collect();
        for key in found.into_iter().chain(self.named_click(case)) {
            if let Some(Home::Touch(touch)) = self.home(&key) {
                case.touches.entry(key).or_insert_with(|| DeviceIds::new(&touch.ids));
            }
        }
    }

    /// The decision, if no touch that was not read could change it.
    fn decision(&self, case: &Case) -> Option<Decision> {
        let subject = self.subject(case)?;
        attribute::without_touches(&subject, &case.class)
            .or_else(|| attribute::attribute(&subject, &case.class, &self.evidence(case)))
    }

    fn evidence<'b>(&'b self, case: &'b Case) -> Evidence<'b> {
        let mut evidence = Evidence::default();
        for (key, ids) in &case.touches {
            if let Some(Home::Touch(touch)) = self.home(key) {
                evidence.touches.push((touch, ids));
            }
        }
        for search in case.searches.iter().filter(|search| !search.is_read) {
            let Some(last) = search.scan.after else { continue };
            if let Some(tier) = search.tier {
                evidence.unread.up_to(tier, last.time);
            }
            if search.counts {
                evidence.uncounted = evidence.uncounted.max(Some(last.time));
            }
        }
        evidence
    }

    fn subject<'b>(&'b self, case: &'b Case) -> Option<Subject<'b>> {
        let (activation, app) = (self.activation(&case.key)?, self.app(&case.key)?);
        Some(Subject { policy: self.policy, app, activation, ids: &case.ids })
    }

    /// Where the touch lives that the activation names by its click id.
    fn named_click(&self, case: &Case) -> Option<FactKey> {
        let click_id = ids::click_id(&self.activation(&case.key)?.click_id)?;
        Some(matching::fact_key(Family::Touch, case.key.pid, click_id))
    }

    /// A loaded activation.
    pub fn activation(&self, key: &FactKey) -> Option<&Activation> {
        match self.home(key)? {
            Home::Activation(home) => Some(&home.fact),
            _ => None,
        }
    }
}

/// The searches for touches with a device id of the activation.
fn id_searches(subject: &Subject<'_>, class: &Class) -> Vec<Search> {
    let mut searches = Vec::new();
    for touches in TouchClass::all() {
        let tier = Tier::of(touches.kind, false);
        let counts = touches.kind == TouchKind::Click && subject.counts_clicks();
        let tier = Some(tier).filter(|_| can_win(class, touches));
        let mut window_ms = window_ms(subject, touches, false);
        if subject.app.probabilistic {
            // What is too old for a match by id can still match by its place.
            window_ms = window_ms.max(self::window_ms(subject, touches, true));
        }
        if counts {
            window_ms = counted_max_ms(subject.policy, subject.app);
        }
        if tier.is_some() || counts {
            let keys = subject.ids.iter().map(|id| matching::touch_by_id(touches, id));
            searches.extend(keys.filter_map(|key| search(subject, key, window_ms, tier, counts)));
        }
    }
    searches
}

/// The search for touches of a class that were seen at a place of the activation. Those with ids
/// of its kinds have equal ones and are found by them, or contradict it.
fn place_search(
    subject: &Subject<'_>,
    class: &Class,
    place: MatchKey,
    PlacedClass { class: touches, forms }: PlacedClass,
) -> Option<Search> {
    if !can_win(class, touches) || forms.meet(subject.ids.forms()) {
        return None;
    }
    let key = matching::touch_by_place(PlacedClass { class: touches, forms }, place);
    let tier = Tier::of(touches.kind, true);
    search(subject, key, window_ms(subject, touches, true), Some(tier), false)
}

fn search(
    subject: &Subject<'_>,
    key: MatchKey,
    window_ms: u64,
    tier: Option<Tier>,
    counts: bool,
) -> Option<Search> {
    let Activation { pid, time, .. } = *subject.activation;
    let newest = EventTime::from_millis(i64::try_from(time.millis()).ok()? - 1)?;
    let scan = scan(pid, Family::Touch, key, (time.minus(window_ms), newest));
    Some(Search { scan, tier, counts, found: Vec::new(), is_read: false })
}

fn can_win(class: &Class, touches: TouchClass) -> bool {
    class.install_type != InstallType::Reinstall || touches.purpose == Purpose::Retargeting
}

fn window_ms(subject: &Subject<'_>, touches: TouchClass, is_probabilistic: bool) -> u64 {
    let tier = Tier::of(touches.kind, is_probabilistic);
    window_max_ms(subject.policy, subject.app, tier, touches.has_lookback)
}

/// The places of an activation, each with a scan that tells what was seen there.
fn mark_scans(subject: &Subject<'_>) -> Vec<(MatchKey, Scan)> {
    let Subject { activation, app, .. } = subject;
    if !app.probabilistic {
        return Vec::new();
    }
    let mut scans = Vec::new();
    for has_lookback in [false, true] {
        let touches = TouchClass::all().filter(|touches| touches.has_lookback == has_lookback);
        let window_ms = touches.map(|touches| window_ms(subject, touches, true)).max();
        let oldest = activation.time.minus(window_ms.unwrap_or(0) + MARK_MS);
        for place in matching::probabilistic_keys(&activation.device) {
            let key = matching::marks(place, has_lookback);
            let times = (oldest, activation.time);
            scans.push((place, scan(activation.pid, Family::Touch, key, times)));
        }
    }
    scans
}
