//! The plainest prefork manager: one listener, N copies of a program with it as descriptor 0.
//!
//! Always holds: the copies end with it (`setpriv --pdeathsig`, since only the child itself can ask for that).
//! It does not start a copy again that ends.

use hostler_bench::{address::Address, load::Error};
use std::{
    ffi::OsStr,
    fs, io,
    net::TcpListener,
    os::{fd::OwnedFd, unix::net::UnixListener},
    process::Command,
};

/// Serves `address` with so many copies of `program` until it is ended.
pub(crate) fn serve<S: AsRef<OsStr>>(
    address: &Address,
    processes: usize,
    program: &[S],
) -> Result<(), Error> {
    let error = |source| Error::system(format!("serving {address}"), source);
    let listener = listen(address).map_err(error)?;
    let mut children = Vec::new();
    for _ in 0..processes {
        let input = listener.try_clone().map_err(error)?;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "TERM", "--"]).args(program).stdin(input);
        children.push(
            command.spawn().map_err(|source| Error::system("starting setpriv (of util-linux)", source))?,
        );
    }
    drop(listener);
    for child in &mut children {
        child.wait().map_err(error)?;
    }
    Ok(())
}

fn listen(address: &Address) -> io::Result<OwnedFd> {
    match address {
        Address::Unix(path) => {
            let _ = fs::remove_file(path);
            UnixListener::bind(path).map(OwnedFd::from)
        }
        Address::Tcp(address) => TcpListener::bind(address).map(OwnedFd::from),
    }
}
