//! Detects growth, as the median of all slopes between two samples in the second half of a run. The first half is the
//! warm-up.

/// Allowed growth within the second half: the larger of a fraction of the mean and an absolute value.
#[derive(Debug, Clone, Copy)]
pub struct Tolerance {
    pub fraction: f64,
    pub absolute: f64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trend {
    /// Mean of the second half.
    pub mean: f64,
    /// Maximum of the second half.
    pub max: f64,
    /// Growth within the second half.
    pub growth: f64,
}

impl Trend {
    /// Computes the trend of samples at equal intervals.
    pub fn of(samples: &[f64]) -> Self {
        let half = &samples[samples.len() / 2..];
        let last = half.len().saturating_sub(1) as f64;
        let mean = half.iter().sum::<f64>() / half.len() as f64;
        let max = half.iter().copied().fold(0.0, f64::max);
        Self { mean, max, growth: slope(half) * last }
    }

    pub fn is_flat(&self, tolerance: Tolerance) -> bool {
        self.growth <= (self.mean * tolerance.fraction).max(tolerance.absolute)
    }
}

/// Returns the median change from one sample to the next.
fn slope(samples: &[f64]) -> f64 {
    let mut slopes: Vec<f64> = Vec::new();
    for (at, earlier) in samples.iter().enumerate() {
        let rest = samples.iter().enumerate().skip(at + 1);
        slopes.extend(rest.map(|(then, later)| (later - earlier) / (then - at) as f64));
    }
    slopes.sort_unstable_by(f64::total_cmp);
    slopes.get(slopes.len() / 2).copied().unwrap_or(0.0)
}

mod tests {
    use super::*;

    const TENTH: Tolerance = Tolerance { fraction: 0.1, absolute: 0.0 };

    #[track_caller]
    fn check(sample: impl Fn(f64) -> f64, is_flat: bool) {
        let samples: Vec<f64> = (0..180_u8).map(|at| sample(f64::from(at))).collect();
        let trend = Trend::of(&samples);
        assert_eq!(trend.is_flat(TENTH), is_flat, "{trend:?}");
    }

    #[test]
    fn growth_is_distinguished_from_fluctuation() {
        check(|_| 100.0, true);
        check(|at| 100.0 + at, false);
        check(|at| 100.0 + at / 9.0, true);
        check(|at| 100.0 + at / 7.0, false);
        check(|at| 200.0 - at, true);
        // Warms up, then stays flat.
        check(|at| at.min(90.0), true);
        // Fluctuates, as by compactions.
        check(|at| 100.0 + 2.0 * (at % 20.0), true);
        check(|at| 100.0 + 2.0 * (at % 20.0) + at / 3.0, false);
        // A single outlier.
        check(|at| if at == 170.0 { 1000.0 } else { 100.0 }, true);
    }

    #[test]
    fn small_figures_may_grow_by_the_absolute_tolerance() {
        let trend = Trend { mean: 4.0, max: 6.0, growth: 2.0 };
        assert!(!trend.is_flat(TENTH) && trend.is_flat(Tolerance { absolute: 2.0, ..TENTH }));
    }
}
