//! Whether a figure stays where it is: by the middle one of all slopes between two samples of the second half
//! of a run. The first half is for warming up.

/// What a figure may grow by within the second half: this part of its mean there, or so much.
#[derive(Debug, Clone, Copy)]
pub struct Tolerance {
    pub part: f64,
    pub or: f64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trend {
    /// Of the second half.
    pub mean: f64,
    pub max: f64,
    /// Within the second half.
    pub growth: f64,
}

impl Trend {
    /// Of samples at equal distances.
    pub fn of(samples: &[f64]) -> Self {
        let half = &samples[samples.len() / 2..];
        let last = half.len().saturating_sub(1) as f64;
        let mean = half.iter().sum::<f64>() / half.len() as f64;
        let max = half.iter().copied().fold(0.0, f64::max);
        Self { mean, max, growth: slope(half) * last }
    }

    pub fn is_flat(&self, tolerance: Tolerance) -> bool {
        self.growth <= (self.mean * tolerance.part).max(tolerance.or)
    }
}

/// From one sample to the next.
fn slope(samples: &[f64]) -> f64 {
    let mut slopes: Vec<f64> = Vec::new();
    for (at, one) in samples.iter().enumerate() {
        let later = samples.iter().enumerate().skip(at + 1);
        slopes.extend(later.map(|(then, other)| (other - one) / (then - at) as f64));
    }
    slopes.sort_unstable_by(f64::total_cmp);
    slopes.get(slopes.len() / 2).copied().unwrap_or(0.0)
}

mod tests {
    use super::*;

    const TENTH: Tolerance = Tolerance { part: 0.1, or: 0.0 };

    #[track_caller]
    fn check(sample: impl Fn(f64) -> f64, is_flat: bool) {
        let samples: Vec<f64> = (0..180_u8).map(|at| sample(f64::from(at))).collect();
        let trend = Trend::of(&samples);
        assert_eq!(trend.is_flat(TENTH), is_flat, "{trend:?}");
    }

    #[test]
    fn what_grows_is_told_from_what_goes_up_and_down() {
        check(|_| 100.0, true);
        check(|at| 100.0 + at, false);
        check(|at| 100.0 + at / 9.0, true);
        check(|at| 100.0 + at / 7.0, false);
        check(|at| 200.0 - at, true);
        // Warms up, and is flat then.
        check(|at| at.min(90.0), true);
        // As compactions come and go.
        check(|at| 100.0 + 2.0 * (at % 20.0), true);
        check(|at| 100.0 + 2.0 * (at % 20.0) + at / 3.0, false);
        // Once, by others.
        check(|at| if at == 170.0 { 1000.0 } else { 100.0 }, true);
    }

    #[test]
    fn little_may_grow() {
        let trend = Trend { mean: 4.0, max: 6.0, growth: 2.0 };
        assert!(!trend.is_flat(TENTH) && trend.is_flat(Tolerance { or: 2.0, ..TENTH }));
    }
}
