//! Times of answers, counted in buckets: 64 to each power of two of nanoseconds, so within 1.6 %.
//!
//! Always holds: recording is an addition, with no allocation. Does no I/O and reads no clock.

use std::{fmt, time::Duration};

const STEPS: u32 = 6;

/// How often an answer took how long.
#[derive(Debug, Clone)]
pub struct Times {
    counts: Vec<u64>,
    total: u64,
}

impl Default for Times {
    fn default() -> Self {
        Self { counts: vec![0; 64 << STEPS], total: 0 }
    }
}

impl Times {
    /// Counts one answer.
    pub fn record(&mut self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        if let Some(count) = self.counts.get_mut(bucket(nanos)) {
            *count += 1;
            self.total += 1;
        }
    }

    /// The time in microseconds that `fraction` of all answers did not pass; 0 where there were none.
    #[must_use]
    pub fn percentile_us(&self, fraction: f64) -> f64 {
        let mut left = crate::load::real(self.total) * fraction;
        for (at, count) in self.counts.iter().enumerate() {
            left -= crate::load::real(*count);
            if *count > 0 && left <= 1e-6 {
                return crate::load::real(floor(at)) / 1000.0;
            }
        }
        0.0
    }
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [p50, p90, p99, p999, max] = [0.5, 0.9, 0.99, 0.999, 1.0].map(|q| self.percentile_us(q));
        write!(f, "p50 {p50:.0} us, p90 {p90:.0}, p99 {p99:.0}, p99.9 {p999:.0}, longest {max:.0}")
    }
}

/// Values below 64 have a bucket each; above, the leading bit and the six after it name one.
fn bucket(nanos: u64) -> usize {
    let shift = (u64::BITS - nanos.leading_zeros()).saturating_sub(STEPS + 1);
    let mantissa = usize::try_from(nanos >> shift).unwrap_or(0);
    ((shift as usize) << STEPS) + mantissa
}

/// The least value of a bucket.
fn floor(bucket: usize) -> u64 {
    let shift = (bucket >> STEPS).saturating_sub(1);
    u64::try_from(bucket - (shift << STEPS)).unwrap_or(0) << shift
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bucket_begins_where_the_one_before_ends() {
        let mut value = 1;
        while value < 1 << 40 {
            let at = bucket(value);
            assert!(floor(at) <= value && value < floor(at + 1), "{value}");
            assert_eq!(bucket(floor(at)), at);
            value += value / 97 + 1;
        }
    }

    #[test]
    fn percentiles_are_within_two_hundredths() {
        let mut times = Times::default();
        for us in 1..=1000 {
            times.record(Duration::from_micros(us));
        }
        for (fraction, us) in [(0.5, 500.0), (0.99, 990.0), (0.999, 999.0), (1.0, 1000.0)] {
            let measured = times.percentile_us(fraction);
            assert!((measured - us).abs() <= us * 0.02, "{fraction}: {measured}");
        }
        assert!(Times::default().percentile_us(0.5).abs() < 1e-9);
    }
}
