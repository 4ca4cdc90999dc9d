//! Searches of the touch index for the touches that an activation can be credited to.

use super::fact_cache::{FactCache, PAGE, scan};
use crate::facts::event::{Activation, EventTime, Family, Purpose, TouchKind};
use crate::facts::keys::MatchKey;
use crate::facts::match_keys::{self, BUCKET_MS, ProbabilisticClass, TouchClass};
use crate::ledger::Facts;
use crate::ledger::index::{IndexEntry, Scan};
use crate::ledger::received_md5::ReceivedMd5;
use crate::rules::candidate::{CLICK_COUNT_MS, Subject, Tier, click_cap_horizon_ms, window_max_ms};
use crate::rules::classify::Class;
use crate::rules::row::InstallType;
use crate::rules::winner::Evidence;

/// Factor by which pages grow, so that the touches read so far are reevaluated only a few times, not for every small
/// page.
const PAGE_GROWTH: usize = 4;
/// Maximum number of entries of a page; more would only cost memory.
const PAGE_MAX: usize = 4_096;

/// One scan of the index of touches, and its progress.
pub struct TouchSearch {
    pub scan: Scan,
    /// The tier in which the touches can win; `None` if they only count as clicks.
    tier: Option<Tier>,
    counts: bool,
    /// The extended start of the scan, for clicks that only count against a candidate with a long lookback.
    extended_oldest: Option<EventTime>,
    /// The last page.
    pub found: Vec<IndexEntry>,
    pub is_read: bool,
}

impl TouchSearch {
    fn new(
        subject: &Subject<'_>,
        key: MatchKey,
        window_ms: u64,
        tier: Option<Tier>,
    ) -> Option<Self> {
        let Activation { pid, time, .. } = *subject.activation;
        let scan = scan(pid, Family::Touch, key, (time.minus(window_ms), subject.newest()?));
        Some(Self {
            scan,
            tier,
            counts: false,
            extended_oldest: None,
            found: Vec::new(),
            is_read: false,
        })
    }

    /// Adds the bounds of this search's unread touches to the evidence of a decision.
    pub fn add_unread(&self, evidence: &mut Evidence<'_>) {
        if let (false, Some(tier)) = (self.is_read, self.tier) {
            evidence.unread.extend_to(tier, self.newest_unread());
        }
        if self.counts {
            evidence.uncounted = evidence.uncounted.max(self.unread());
        }
    }

    /// Returns the latest possible time of a touch that this search has not read.
    pub fn unread(&self) -> Option<EventTime> {
        if self.is_read {
            self.extended_oldest.map(|_| self.scan.oldest.minus(1))
        } else {
            Some(self.newest_unread())
        }
    }

    /// Checks whether the search has read everything, including clicks that only count.
    pub fn is_complete(&self) -> bool {
        self.is_read && self.extended_oldest.is_none()
    }

    /// Returns the time back to which the search has read.
    pub fn reached(&self) -> EventTime {
        self.scan.after.map_or(EventTime::MAX, |last| last.time)
    }

    fn newest_unread(&self) -> EventTime {
        self.scan.after.map_or(self.scan.newest, |last| last.time)
    }

    /// Continues with older clicks that only count.
    pub fn extend_lookback(&mut self) {
        if let Some(oldest) = self.extended_oldest.take() {
            self.scan.oldest = oldest;
            self.tier = None;
            self.is_read = false;
        }
    }
}

/// Reads the next page of each search, and loads its touches. If they are larger than one read may load, pages end
/// earlier, some before their first entry.
pub fn read_pages<L: Facts>(
    facts: &mut FactCache<'_, L>,
    mut open: Vec<&mut TouchSearch>,
) -> Result<(), L::Error> {
    let limit = (facts.limits.entries / open.len().max(1)).max(1);
    let limited =
        |search: &&mut TouchSearch| Scan { limit: search.scan.limit.min(limit), ..search.scan };
    let scans: Vec<Scan> = open.iter().map(limited).collect();
    let mut pages = facts.ledger().scan(&scans)?;
    let is_full: Vec<bool> =
        pages.iter().zip(&scans).map(|(page, scan)| page.len() >= scan.limit).collect();
    let is_cut = facts.load_pages(&mut pages)?;
    let more = is_full.into_iter().zip(is_cut);
    for ((search, page), (is_full, is_cut)) in open.iter_mut().zip(pages).zip(more) {
        search.is_read = !is_full && !is_cut;
        search.scan.after = page.last().copied().or(search.scan.after);
        // The rest of a page that was cut is scanned again: the next page need not be larger.
        let next = if is_cut { page.len().max(PAGE) } else { search.scan.limit * PAGE_GROWTH };
        search.scan.limit = next.min(PAGE_MAX);
        search.found = page;
    }
    Ok(())
}

/// Returns the searches for touches with a device id of the activation.
pub fn id_searches(
    subject: &Subject<'_>,
    class: &Class,
    received_md5: &ReceivedMd5,
) -> Vec<TouchSearch> {
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
            // A touch that is too old for a match by id can still match probabilistically.
            window_ms = window_ms.max(self::window_ms(subject, touches, true));
        }
        let mut extended_ms = None;
        if counts {
            window_ms += CLICK_COUNT_MS;
            // Clicks also count against candidates with their own lookback, which can be older.
            extended_ms = Some(click_cap_horizon_ms(subject.policy, subject.app));
        }
        let ids = subject.ids.searched(received_md5.by_touches(touches));
        let keys = ids.map(|id| match_keys::touch_by_id(touches, id));
        searches.extend(keys.filter_map(|key| {
            let search = TouchSearch::new(subject, key, window_ms, tier)?;
            let extended_oldest = extended_ms.map(|ms| subject.activation.time.minus(ms));
            let extended_oldest =
                extended_oldest.filter(|extended_oldest| *extended_oldest < search.scan.oldest);
            Some(TouchSearch { counts, extended_oldest, ..search })
        }));
    }
    searches
}

/// Returns the search for touches of a class under a probabilistic key. Excludes touches with an id of a kind that the
/// activation has: they either have an equal id, by which they are found, or contradict the activation.
pub fn probabilistic_search(
    subject: &Subject<'_>,
    class: &Class,
    probabilistic_key: MatchKey,
    touches: ProbabilisticClass,
) -> Option<TouchSearch> {
    if !can_win(class, touches.class) || touches.kinds.overlaps(subject.ids.kinds()) {
        return None;
    }
    let key = match_keys::touch_by_probabilistic_key(touches, probabilistic_key);
    let tier = Tier::of(touches.class.kind, true);
    TouchSearch::new(subject, key, window_ms(subject, touches.class, true), Some(tier))
}

/// Returns the time range of the markers of touches that can match.
pub fn marker_times(subject: &Subject<'_>) -> (EventTime, EventTime) {
    let window_ms = TouchClass::all().map(|touches| window_ms(subject, touches, true)).max();
    let time = subject.activation.time;
    (time.minus(window_ms.unwrap_or(0) + BUCKET_MS), time)
}

/// Returns the probabilistic keys of an activation, each with a scan of its markers in a time range.
pub fn marker_scans(subject: &Subject<'_>, times: (EventTime, EventTime)) -> Vec<(MatchKey, Scan)> {
    let Subject { activation, app, .. } = subject;
    let keys =
        match_keys::probabilistic_keys(activation.device.borrowed()).filter(|_| app.probabilistic);
    keys.map(|key| {
        let markers = match_keys::bucket_markers(key);
        (key, scan(activation.pid, Family::Touch, markers, times))
    })
    .collect()
}

fn can_win(class: &Class, touches: TouchClass) -> bool {
    class.install_type != InstallType::Reinstall || touches.purpose == Purpose::Retargeting
}

fn window_ms(subject: &Subject<'_>, touches: TouchClass, is_probabilistic: bool) -> u64 {
    let tier = Tier::of(touches.kind, is_probabilistic);
    window_max_ms(subject.policy, subject.app, tier, touches.has_lookback)
}
