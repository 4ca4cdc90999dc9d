//! The report of a verification.

use std::collections::BTreeMap;

attribution::named! {
    /// A kind of check, in the order of execution.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Check {
        Files = "files",
        Meta = "meta",
        Facts = "facts",
        Index = "index",
        Decisions = "decisions",
        Rows = "rows",
        Counts = "counts",
        Callbacks = "callbacks",
    }
}

attribution::named! {
    /// A kind of problem.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Problem {
        FileMissing = "file_missing",
        FileCut = "file_cut",
        FileDamaged = "file_damaged",
        LogDamaged = "log_damaged",
        AppUnreadable = "app_unreadable",
        AppAhead = "app_ahead",
        ConsumedUntilWrong = "consumed_until_wrong",
        PositionUnreadable = "position_unreadable",
        UnfinishedUnreadable = "unfinished_unreadable",
        FactUnreadable = "fact_unreadable",
        FactMisplaced = "fact_misplaced",
        FactAltered = "fact_altered",
        TouchMissing = "touch_missing",
        EntryUnreadable = "entry_unreadable",
        EntryToNowhere = "entry_to_nowhere",
        EntryOfAnother = "entry_of_another",
        EntryMissing = "entry_missing",
        MarkerMissing = "mark_missing",
        ReceivedMd5Wrong = "received_md5_wrong",
        TouchTableWrong = "touch_table_wrong",
        TouchNumberWrong = "touch_number_wrong",
        Undecided = "undecided",
        DecisionAltered = "decision_altered",
        DecisionDiffers = "decision_differs",
        DecisionLost = "decision_lost",
        RowMissing = "row_missing",
        RowDiffers = "row_differs",
        RowKeyUnreadable = "row_key_unreadable",
        RowUnreadable = "row_unreadable",
        RowMisplaced = "row_misplaced",
        RowWithoutFact = "row_without_fact",
        SecondRow = "second_row",
        CellUnreadable = "cell_unreadable",
        CellDiffers = "cell_differs",
        RegionsBroken = "regions_broken",
        RegionDiffers = "region_differs",
        TotalsDiffer = "totals_differ",
        CountUnreadable = "count_unreadable",
        CountDiffers = "count_differs",
        CampaignEntryUnreadable = "campaign_entry_unreadable",
        CampaignIndexDiffers = "campaign_index_differs",
        CallbackKeyUnreadable = "callback_key_unreadable",
        CallbackUnreadable = "callback_unreadable",
        CallbackDueWrong = "callback_due_wrong",
        CallbackCountDiffers = "callback_count_differs",
    }
}

/// The remedy for a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// The data can be derived from intact data.
    Repair,
    /// The data cannot be derived.
    Restore,
}

impl Problem {
    pub fn check(self) -> Check {
        self.properties().0
    }

    pub fn remedy(self) -> Remedy {
        self.properties().1
    }

    /// The description for users.
    pub fn text(self) -> &'static str {
        self.properties().2
    }

    #[rustfmt::skip]
    fn properties(self) -> (Check, Remedy, &'static str) {
        use Check::{Callbacks, Counts, Decisions, Facts, Files, Index, Meta, Rows};
        use Remedy::{Repair, Restore};
        match self {
            Self::FileMissing => (Files, Restore, "a file is missing"),
            Self::FileCut => (Files, Restore, "a file has the wrong length"),
            Self::FileDamaged => (Files, Restore, "a file is corrupt"),
            Self::LogDamaged => (Files, Repair, "the write-ahead log is corrupt"),
            Self::AppUnreadable => (Meta, Repair, "the record of an app is invalid or missing"),
            Self::AppAhead => (Meta, Repair, "an app has counted rows before its retention cutoff"),
            Self::ConsumedUntilWrong => (Meta, Repair, "the low watermark is invalid or in the future"),
            Self::PositionUnreadable => (Meta, Repair, "a Kafka position is unreadable"),
            Self::UnfinishedUnreadable => (Meta, Restore, "the list of events left to be decided is unreadable"),
            Self::FactUnreadable => (Facts, Restore, "a fact is unreadable"),
            Self::FactMisplaced => (Facts, Restore, "a fact is stored under the wrong key"),
            Self::FactAltered => (Facts, Restore, "a fact differs from the one that its row shows"),
            Self::TouchMissing => (Facts, Restore, "the credited touch of an activation is missing"),
            Self::EntryUnreadable => (Index, Repair, "an index entry is unreadable"),
            Self::EntryToNowhere => (Index, Repair, "an index entry leads to a missing fact"),
            Self::EntryOfAnother => (Index, Repair, "an index entry does not belong to the fact that it leads to"),
            Self::EntryMissing => (Index, Repair, "a fact lacks an index entry"),
            Self::MarkerMissing => (Index, Repair, "a fact lacks a bucket marker"),
            Self::ReceivedMd5Wrong => (Index, Repair, "an app lacks a kind of id that was received as MD5"),
            Self::TouchTableWrong => (Index, Repair, "the record of a table of touches does not cover its touches"),
            Self::TouchNumberWrong => (Index, Repair, "the number of the next touch is damaged or in use"),
            Self::Undecided => (Decisions, Repair, "an event has no decision"),
            Self::DecisionAltered => (Decisions, Repair, "a decision was altered"),
            Self::DecisionDiffers => (Decisions, Restore, "a decision differs from the recomputed one"),
            Self::DecisionLost => (Decisions, Repair, "a decision differs from the recomputed one, and its row is lost"),
            Self::RowMissing => (Rows, Repair, "the row of an event is missing"),
            Self::RowDiffers => (Rows, Repair, "a row differs from its decision"),
            Self::RowKeyUnreadable => (Rows, Repair, "the key of a row is unreadable"),
            Self::RowUnreadable => (Rows, Repair, "a row is unreadable"),
            Self::RowMisplaced => (Rows, Repair, "a row is in a partition that its app does not use"),
            Self::RowWithoutFact => (Rows, Restore, "the fact of a row is missing"),
            Self::SecondRow => (Rows, Repair, "an event has a second row"),
            Self::CellUnreadable => (Counts, Repair, "an hourly count is unreadable"),
            Self::CellDiffers => (Counts, Repair, "an hourly count differs from the rows"),
            Self::RegionsBroken => (Counts, Repair, "the regions are unreadable or do not cover all keys"),
            Self::RegionDiffers => (Counts, Repair, "the statistics of a region differ from the rows"),
            Self::TotalsDiffer => (Counts, Repair, "the totals differ from the rows"),
            Self::CountUnreadable => (Counts, Repair, "a summary count is unreadable"),
            Self::CountDiffers => (Counts, Repair, "the summary counts of an app differ from its rows"),
            Self::CampaignEntryUnreadable => (Counts, Repair, "an entry of the campaign index is unreadable"),
            Self::CampaignIndexDiffers => (Counts, Repair, "the campaign index of an app differs from its rows"),
            Self::CallbackKeyUnreadable => (Callbacks, Repair, "the key of an entry of the outbox is unreadable"),
            Self::CallbackUnreadable => (Callbacks, Restore, "the callbacks of an event are unreadable"),
            Self::CallbackDueWrong => (Callbacks, Repair, "a callback is not due at the time that the outbox notes"),
            Self::CallbackCountDiffers => (Callbacks, Repair, "the counts of an endpoint differ from its callbacks"),
        }
    }
}

/// One occurrence of a problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub problem: Problem,
    /// The affected file, table and key in hexadecimal, or event of an app. Never a device id.
    pub at: String,
    /// True if it was repaired.
    pub is_repaired: bool,
}

/// How often a problem was found and repaired.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Times {
    pub found: u64,
    pub repaired: u64,
}

/// The result of a verification.
#[derive(Debug, Clone, Default)]
pub struct Report {
    checked: BTreeMap<Check, u64>,
    pub found: BTreeMap<Problem, Times>,
    /// The first occurrences of each problem, up to the limit.
    pub examples: Vec<Finding>,
    /// Limit for the examples of each problem.
    examples_max: usize,
    /// Index entries of replaced facts, which are ignored and are not damage.
    pub stale: u64,
    /// Facts without probabilistic index entries, of apps with probabilistic matching. Either they were recorded while
    /// it was off, or the entries are lost; the two cannot be distinguished.
    pub without_probabilistic: u64,
    /// Final decisions, which were compared with their rows only, because their facts may have expired.
    pub final_decisions: u64,
    /// Events that an interrupted batch has left to be decided, which were compared with their rows only.
    pub unfinished_effects: u64,
    /// Events whose recomputed decision differs, if settings have changed.
    pub differing: u64,
    /// Items that could not be checked because of other damage.
    pub unchecked: u64,
}

impl Report {
    /// An empty report with at most `examples_max` examples of each problem.
    pub fn new(examples_max: usize) -> Self {
        Self { examples_max, ..Self::default() }
    }

    pub fn add_checked(&mut self, check: Check, count: usize) {
        *self.checked.entry(check).or_default() += count as u64;
    }

    pub fn checked(&self, check: Check) -> u64 {
        self.checked.get(&check).copied().unwrap_or(0)
    }

    pub fn add(&mut self, problem: Problem, is_repaired: bool, at: impl FnOnce() -> String) {
        let times = self.found.entry(problem).or_default();
        times.found += 1;
        times.repaired += u64::from(is_repaired);
        if times.found <= self.examples_max as u64 {
            self.examples.push(Finding { problem, at: at(), is_repaired });
        }
    }

    /// Marks damage of the log as repaired. Opening the store for writing truncates the log at the damage; the rest is
    /// re-read from Kafka.
    pub fn mark_log_repaired(&mut self) {
        if let Some(times) = self.found.get_mut(&Problem::LogDamaged) {
            times.repaired = times.found;
        }
        for finding in &mut self.examples {
            finding.is_repaired |= finding.problem == Problem::LogDamaged;
        }
    }

    pub fn wrong(&self, check: Check) -> u64 {
        self.of(check).map(|times| times.found).sum()
    }

    pub fn repaired(&self, check: Check) -> u64 {
        self.of(check).map(|times| times.repaired).sum()
    }

    fn of(&self, check: Check) -> impl Iterator<Item = &Times> {
        self.found.iter().filter(move |(problem, _)| problem.check() == check).map(|(_, t)| t)
    }

    /// True if a file is damaged. A repair then writes nothing.
    pub fn is_file_damaged(&self) -> bool {
        let problems = [Problem::FileMissing, Problem::FileCut, Problem::FileDamaged];
        problems.iter().any(|problem| self.found.contains_key(problem))
    }

    pub fn is_whole(&self) -> bool {
        self.found.is_empty() && self.unchecked == 0
    }

    /// True if all problems were repaired.
    pub fn is_repaired(&self) -> bool {
        self.unchecked == 0 && self.found.values().all(|times| times.found == times.repaired)
    }
}

/// Names an entry in a finding: by its table and its key in hexadecimal.
pub fn at(table: &str, key: &[u8]) -> String {
    format!("{table} {}", attribution::facts::device_ids::hex(key))
}
