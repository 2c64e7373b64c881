//! Alternating rounds of loads, and the medians over them.
//!
//! Always holds: each round drives every entry once, every other round in the opposite order, so that what the
//! machine does meanwhile falls on all alike; nothing else than medians of rounds is reported.

use hostler_bench::{
    driver,
    load::{Error, Outcome, Plan, real},
};
use std::io::{IsTerminal, stderr};

/// How often and how long, for any measurement.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Extent {
    /// Alternating rounds, of which medians are taken
    #[arg(long, default_value_t = 5)]
    pub(crate) rounds: usize,
    /// Seconds of each load in each round
    #[arg(long, default_value_t = 3.0)]
    pub(crate) seconds: f64,
    /// Put the result into BENCHMARKS.md
    #[arg(long)]
    pub(crate) write: bool,
}

impl Extent {
    /// The command line that repeats it.
    pub(crate) fn command(&self, name: &str) -> String {
        format!(
            "cargo run --release -p hostler-bench -- {name} --rounds {} --seconds {} --write",
            self.rounds, self.seconds
        )
    }
}

/// One load on one server.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    /// Whose, for tables.
    pub(crate) name: String,
    /// What.
    pub(crate) plan: Plan,
}

impl Entry {
    pub(crate) fn new(name: impl Into<String>, plan: Plan) -> Self {
        Self { name: name.into(), plan }
    }
}

/// The outcomes of one entry, one a round.
#[derive(Debug, Clone)]
pub(crate) struct Series {
    /// Whose.
    pub(crate) name: String,
    outcomes: Vec<Outcome>,
}

/// Drives all entries in each round.
pub(crate) fn alternate(entries: &[Entry], rounds: usize) -> Result<Vec<Series>, Error> {
    let series = entries.iter().map(|entry| Series { name: entry.name.clone(), outcomes: Vec::new() });
    let mut series: Vec<Series> = series.collect();
    for round in 0..rounds {
        let mut pairs: Vec<_> = entries.iter().zip(&mut series).collect();
        if round % 2 == 1 {
            pairs.reverse();
        }
        for (entry, series) in pairs {
            progress(&format!("round {} of {rounds}: {}", round + 1, entry.name));
            series.outcomes.push(driver::run(&entry.plan)?);
        }
    }
    progress("");
    Ok(series)
}

/// Says on a terminal what goes on now, in place of what was said before.
pub(crate) fn progress(now: &str) {
    if stderr().is_terminal() {
        eprint!("\r{now:<60}\r");
    }
}

impl Series {
    /// A series of what was driven elsewhere.
    pub(crate) fn of(name: impl Into<String>, outcomes: Vec<Outcome>) -> Self {
        Self { name: name.into(), outcomes }
    }

    /// The median of something over the rounds.
    pub(crate) fn median(&self, of: impl Fn(&Outcome) -> f64) -> f64 {
        median(self.outcomes.iter().map(of).collect())
    }

    /// Least and most of something over the rounds.
    pub(crate) fn range(&self, of: impl Fn(&Outcome) -> f64) -> (f64, f64) {
        let values = self.outcomes.iter().map(of);
        values.fold((f64::MAX, 0.0), |(least, most), value| (value.min(least), value.max(most)))
    }

    /// Right answers a second.
    pub(crate) fn rate(&self) -> f64 {
        self.median(Outcome::rate)
    }

    /// Microseconds of CPU of the server a right answer.
    pub(crate) fn cpu_us(&self) -> f64 {
        self.median(|outcome| outcome.cpu_us().unwrap_or(0.0))
    }

    /// A percentile of all answers in microseconds.
    pub(crate) fn percentile_us(&self, fraction: f64) -> f64 {
        self.median(|outcome| outcome.all.percentile_us(fraction))
    }

    /// Private memory of the server in bytes.
    pub(crate) fn memory(&self) -> f64 {
        self.median(|outcome| real(outcome.memory.unwrap_or(0)))
    }

    /// Errors of all rounds.
    pub(crate) fn errors(&self) -> u64 {
        self.outcomes.iter().map(|outcome| outcome.errors).sum()
    }

    /// The first complaint of any round.
    pub(crate) fn complaint(&self) -> Option<&str> {
        self.outcomes.iter().find_map(|outcome| outcome.complaints.first()).map(String::as_str)
    }

    /// The outcomes themselves.
    pub(crate) fn outcomes(&self) -> &[Outcome] {
        &self.outcomes
    }
}

/// The middle value; the mean of the two middle ones of an even count; 0 of none.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = |index: usize| values.get(index).copied().unwrap_or(0.0);
    match values.len() {
        0 => 0.0,
        odd if odd % 2 == 1 => at(odd / 2),
        even => f64::midpoint(at(even / 2 - 1), at(even / 2)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_the_middle_whatever_the_order() {
        assert!((median(vec![9.0, 1.0, 5.0]) - 5.0).abs() < 1e-9);
        assert!((median(vec![9.0, 1.0, 5.0, 7.0]) - 6.0).abs() < 1e-9);
        assert!(median(Vec::new()).abs() < 1e-9);
    }
}
