//! `hostler check`: every fault of the config, and of what it names on this machine.
//!
//! Starts no app: whether one boots shows at `hostler reload`, which keeps the old workers where it does not.

use crate::{ask, config, print};
use std::{fmt::Write as _, path::Path, process::ExitCode};

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
    let serving = ask::is_serving(&loaded.supervisor.control) || is_before_start();
    let mut faults = loaded.faults;
    for (place, trial) in loaded.trials {
        if let Err(message) = trial.run(serving) {
            faults.push(config::Fault { place, message });
        }
    }
    let mut out = String::new();
    for fault in &faults {
        let _ = writeln!(out, "{fault}");
    }
    for warning in &loaded.warnings {
        let _ = writeln!(out, "{}: warning: {}", warning.place, warning.message);
    }
    print(&out);
    let pools = counted(loaded.pools.len() + loaded.broken.len(), "pool");
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
