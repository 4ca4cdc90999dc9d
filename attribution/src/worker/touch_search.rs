//! Reads the touches that activations can be credited to: newest first, page by page, for many activations at once,
//! until each decision is final.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::BatchContext;
use super::batch_context::{PAGE, scan};
use crate::facts::device_ids::{self, DeviceIds};
use crate::facts::event::{Activation, EventTime, Family, Purpose, TouchKind};
use crate::facts::keys::{FactKey, MatchKey};
use crate::facts::match_keys::{self, BUCKET_MS, PlacedClass, TouchClass};
use crate::ledger::Facts;
use crate::ledger::index::{IndexEntry, Scan};
use crate::ledger::record::FactRecord;
use crate::rules::candidate::{CLICK_COUNT_MS, Subject, Tier, click_cap_horizon_ms, window_max_ms};
use crate::rules::classify::Class;
use crate::rules::row::InstallType;
use crate::rules::winner::{self, Decision, Evidence};

/// Factor by which pages grow, so that the touches read so far are evaluated again a few times, not once per page.
const PAGE_GROWTH: usize = 4;
/// Entries of the longest page; more would only need memory.
const PAGE_MAX: usize = 4_096;
/// `read_newest` reads one in this many open searches at a time: those that have reached least far back.
const OPEN_SEARCHES_PER_READ: usize = 8;
/// Maximum number of probabilistic searches of an activation that is read together with others.
const PROBABILISTIC_SEARCHES_MAX: usize = 32;
/// Size of the first pages of an activation's probabilistic searches together; each reads at least one entry.
const PROBABILISTIC_FIRST_READ: usize = 256;

/// An activation that is being decided.
pub struct PendingDecision {
    pub key: FactKey,
    pub class: Class,
    pub has_new_chains: bool,
    pub ids: DeviceIds,
    searches: Vec<Search>,
    /// The touches read so far, with their ids.
    pub touches: BTreeMap<FactKey, DeviceIds>,
}

impl PendingDecision {
    /// Returns the greatest possible time of an unread touch.
    pub fn newest_unread(&self) -> Option<EventTime> {
        self.searches.iter().filter_map(Search::unread).max()
    }

    /// If all searches are complete, extends them to older clicks that only count.
    fn extend_lookback(&mut self) {
        if self.searches.iter().all(|search| search.is_read) {
            self.searches.iter_mut().for_each(Search::extend_lookback);
        }
    }

    /// Checks whether nothing is left to read, not even clicks that only count.
    pub fn is_read(&self) -> bool {
        self.searches.iter().all(|search| search.is_read && search.extended_oldest.is_none())
    }
}

/// One scan of the index of touches, and its progress.
struct Search {
    scan: Scan,
    /// The tier in which its touches can win; `None` if they only count.
    tier: Option<Tier>,
    counts: bool,
    /// The extended start of the scan, for clicks that only count against a candidate with a long lookback.
    extended_oldest: Option<EventTime>,
    found: Vec<IndexEntry>,
    is_read: bool,
}

impl Search {
    /// Returns the greatest possible time of a touch that this search has not read.
    fn unread(&self) -> Option<EventTime> {
        if self.is_read {
            self.extended_oldest.map(|_| self.scan.oldest.minus(1))
        } else {
            self.after()
        }
    }

    fn after(&self) -> Option<EventTime> {
        self.scan.after.map(|last| last.time)
    }

    /// Returns the time down to which it has read.
    fn reached(&self) -> EventTime {
        self.after().unwrap_or(EventTime::MAX)
    }

    fn extend_lookback(&mut self) {
        if let Some(oldest) = self.extended_oldest.take() {
            self.scan.oldest = oldest;
            self.tier = None;
            self.is_read = false;
        }
    }
}

impl<L: Facts> BatchContext<'_, L> {
    pub fn pending_decision(
        &self,
        key: FactKey,
        class: Class,
        has_new_chains: bool,
    ) -> Option<PendingDecision> {
        let (activation, app) = (self.activation(&key)?, self.app(&key)?);
        let ids = DeviceIds::new(&activation.ids);
        let subject = Subject { policy: self.policy, app, activation, ids: &ids };
        let searches = match winner::without_touches(&subject, &class) {
            Some(_) => Vec::new(),
            None => id_searches(&subject, &class),
        };
        Some(PendingDecision {
            key,
            class,
            has_new_chains,
            ids,
            searches,
            touches: BTreeMap::new(),
        })
    }

    /// Prepares to read several decisions together. Returns those to read together, and those with so many
    /// probabilistic searches that each must be read alone.
    pub fn start_reading(
        &mut self,
        mut pending_decisions: Vec<PendingDecision>,
    ) -> Result<[Vec<PendingDecision>; 2], L::Error> {
        let crowded =
            self.add_probabilistic_searches(&mut pending_decisions, PROBABILISTIC_SEARCHES_MAX)?;
        let mut together = Vec::with_capacity(pending_decisions.len());
        let mut alone = Vec::with_capacity(crowded.len());
        for (index, pending) in pending_decisions.into_iter().enumerate() {
            if crowded.contains(&index) { &mut alone } else { &mut together }.push(pending);
        }
        let named: Vec<_> =
            together.iter().filter_map(|pending| self.named_click(pending)).collect();
        self.load(named)?;
        Ok([together, alone])
    }

    /// Prepares to read one decision alone.
    pub fn start_reading_alone(&mut self, pending: &mut PendingDecision) -> Result<(), L::Error> {
        self.add_probabilistic_searches(std::slice::from_mut(pending), usize::MAX)?;
        let named = self.named_click(pending);
        self.load(named)
    }

    /// Adds to each decision the probabilistic searches for touches that the markers list and that can match.
    /// Decisions with more than `searches_max` get none; their indexes are returned.
    fn add_probabilistic_searches(
        &mut self,
        pending_decisions: &mut [PendingDecision],
        searches_max: usize,
    ) -> Result<BTreeSet<usize>, L::Error> {
        let mut scans = Vec::new();
        let mut owners = Vec::new();
        for (index, pending) in pending_decisions.iter().enumerate() {
            let Some(subject) = self.subject(pending) else { continue };
            if winner::without_touches(&subject, &pending.class).is_some() {
                continue;
            }
            for (key, scan) in marker_scans(&subject) {
                scans.push(scan);
                owners.push((index, key, pending.ids.kinds()));
            }
        }
        let mut found: BTreeMap<usize, BTreeSet<(MatchKey, PlacedClass)>> = BTreeMap::new();
        let mut crowded = BTreeSet::new();
        self.scan_all(&scans, |scan, entry| {
            let Some((index, key, kinds)) = owners.get(scan) else { return };
            let marked = PlacedClass::of_marker(&entry);
            if marked.kinds.overlaps(*kinds) || crowded.contains(index) {
                return;
            }
            let classes = found.entry(*index).or_default();
            classes.insert((*key, marked));
            if classes.len() > searches_max {
                found.remove(index);
                crowded.insert(*index);
            }
        })?;
        for (index, classes) in found {
            let Some(pending) = pending_decisions.get(index) else { continue };
            let Some(subject) = self.subject(pending) else { continue };
            let mut searches: Vec<_> = classes
                .into_iter()
                .filter_map(|(key, marked)| {
                    probabilistic_search(&subject, &pending.class, key, marked)
                })
                .collect();
            let limit = PROBABILISTIC_FIRST_READ / searches.len().max(1);
            searches.iter_mut().for_each(|search| search.scan.limit = limit.clamp(1, PAGE));
            pending_decisions[index].searches.extend(searches);
        }
        Ok(crowded)
    }

    /// Reads the next page of every open search. If all searches of an undecided activation are complete, extends
    /// them.
    pub fn read_touches(
        &mut self,
        pending_decisions: &mut [PendingDecision],
    ) -> Result<(), L::Error> {
        pending_decisions.iter_mut().for_each(PendingDecision::extend_lookback);
        let searches = pending_decisions.iter_mut().flat_map(|pending| &mut pending.searches);
        self.read_pages(searches.filter(|search| !search.is_read).collect())?;
        pending_decisions.iter_mut().for_each(|pending| self.note_touches(pending));
        Ok(())
    }

    /// Reads the next page of the searches that have reached least far back. So the searches of one decision stay
    /// about equally far, however many touches each has per time, and clicks that count need not be kept until a slow
    /// search catches up.
    pub fn read_newest(&mut self, pending: &mut PendingDecision) -> Result<(), L::Error> {
        pending.extend_lookback();
        let mut open: Vec<_> =
            pending.searches.iter_mut().filter(|search| !search.is_read).collect();
        let mut reached: Vec<_> = open.iter().map(|search| Reverse(search.reached())).collect();
        if !reached.is_empty() {
            let last = reached.len().div_ceil(OPEN_SEARCHES_PER_READ) - 1;
            let (_, Reverse(threshold), _) = reached.select_nth_unstable(last);
            open.retain(|search| search.reached() >= *threshold);
        }
        self.read_pages(open)?;
        self.note_touches(pending);
        Ok(())
    }

    fn read_pages(&mut self, mut open: Vec<&mut Search>) -> Result<(), L::Error> {
        let scans: Vec<Scan> = open.iter().map(|search| search.scan).collect();
        let pages = self.ledger().scan(&scans)?;
        let mut facts = Vec::new();
        for (search, page) in open.iter_mut().zip(pages) {
            search.is_read = page.len() < search.scan.limit;
            search.scan.after = page.last().copied().or(search.scan.after);
            search.scan.limit = (search.scan.limit * PAGE_GROWTH).min(PAGE_MAX);
            facts.extend(page.iter().map(|entry| entry.fact));
            search.found = page;
        }
        self.load(facts)
    }

    /// Loads the touches again that were dropped since the decision was last evaluated.
    pub fn reload(&mut self, pending: &PendingDecision) -> Result<(), L::Error> {
        let named = self.named_click(pending);
        self.load(pending.touches.keys().copied().chain(named))
    }

    /// Adds the touches of the last pages to the decision.
    fn note_touches(&self, pending: &mut PendingDecision) {
        let found =
            pending.searches.iter_mut().flat_map(|search| std::mem::take(&mut search.found));
        let found: Vec<_> =
            found.filter(|entry| self.at(entry).is_some()).map(|entry| entry.fact).collect();
        for key in found.into_iter().chain(self.named_click(pending)) {
            self.note(pending, key);
        }
    }

    /// Adds a loaded touch to the decision.
    pub fn note(&self, pending: &mut PendingDecision, key: FactKey) {
        if let Some(FactRecord::Touch(touch)) = self.record(&key) {
            pending.touches.entry(key).or_insert_with(|| DeviceIds::new(&touch.ids));
        }
    }

    /// Returns the decision if no unread touch can change it.
    pub fn decision(&self, pending: &PendingDecision) -> Option<Decision> {
        let subject = self.subject(pending)?;
        winner::without_touches(&subject, &pending.class)
            .or_else(|| winner::attribute(&subject, &pending.class, &self.evidence(pending)))
    }

    pub fn evidence<'b>(&'b self, pending: &'b PendingDecision) -> Evidence<'b> {
        let mut evidence = Evidence::default();
        for (key, ids) in &pending.touches {
            if let Some(FactRecord::Touch(touch)) = self.record(key) {
                evidence.touches.push((touch, ids));
            }
        }
        for search in &pending.searches {
            if let (false, Some(tier), Some(last)) = (search.is_read, search.tier, search.after()) {
                evidence.unread.up_to(tier, last);
            }
            if search.counts {
                evidence.uncounted = evidence.uncounted.max(search.unread());
            }
        }
        evidence
    }

    pub fn subject<'b>(&'b self, pending: &'b PendingDecision) -> Option<Subject<'b>> {
        let (activation, app) = (self.activation(&pending.key)?, self.app(&pending.key)?);
        Some(Subject { policy: self.policy, app, activation, ids: &pending.ids })
    }

    /// Returns the key of the touch that the activation names by its click id.
    fn named_click(&self, pending: &PendingDecision) -> Option<FactKey> {
        let click_id = device_ids::click_id(&self.activation(&pending.key)?.click_id)?;
        Some(match_keys::fact_key(Family::Touch, pending.key.pid, click_id))
    }

    /// Returns a loaded activation.
    pub fn activation(&self, key: &FactKey) -> Option<&Activation> {
        match self.record(key)? {
            FactRecord::Activation(record) => Some(&record.fact),
            _ => None,
        }
    }
}

/// Returns the searches for touches with a device id of the activation.
fn id_searches(subject: &Subject<'_>, class: &Class) -> Vec<Search> {
    let mut searches = Vec::new();
    for touches in TouchClass::all() {
        let tier = Tier::of(touches.kind, false);
        let counts = touches.kind == TouchKind::Click && subject.counts_clicks();
        let tier = Some(tier).filter(|_| can_win(class, touches));
        if tier.is_none() && !counts {
            continue;
        }
        let mut window_ms = window_ms(subject, touches, false);
        if subject.app.probabilistic {
            // A touch that is too old for a match by id can still match by a probabilistic key.
            window_ms = window_ms.max(self::window_ms(subject, touches, true));
        }
        let mut extended_ms = None;
        if counts {
            window_ms += CLICK_COUNT_MS;
            // Clicks with their own lookback can be older candidates than these.
            extended_ms = Some(click_cap_horizon_ms(subject.policy, subject.app));
        }
        let keys = subject.ids.iter().map(|id| match_keys::touch_by_id(touches, id));
        searches.extend(keys.filter_map(|key| {
            let search = search(subject, key, window_ms, tier)?;
            let extended_oldest = extended_ms.map(|ms| subject.activation.time.minus(ms));
            let extended_oldest =
                extended_oldest.filter(|extended_oldest| *extended_oldest < search.scan.oldest);
            Some(Search { counts, extended_oldest, ..search })
        }));
    }
    searches
}

/// Returns the search for touches of a class under a probabilistic key. Touches with ids of the activation's kinds
/// are excluded: they are found by equal ids, or contradict it.
fn probabilistic_search(
    subject: &Subject<'_>,
    class: &Class,
    probabilistic_key: MatchKey,
    PlacedClass { class: touches, kinds }: PlacedClass,
) -> Option<Search> {
    if !can_win(class, touches) || kinds.overlaps(subject.ids.kinds()) {
        return None;
    }
    let key = match_keys::touch_by_probabilistic_key(
        PlacedClass { class: touches, kinds },
        probabilistic_key,
    );
    let tier = Tier::of(touches.kind, true);
    search(subject, key, window_ms(subject, touches, true), Some(tier))
}

fn search(
    subject: &Subject<'_>,
    key: MatchKey,
    window_ms: u64,
    tier: Option<Tier>,
) -> Option<Search> {
    let Activation { pid, time, .. } = *subject.activation;
    let scan = scan(pid, Family::Touch, key, (time.minus(window_ms), subject.newest()?));
    Some(Search {
        scan,
        tier,
        counts: false,
        extended_oldest: None,
        found: Vec::new(),
        is_read: false,
    })
}

fn can_win(class: &Class, touches: TouchClass) -> bool {
    class.install_type != InstallType::Reinstall || touches.purpose == Purpose::Retargeting
}

fn window_ms(subject: &Subject<'_>, touches: TouchClass, is_probabilistic: bool) -> u64 {
    let tier = Tier::of(touches.kind, is_probabilistic);
    window_max_ms(subject.policy, subject.app, tier, touches.has_lookback)
}

/// Returns the probabilistic keys of an activation, each with a scan of its markers.
fn marker_scans(subject: &Subject<'_>) -> Vec<(MatchKey, Scan)> {
    let Subject { activation, app, .. } = subject;
    if !app.probabilistic {
        return Vec::new();
    }
    let mut scans = Vec::new();
    for has_lookback in [false, true] {
        let touches = TouchClass::all().filter(|touches| touches.has_lookback == has_lookback);
        let window_ms = touches.map(|touches| window_ms(subject, touches, true)).max();
        let oldest = activation.time.minus(window_ms.unwrap_or(0) + BUCKET_MS);
        for probabilistic_key in match_keys::probabilistic_keys(&activation.device) {
            let key = match_keys::bucket_markers(probabilistic_key, has_lookback);
            let times = (oldest, activation.time);
            scans.push((probabilistic_key, scan(activation.pid, Family::Touch, key, times)));
        }
    }
    scans
}
