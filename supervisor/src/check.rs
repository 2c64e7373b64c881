//! `hostler check`: every fault of the config, of what it names on this machine, and of the apps' own boot.
//!
//! A pool in which nothing else is at fault has one worker booted, which serves nobody and is ended again. Not so where
//! systemd runs the check right before it starts the supervisor: that boots them all, and says what it finds.

use crate::{ask, config, print, run};
use std::{collections::BTreeSet, fmt::Write as _, path::Path, process::ExitCode};

/// EX_CONFIG: bad config.
pub(crate) const BAD_CONFIG: u8 = 78;

/// Prints what is wrong as `FILE:LINE:COLUMN: message`, then one line that says how it stands.
pub(crate) fn check(file: &Path) -> ExitCode {
    let loaded = match config::load(file) {
        Ok(loaded) => loaded,
        Err(faults) => {
            let lines: String = faults.iter().map(|fault| format!("{fault}\n")).collect();
            print(&lines);
            eprintln!("hostler: {}: nothing can be served with this config", counted(faults.len(), "fault"));
            return ExitCode::from(BAD_CONFIG);
        }
    };
    let starts = is_before_start();
    let serving = ask::is_serving(&loaded.supervisor.control) || starts;
    let mut faults = loaded.faults;
    let mut lame = BTreeSet::new();
    for (pool, place, trial) in loaded.trials {
        if let Err(message) = trial.run(serving) {
            faults.push(config::Fault { place, message });
            lame.insert(pool);
        }
    }
    let pools = counted(loaded.pools.len() + loaded.broken.len(), "pool");
    let sound = loaded.pools.into_iter().filter(|pool| !starts && !lame.contains(&pool.name)).collect();
    for (pool, why) in run::boot(sound) {
        let place = loaded.places.get(&pool).cloned().unwrap_or_default();
        faults.push(config::Fault { place, message: format!("[pool.{pool}] does not boot: {why}") });
    }
    let mut out = String::new();
    for fault in &faults {
        let _ = writeln!(out, "{fault}");
    }
    for warning in &loaded.warnings {
        let _ = writeln!(out, "{}: warning: {}", warning.place, warning.message);
    }
    print(&out);
    if faults.is_empty() {
        eprintln!("hostler: no fault in {} with {pools}", file.display());
        return ExitCode::SUCCESS;
    }
    eprintln!("hostler: {} in {} with {pools}", counted(faults.len(), "fault"), file.display());
    ExitCode::from(BAD_CONFIG)
}

/// Whether systemd runs this check before it starts the supervisor (systemd.exec(5), `SYSTEMD_EXEC_PID`): it may keep
/// the listeners of the former one then, and they answer as if somebody listened.
fn is_before_start() -> bool {
    std::env::var("SYSTEMD_EXEC_PID").is_ok_and(|pid| pid.parse() == Ok(std::process::id()))
}

/// `1 fault`, `2 faults`.
fn counted(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}
