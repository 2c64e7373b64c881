//! A FastCGI program as one process on a listener as descriptor 0, served one request after another under a tool
//! that counts: valgrind's callgrind, or strace.
//!
//! Always holds: every request takes the same path: on a kept connection each is sent only when the process sleeps
//! in its epoll; fresh connections wait with their requests before the program starts. The program is ended by
//! TERM and waited for.

use crate::ground::Ground;
use hostler_bench::{
    address::Address,
    answer::{Answer, Progress},
    load::Error,
    request::Request,
};
use nix::{
    sys::{
        signal::{Signal, kill},
        socket::{MsgFlags, recv, send, setsockopt, sockopt::ReceiveTimeout},
        time::{TimeVal, TimeValLike},
    },
    unistd::Pid,
};
use std::{
    fs::{self, File},
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::net::UnixListener,
    },
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// How long anything here may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Serves so many requests with `command`, which becomes or is the process that serves.
pub(crate) fn serve(
    ground: &Ground,
    mut command: Command,
    request: &Request,
    requests: usize,
) -> Result<(), Error> {
    let socket = ground.path("lockstep.sock");
    let _ = fs::remove_file(&socket);
    let error = |source| Error::system("listening for the program to count", source);
    let listener: OwnedFd = UnixListener::bind(&socket).map_err(error)?.into();
    let log = File::create(ground.path("lockstep.log")).map_err(error)?;
    command.stdin(Stdio::from(listener)).stdout(Stdio::null()).stderr(log);
    let address = Address::Unix(socket);
    let fresh = if request.keep { 0 } else { requests };
    let waiting = (0..fresh).map(|_| asked(&address, request)).collect::<Result<Vec<_>, _>>()?;
    let mut child =
        command.spawn().map_err(|source| Error::system("starting the program to count", source))?;
    drop(command); // and with it the listener: it is the program's alone
    let served = match request.keep {
        true => exchange(&address, request, requests, child.id()),
        false => {
            waiting.iter().try_for_each(|socket| whole(socket, request)).and_then(|()| sleeps(child.id()))
        }
    };
    let ended = end(&mut child);
    let log = || fs::read_to_string(ground.path("lockstep.log")).unwrap_or_default();
    served.and(ended).map_err(|error| Error::new(format!("{error}; {}", log())))
}

/// One request after another on a kept connection, each sent when the process sleeps in its epoll.
fn exchange(address: &Address, request: &Request, requests: usize, pid: u32) -> Result<(), Error> {
    sleeps(pid)?;
    let socket = asked(address, request)?;
    whole(&socket, request)?;
    let bytes = request.to_bytes();
    for _ in 1..requests {
        sleeps(pid)?;
        ask(&socket, &bytes)?;
        whole(&socket, request)?;
    }
    sleeps(pid)
}

/// A connection on which the request has been sent.
fn asked(address: &Address, request: &Request) -> Result<OwnedFd, Error> {
    let socket =
        address.connect().map_err(|source| Error::system("connecting to the counted program", source))?;
    setsockopt(&socket, ReceiveTimeout, &TimeVal::seconds(60))
        .map_err(|errno| Error::system("a timeout for the counted program", errno))?;
    ask(&socket, &request.to_bytes())?;
    Ok(socket)
}

fn ask(socket: &OwnedFd, bytes: &[u8]) -> Result<(), Error> {
    let sent = send(socket.as_raw_fd(), bytes, MsgFlags::MSG_NOSIGNAL);
    sent.map(|_| ()).map_err(|errno| Error::system("a request to the counted program", errno))
}

fn whole(socket: &OwnedFd, request: &Request) -> Result<(), Error> {
    let mut answer = Answer::new(request.protocol);
    let mut buffer = [0; 4096];
    loop {
        let count = recv(socket.as_raw_fd(), &mut buffer, MsgFlags::empty())
            .map_err(|errno| Error::system("reading the counted program's answer", errno))?;
        let bytes = buffer.get(..count).unwrap_or_default();
        match if count == 0 { answer.end() } else { answer.feed(bytes) } {
            Progress::Partial => {}
            Progress::Whole => return Ok(()),
            Progress::Wrong(why) => return Err(Error::new(format!("the counted program: {why}"))),
        }
    }
}

/// Waits until the main thread of `pid` sleeps in an epoll.
fn sleeps(pid: u32) -> Result<(), Error> {
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        let place = fs::read_to_string(format!("/proc/{pid}/wchan")).unwrap_or_default();
        if place.contains("ep_poll") || place.contains("epoll") {
            return Ok(());
        }
        thread::yield_now();
    }
    Err(Error::new(format!("process {pid} does not come to rest in an epoll")))
}

fn end(child: &mut Child) -> Result<(), Error> {
    let _ = kill(Pid::from_raw(i32::try_from(child.id()).unwrap_or(i32::MAX)), Signal::SIGTERM);
    let began = Instant::now();
    while matches!(child.try_wait(), Ok(None)) {
        if began.elapsed() > PATIENCE {
            let _ = child.kill();
            let _ = child.wait();
            return Err(Error::new("the counted program did not end on TERM"));
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}
