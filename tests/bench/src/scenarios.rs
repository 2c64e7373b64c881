//! The measurements besides `compare`: each starts what it needs, holds what it measures against the project's
//! own figure, and prints its numbers whether it passes or not.

pub(crate) mod beside;
pub(crate) mod drift;
pub(crate) mod fairness;
pub(crate) mod files;
pub(crate) mod idle;
pub(crate) mod mono;
pub(crate) mod pools;
pub(crate) mod programs;
pub(crate) mod reload;
pub(crate) mod slow;
pub(crate) mod stalled;
pub(crate) mod through;
pub(crate) mod trouble;

use crate::{
    report::{Report, Wanted},
    rounds::Series,
};
use hostler_bench::load::real;
use std::time::Duration;

/// In which the workers have seen that connections were closed, and what ends soon after a request has ended.
const SETTLED: Duration = Duration::from_secs(1);

/// No request may fail in any of them.
fn no_errors(report: &mut Report, series: &[Series]) {
    let errors = series.iter().map(Series::errors).sum();
    report.check("failed requests", real(errors), Wanted::AtMost(0.0));
    for (name, complaint) in series.iter().filter_map(|series| Some((&series.name, series.complaint()?))) {
        report.line(format!("- {name}: {complaint}"));
    }
}

/// A row of the columns in [`HEAD`].
fn row(series: &Series) -> Vec<String> {
    vec![
        series.name.clone(),
        format!("{:.0}", series.rate()),
        format!("{:.2}", series.cpu_us()),
        format!("{:.0}", series.percentile_us(0.5)),
        format!("{:.0}", series.percentile_us(0.99)),
        format!("{:.0}", series.percentile_us(0.999)),
        format!("{:.2}", series.memory() / 1_048_576.0),
    ]
}

const HEAD: [&str; 7] = ["load", "req/s", "CPU us", "p50 us", "p99", "p99.9", "memory MiB"];
