//! What the pipeline's own metrics say, for the progress and the summary.

use std::collections::BTreeMap;

/// A scrape in Prometheus' text format.
pub struct Figures(pub String);

impl Figures {
    /// Messages whose outcome is committed, of all topics.
    pub fn settled(&self) -> u64 {
        let outcomes = [
            "adtrail_attribution_accepted_total",
            "adtrail_attribution_redelivered_total",
            "adtrail_ingest_dead_lettered_total",
            "adtrail_ingest_empty_total",
        ];
        outcomes.iter().flat_map(|name| self.samples(name)).map(|(_, value)| value).sum()
    }

    /// Facts that were new, of one topic.
    pub fn accepted(&self, topic: &str) -> u64 {
        let samples = self.samples("adtrail_attribution_accepted_total");
        samples.filter(|(labels, _)| label(labels, "topic") == topic).map(|(_, value)| value).sum()
    }

    /// Messages that repeated one.
    pub fn redelivered(&self) -> u64 {
        self.samples("adtrail_attribution_redelivered_total").map(|(_, value)| value).sum()
    }

    /// Messages that were no events, by reason.
    pub fn dead_lettered(&self) -> BTreeMap<&str, u64> {
        let mut reasons = BTreeMap::new();
        for (labels, value) in self.samples("adtrail_ingest_dead_lettered_total") {
            *reasons.entry(label(labels, "code")).or_default() += value;
        }
        reasons.retain(|_, count| *count > 0);
        reasons
    }

    /// Labels and values of a metric.
    fn samples<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (&'a str, u64)> {
        self.0.lines().filter_map(move |line| {
            let (labels, value) = line.strip_prefix(name)?.strip_prefix('{')?.rsplit_once("} ")?;
            Some((labels, value.parse().ok()?))
        })
    }
}

/// The value of a label; none of these holds a quote.
fn label<'a>(labels: &'a str, name: &str) -> &'a str {
    let found = labels.split(',').find_map(|pair| pair.strip_prefix(name)?.strip_prefix("=\""));
    found.and_then(|value| value.strip_suffix('"')).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRAPE: &str = r#"
# HELP adtrail_attribution_accepted_total Facts.
adtrail_attribution_accepted_total{topic="a"} 5
adtrail_attribution_accepted_total{topic="b"} 7
adtrail_attribution_accepted_total_other{topic="a"} 1000
adtrail_attribution_redelivered_total{topic="a"} 2
adtrail_ingest_dead_lettered_total{topic="a",code="not_json"} 3
adtrail_ingest_dead_lettered_total{topic="a",code="too_late"} 0
adtrail_ingest_dead_lettered_total{topic="b",code="not_json"} 1
adtrail_ingest_empty_total{topic="b"} 1
"#;

    #[test]
    fn a_scrape_is_summed() {
        let figures = Figures(SCRAPE.to_owned());
        assert_eq!(figures.settled(), 5 + 7 + 2 + 3 + 1 + 1);
        assert_eq!((figures.accepted("b"), figures.accepted("c")), (7, 0));
        assert_eq!(figures.redelivered(), 2);
        assert_eq!(figures.dead_lettered(), BTreeMap::from([("not_json", 4)]));
        assert_eq!(Figures(String::new()).settled(), 0);
    }
}
