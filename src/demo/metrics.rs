//! Reads the pipeline's metrics, for the progress and the summary.

use std::collections::BTreeMap;

/// A scrape in the Prometheus text format.
pub struct Metrics(pub String);

impl Metrics {
    /// Returns the number of messages, of all topics, whose outcome is committed.
    pub fn processed(&self) -> u64 {
        let outcomes = [
            "adtrail_attribution_accepted_total",
            "adtrail_attribution_redelivered_total",
            "adtrail_ingest_dead_lettered_total",
            "adtrail_ingest_empty_total",
        ];
        outcomes.iter().flat_map(|name| self.samples(name)).map(|(_, value)| value).sum()
    }

    /// Returns the number of accepted facts of one topic.
    pub fn accepted(&self, topic: &str) -> u64 {
        let samples = self.samples("adtrail_attribution_accepted_total");
        samples.filter(|(labels, _)| label(labels, "topic") == topic).map(|(_, value)| value).sum()
    }

    /// Returns the number of redeliveries.
    pub fn redelivered(&self) -> u64 {
        self.samples("adtrail_attribution_redelivered_total").map(|(_, value)| value).sum()
    }

    /// Returns the number of dead letters by error code, without codes that have none.
    pub fn dead_lettered(&self) -> BTreeMap<&str, u64> {
        let mut codes = BTreeMap::new();
        for (labels, value) in self.samples("adtrail_ingest_dead_lettered_total") {
            *codes.entry(label(labels, "code")).or_default() += value;
        }
        codes.retain(|_, count| *count > 0);
        codes
    }

    /// Returns the labels and values of a metric.
    fn samples<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (&'a str, u64)> {
        self.0.lines().filter_map(move |line| {
            let (labels, value) = line.strip_prefix(name)?.strip_prefix('{')?.rsplit_once("} ")?;
            Some((labels, value.parse().ok()?))
        })
    }
}

/// Returns the value of a label. The labels read here never contain a quote or comma.
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
        let metrics = Metrics(SCRAPE.to_owned());
        assert_eq!(metrics.processed(), 5 + 7 + 2 + 3 + 1 + 1);
        assert_eq!((metrics.accepted("b"), metrics.accepted("c")), (7, 0));
        assert_eq!(metrics.redelivered(), 2);
        assert_eq!(metrics.dead_lettered(), BTreeMap::from([("not_json", 4)]));
        assert_eq!(Metrics(String::new()).processed(), 0);
    }
}
