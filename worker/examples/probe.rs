//! The tests' app: does on request what apps do by accident.
//!
//! `/echo` sends the body back as it comes · `/back` sends it back when it is all there · `/sleep?ms=N` waits, or
//! `us=N` · `/leak?kib=N` keeps memory · `/crash?signal=N` · `/exit?code=N` · `/panic` · `/spin` ·
//! `/stream?bytes=N` (endless without N) · `/env` prints parameters · `/pid` · `/length` counts the body ·
//! `/gone?ms=N` waits until the client has left and says so on standard error · `/redirect` · `/log?bytes=N` writes
//! one long line to standard error · `/cut?bytes=N` fails after so many · `/nothing` returns without an answer ·
//! `/status?code=N` · `/scribble` writes nonsense over the page that it shares with the supervisor.

use hostler_worker::{Answer, App, Error, Request, run_app};
use http::StatusCode;
use std::{
    io::{BufRead, Read},
    process::ExitCode,
    time::{Duration, Instant},
};

const PLAIN: (&str, &[u8]) = ("Content-Type", b"text/plain");

#[derive(Default)]
struct Probe {
    kept: Vec<Vec<u8>>,
}

fn main() -> ExitCode {
    run_app(Probe::default())
}

impl App for Probe {
    fn serve(&mut self, request: &mut Request<'_>, answer: &mut Answer<'_>) -> Result<(), Error> {
        match request.path_info() {
            b"/echo" => echo(request, answer),
            b"/back" => {
                let mut body = Vec::new();
                request.body().read_to_end(&mut body)?;
                answer.head(StatusCode::OK, &[("Content-Type", b"application/octet-stream")])?;
                answer.write(&body)
            }
            b"/length" => {
                let n = std::io::copy(request.body(), &mut std::io::sink())?;
                say(answer, &format!("{n}\n"))
            }
            b"/sleep" => {
                let us = number(request, "us").unwrap_or(number(request, "ms").unwrap_or(100) * 1000);
                std::thread::sleep(Duration::from_micros(us));
                say(answer, "slept\n")
            }
            b"/leak" => {
                let kib = usize::try_from(number(request, "kib").unwrap_or(1)).unwrap_or(1);
                self.kept.push(vec![1; kib * 1024]);
                say(answer, &format!("{} kept\n", self.kept.len()))
            }
            b"/crash" => crash(i32::try_from(number(request, "signal").unwrap_or(11)).unwrap_or(11)),
            b"/exit" => std::process::exit(i32::try_from(number(request, "code").unwrap_or(1)).unwrap_or(1)),
            b"/panic" => panic_now(),
            b"/spin" => loop {
                std::hint::spin_loop();
            },
            b"/stream" => stream(request, answer),
            b"/env" => env(request, answer),
            b"/pid" => say(answer, &format!("{}\n", std::process::id())),
            b"/gone" => gone(request, answer),
            b"/redirect" => answer.head(StatusCode::FOUND, &[("Location", b"/pid")]),
            b"/log" => {
                let n = usize::try_from(number(request, "bytes").unwrap_or(5000)).unwrap_or(5000);
                eprintln!("{{\"line\":\"{}\"}}", "x".repeat(n));
                say(answer, "logged\n")
            }
            b"/cut" => {
                stream(request, answer)?;
                answer.flush()?;
                Err("asked to fail in the middle".into())
            }
            b"/nothing" => Ok(()),
            b"/scribble" => {
                scribble()?;
                say(answer, "scribbled\n")
            }
            b"/status" => {
                let code = u16::try_from(number(request, "code").unwrap_or(200)).unwrap_or(200);
                answer.head(StatusCode::from_u16(code).map_err(|e| e.to_string())?, &[PLAIN])?;
                answer.write(format!("{code}\n").as_bytes())
            }
            _ => say(answer, "probe\n"),
        }
    }
}

/// Through /proc/self/mem, as any program could.
fn scribble() -> Result<(), Error> {
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    let page = maps.lines().find(|line| line.contains("hostler-page")).ok_or("there is no page")?;
    let (from, to) =
        page.split_once([' ', '\t']).and_then(|(range, _)| range.split_once('-')).ok_or("no range")?;
    let address = |text| u64::from_str_radix(text, 16).map_err(|e| e.to_string());
    let (from, to) = (address(from)?, address(to)?);
    // The first word says that the page is set up; without it, it would not even be looked at.
    let nonsense = vec![0xff; usize::try_from(to - from - 8).unwrap_or(0)];
    let memory = std::fs::File::options().write(true).open("/proc/self/mem")?;
    std::os::unix::fs::FileExt::write_all_at(&memory, &nonsense, from + 8)?;
    Ok(())
}

fn say(answer: &mut Answer<'_>, text: &str) -> Result<(), Error> {
    answer.head(StatusCode::OK, &[PLAIN])?;
    answer.write(text.as_bytes())
}

fn number(request: &Request<'_>, name: &str) -> Option<u64> {
    let query = std::str::from_utf8(request.query()).ok()?;
    query.split('&').find_map(|pair| pair.split_once('=').filter(|(n, _)| *n == name)?.1.parse().ok())
}

fn echo(request: &mut Request<'_>, answer: &mut Answer<'_>) -> Result<(), Error> {
    answer.head(StatusCode::OK, &[("Content-Type", b"application/octet-stream")])?;
    loop {
        let piece = request.body().fill_buf()?;
        if piece.is_empty() {
            return Ok(());
        }
        answer.write(piece)?;
        let n = piece.len();
        request.body().consume(n);
    }
}

fn stream(request: &Request<'_>, answer: &mut Answer<'_>) -> Result<(), Error> {
    let mut left = number(request, "bytes").unwrap_or(u64::MAX);
    answer.head(StatusCode::OK, &[("Content-Type", b"application/octet-stream")])?;
    let piece = [b'x'; 64 * 1024];
    while left > 0 {
        let n = piece.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        answer.write(piece.get(..n).unwrap_or_default())?;
        left -= n as u64;
    }
    Ok(())
}

fn env(request: &Request<'_>, answer: &mut Answer<'_>) -> Result<(), Error> {
    answer.head(StatusCode::OK, &[PLAIN])?;
    for (name, value) in request.params() {
        for part in [name, b"=", value, b"\n"] {
            answer.write(part)?;
        }
    }
    for (name, value) in std::env::vars_os() {
        answer.write(format!("env {}={}\n", name.to_string_lossy(), value.to_string_lossy()).as_bytes())?;
    }
    Ok(())
}

fn gone(request: &Request<'_>, answer: &mut Answer<'_>) -> Result<(), Error> {
    let end = Instant::now() + Duration::from_millis(number(request, "ms").unwrap_or(5000));
    while Instant::now() < end {
        if request.client_gone() {
            eprintln!("the client is gone");
            return Err(Error::Gone);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    say(answer, "still there\n")
}

/// Dies by a signal, as far as safe code can: the signal is sent to the process itself.
fn crash(signal: i32) -> Result<(), Error> {
    if signal == 6 {
        std::process::abort();
    }
    let pid = std::process::id().to_string();
    let _ = std::process::Command::new("kill").args([&format!("-{signal}"), &pid]).status();
    std::thread::sleep(Duration::from_secs(5));
    Err("the signal did not end this process".into())
}

#[allow(clippy::panic)] // it is what is asked for
fn panic_now() -> ! {
    panic!("asked to")
}
