//! The state as people read it in a terminal.
//!
//! Does no I/O. Text that an app may have had a hand in (a request, an error) is stripped of control characters,
//! so that it cannot play with the terminal.

use super::{Pool, Status, WorkerState};
use std::fmt::Write as _;

/// All pools, one line each, and what is wrong with them.
pub(crate) fn all(status: &Status, now: u64) -> String {
    let mut out = format!(
        "Hostler {}, process {}, up for {}\n\n",
        status.version,
        status.pid,
        span(now.saturating_sub(status.started))
    );
    let heads =
        ["POOL", "STATE", "GEN", "WORKERS", "BUSY", "WAITING", "REQUESTS", "ERRORS", "P50", "P99", "MEMORY"];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    rows.extend(status.pools.iter().map(|pool| {
        vec![
            pool.name.clone(),
            pool.state.to_string(),
            pool.generation.to_string(),
            format!("{}/{}", pool.workers.len(), pool.workers_max),
            pool.workers.iter().filter(|worker| worker.state == WorkerState::Busy).count().to_string(),
            pool.listeners.iter().filter_map(|listener| listener.queue).sum::<u32>().to_string(),
            grouped(pool.totals.requests),
            grouped(pool.totals.errors),
            micros(pool.latency_us.p50),
            micros(pool.latency_us.p99),
            bytes(pool.workers.iter().map(|worker| worker.memory_bytes).sum()),
        ]
    }));
    if status.pools.is_empty() {
        out.push_str("There is no pool.\n");
        return out;
    }
    out.push_str(&columns(&rows, 2));
    for pool in &status.pools {
        if let Some(error) = &pool.last_error {
            let _ = writeln!(out, "\n{}, last error: {}", pool.name, plain(error));
        }
    }
    out
}

/// One pool with its listeners and workers.
pub(crate) fn pool(pool: &Pool, now: u64) -> String {
    let mut out =
        format!("{}: {}, generation {}, {}\n", pool.name, pool.state, pool.generation, pool.runtime);
    if let Some(error) = &pool.last_error {
        let _ = writeln!(out, "last error: {}", plain(error));
    }
    out.push('\n');
    for listener in &pool.listeners {
        let protocol = match listener.protocol {
            hostler_worker::control::Protocol::Fastcgi => "FastCGI",
            hostler_worker::control::Protocol::Http => "HTTP",
        };
        let queue = listener.queue.map_or("?".to_owned(), |queue| queue.to_string());
        let _ = writeln!(out, "{} ({protocol}): {queue} of {} waiting", listener.address, listener.backlog);
    }
    let t = &pool.totals;
    let counts = [
        ("requests", t.requests),
        ("errors", t.errors),
        ("timeouts", t.timeouts),
        ("rejected", t.rejected),
        ("crashes", t.crashes),
        ("recycled for memory", t.recycled_memory),
        ("recycled after max_requests", t.recycled_requests),
        ("killed for memory", t.killed_memory),
        ("reloads", t.reloads),
        ("failed reloads", t.failed_reloads),
    ];
    let said = counts.iter().filter(|(name, n)| *n > 0 || *name == "requests");
    let said: Vec<String> = said.map(|(name, n)| format!("{name}: {}", grouped(*n))).collect();
    let _ = writeln!(out, "\n{}", said.join(", "));
    for (what, times) in [("time", pool.latency_us), ("wait", pool.queue_us)] {
        let [p50, p90, p99, p999] = [times.p50, times.p90, times.p99, times.p999].map(micros);
        let _ = writeln!(
            out,
            "{what}: half under {p50}, 90 % under {p90}, 99 % under {p99}, 99.9 % under {p999}"
        );
    }
    let heads = ["PID", "GEN", "STATE", "REQUESTS", "KEPT", "MEMORY", "AGE", "REQUEST"];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    rows.extend(pool.workers.iter().map(|worker| {
        let request = worker.request.as_ref();
        vec![
            worker.pid.to_string(),
            worker.generation.to_string(),
            worker.state.to_string(),
            grouped(worker.requests),
            worker.connections.to_string(),
            bytes(worker.memory_bytes),
            span(now.saturating_sub(worker.started)),
            request.map_or(String::new(), |r| format!("{} {}, {} ms", plain(&r.method), plain(&r.uri), r.ms)),
        ]
    }));
    out.push('\n');
    out.push_str(&columns(&rows, 3));
    out
}

/// Columns as wide as they need; the first `left` and the last of eight stand at the left, numbers at the right.
fn columns(rows: &[Vec<String>], left: usize) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |at: usize| rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..count).map(|at| width(at).unwrap_or(0)).collect();
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (at, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let text = at < left || (count == 8 && at == 7);
            let _ = if text { write!(line, "{cell:<width$}  ") } else { write!(line, "{cell:>width$}  ") };
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// Without control characters, and not longer than a line bears.
fn plain(text: &str) -> String {
    let mut all = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let start: String = all.by_ref().take(400).collect();
    if all.next().is_some() { format!("{start}…") } else { start }
}

/// `12,345`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `950 µs`, `1.2 ms`, `15 ms`, `3.4 s`; `-` for nothing.
fn micros(us: u64) -> String {
    match us {
        0 => "-".to_owned(),
        1..1000 => format!("{us} µs"),
        1000..10_000 => format!("{}.{} ms", us / 1000, us % 1000 / 100),
        10_000..1_000_000 => format!("{} ms", us / 1000),
        _ => format!("{}.{} s", us / 1_000_000, us % 1_000_000 / 100_000),
    }
}

/// `512 KiB`, `12.0 MiB`, `1.5 GiB`.
fn bytes(bytes: u64) -> String {
    let tenths = |unit: u64, name: &str| format!("{}.{} {name}", bytes / unit, bytes % unit * 10 / unit);
    match bytes {
        0 => "-".to_owned(),
        1..0x10_0000 => format!("{} KiB", bytes.div_ceil(1024)),
        0x10_0000..0x4000_0000 => tenths(1 << 20, "MiB"),
        _ => tenths(1 << 30, "GiB"),
    }
}

/// `42 s`, `5 min`, `3 h 12 min`, `12 d 4 h`.
fn span(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tests::sample, *};

    #[test]
    fn all_pools_are_a_table_with_aligned_columns() {
        let mut status = sample();
        let mut failed = status.pools[0].clone();
        failed.name = "a-longer-name".into();
        failed.last_error = Some("cannot boot:\x1b[2J exit 3".into());
        failed.workers.clear();
        status.pools.push(failed);
        assert_eq!(
            all(&status, 1_800_011_520),
            "Hostler 0.1.0, process 7, up for 3 h 12 min\n\n\
             POOL           STATE    GEN  WORKERS  BUSY  WAITING  REQUESTS  ERRORS     P50    P99    MEMORY\n\
             shop           running    3      1/8     1        0     5,000       0  900 µs  15 ms  12.0 MiB\n\
             a-longer-name  running    3      0/8     0        0     5,000       0  900 µs  15 ms         -\n\n\
             a-longer-name, last error: cannot boot: [2J exit 3\n"
        );
    }

    #[test]
    fn one_pool_shows_its_workers() {
        assert_eq!(
            pool(&sample().pools[0], 1_800_000_142),
            "shop: running, generation 3, cgi+files\n\n\
             unix:/run/shop (FastCGI): 0 of 4096 waiting\n\n\
             requests: 5,000, crashes: 1\n\
             time: half under 900 µs, 90 % under 2.0 ms, 99 % under 15 ms, 99.9 % under 1.2 s\n\
             wait: half under -, 90 % under -, 99 % under -, 99.9 % under -\n\n\
             PID  GEN  STATE  REQUESTS  KEPT    MEMORY   AGE  REQUEST\n\
             8    3    busy      1,234     5  12.0 MiB  42 s  GET /cart, 17 ms\n"
        );
    }

    #[test]
    fn no_pool_is_said() {
        let status = Status { pools: Vec::new(), ..sample() };
        assert!(all(&status, 0).ends_with("There is no pool.\n"));
    }

    #[test]
    fn numbers_are_short_and_have_units() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([0, 1, 1500, 10_000, 2_300_000].map(micros), ["-", "1 µs", "1.5 ms", "10 ms", "2.3 s"]);
        assert_eq!([0, 1, 1 << 20, 3 << 29].map(bytes), ["-", "1 KiB", "1.0 MiB", "1.5 GiB"]);
        assert_eq!([0, 119, 120, 7260, 200_000].map(span), ["0 s", "119 s", "2 min", "2 h 1 min", "2 d 7 h"]);
    }
}
