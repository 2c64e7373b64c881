//! Where a slow request hangs, for the log: what its worker waits for in the kernel, and what each process that the
//! worker started waits for.
//!
//! The kernel's stack of a process (`/proc/PID/stack`, proc(5)) is for root with CAP_SYS_ADMIN alone; elsewhere the
//! one function in which it sleeps is told (`wchan`).
//!
//! Always holds: reads a bounded number of small files, and only when a worker says that a request is slow; what is
//! not to be had is left out.

use hostler_worker::control::HEIR_NAME;
use std::fs;

/// Processes below a worker that are looked at.
const PROCESSES: usize = 8;
/// Functions of a stack that are told, the innermost first.
const FRAMES: usize = 10;

/// What a process does in the kernel: its stack as `innermost < next < …`, or the function that it sleeps in.
pub(crate) fn kernel(pid: i32) -> String {
    let stack = fs::read_to_string(format!("/proc/{pid}/stack")).unwrap_or_default();
    let stack = functions(&stack);
    if !stack.is_empty() {
        return stack;
    }
    let wchan = fs::read_to_string(format!("/proc/{pid}/wchan")).unwrap_or_default();
    match wchan.trim() {
        "" | "0" => "runs".to_owned(), // not in the kernel, or not waiting there
        function => function.to_owned(),
    }
}

/// The processes below a worker, each as `NAME PID: what it does`.
pub(crate) fn children(worker: i32) -> Vec<String> {
    let mut all = vec![worker];
    let mut at = 0;
    while let Some(pid) = all.get(at).copied().filter(|_| all.len() <= PROCESSES) {
        all.extend(children_of(pid));
        at += 1;
    }
    let below = all.into_iter().skip(1).take(PROCESSES).map(|pid| (name(pid), pid));
    // The heir is no program of the app's, and never what is waited for.
    let below = below.filter(|(name, _)| name.as_bytes() != HEIR_NAME.to_bytes());
    below.map(|(name, pid)| format!("{name} {pid}: {}", kernel(pid))).collect()
}

fn children_of(pid: i32) -> Vec<i32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let read = |task: fs::DirEntry| fs::read_to_string(task.path().join("children")).ok();
    let text: String = tasks.filter_map(read).collect();
    text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

fn name(pid: i32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned()
}

/// The names in lines such as `[<0>] do_select+0x1f/0x50`.
fn functions(stack: &str) -> String {
    let name = |line: &str| {
        let function = line.split_whitespace().nth(1)?;
        function.split('+').next().map(str::to_owned)
    };
    stack.lines().filter_map(name).take(FRAMES).collect::<Vec<_>>().join(" < ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        process::Command,
        time::{Duration, Instant},
    };

    #[test]
    fn a_stack_is_told_innermost_first() {
        let stack = "[<0>] hrtimer_nanosleep+0xb1/0x150\n[<0>] do_syscall_64+0x71/0x290\n";
        assert_eq!(functions(stack), "hrtimer_nanosleep < do_syscall_64");
        assert_eq!(functions(""), "");
        assert_eq!(functions("nonsense\n\n[<0>]\n"), "");
        assert_eq!(functions(&"[<0>] f+0x1/0x2\n".repeat(50)).matches('f').count(), FRAMES);
    }

    #[test]
    fn a_child_is_found_and_what_it_waits_for_is_told() {
        let mut sleeps = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = i32::try_from(sleeps.id()).unwrap();
        assert!(children_of(i32::try_from(std::process::id()).unwrap()).contains(&pid));
        let deadline = Instant::now() + Duration::from_secs(30);
        while !kernel(pid).contains("nanosleep") && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        let told = (name(pid), kernel(pid));
        sleeps.kill().unwrap();
        sleeps.wait().unwrap();
        assert!(told.0 == "sleep" && told.1.contains("nanosleep"), "{told:?}");
    }
}
