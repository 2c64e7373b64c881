//! Hostler itself: built if need be, and started with a config of our own in the measurement's directory.

use crate::ground::Ground;
use hostler_bench::{load::Error, server::Server};
use std::{
    env, io,
    path::PathBuf,
    process::{Command, Stdio},
};

/// A native pool: workers that run the worker's example `hello`, FastCGI on `hostler.sock`.
pub(crate) fn native(ground: &Ground) -> Result<Server, Error> {
    build()?;
    let address = ground.socket("hostler");
    let mut command = Command::new(env::current_exe().map_err(found)?);
    command.arg("prefork").arg(address.to_string()).args([
        "--processes",
        &ground.processes.to_string(),
        "--",
    ]);
    command.arg(program("examples/hello")?);
    Server::start(&mut command, address, &ground.path("hostler.log"))
}

/// Builds `hostler`, `hostler-worker` and the example beside this program.
fn build() -> Result<(), Error> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "-p", "hostler", "-p", "hostler-worker", "--bins", "--examples"]);
    if !cfg!(debug_assertions) {
        command.arg("--release");
    }
    match command.current_dir(env!("CARGO_MANIFEST_DIR")).stdin(Stdio::null()).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Error::new(format!("building hostler ended with {status}"))),
        Err(source) => Err(Error::system("starting cargo to build hostler", source)),
    }
}

/// A program that was built beside this one.
pub(crate) fn program(name: &str) -> Result<PathBuf, Error> {
    let own = env::current_exe().map_err(found)?;
    let path = own.with_file_name(name);
    if path.is_file() {
        return Ok(path);
    }
    Err(Error::new(format!("{} is not built", path.display())))
}

fn found(source: io::Error) -> Error {
    Error::system("finding this program", source)
}
