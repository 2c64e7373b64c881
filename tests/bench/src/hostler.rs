//! Hostler itself: built if need be, and started with a config of our own in the measurement's directory.

use crate::ground::{Ground, is_root};
use hostler_bench::{address::Address, load::Error, server::Server};
use std::{
    env, io,
    net::TcpListener,
    path::PathBuf,
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::{Duration, Instant},
};

/// A running `hostler run` with one pool.
#[derive(Debug)]
pub(crate) struct Hostler {
    /// The supervisor; its address is the FastCGI listener.
    pub(crate) server: Server,
    /// The HTTP listener of the same pool.
    pub(crate) http: Address,
    control: PathBuf,
}

impl Hostler {
    /// A pool NAME of static `workers`, FastCGI on `NAME.sock` and HTTP on a free TCP port; `serving` says in
    /// lines of TOML what it runs.
    pub(crate) fn start(ground: &Ground, name: &str, workers: usize, serving: &str) -> Result<Self, Error> {
        Self::start_with(ground, name, workers, serving, "")
    }

    /// The same with more lines about the workers.
    pub(crate) fn start_with(
        ground: &Ground,
        name: &str,
        workers: usize,
        serving: &str,
        about_workers: &str,
    ) -> Result<Self, Error> {
        build()?;
        let (address, http) = (ground.socket(name), free_port()?);
        let control = ground.path(&format!("{name}.control"));
        let user = if is_root() { "user = \"root\"\n" } else { "" };
        let config = format!(
            "[supervisor]\ncontrol = \"unix:{control}\"\n\n[pool.{name}]\n\
             listen = [\"{address}\", {{ address = \"{http}\", protocol = \"http\" }}]\n{user}{serving}\n\
             [pool.{name}.workers]\nmodel = \"static\"\ncount = {workers}\n{about_workers}",
            control = control.display(),
        );
        let config = ground.write(&format!("{name}.toml"), &config)?;
        let mut command = Command::new(built("hostler")?);
        command.args(["run", "--config"]).arg(config);
        let server = Server::start(&mut command, address, &ground.path(&format!("{name}.log")))?;
        Ok(Self { server, http, control })
    }

    /// The same with an example of the worker as its own program.
    pub(crate) fn native(ground: &Ground, name: &str, workers: usize, app: &str) -> Result<Self, Error> {
        let app = example(app)?;
        Self::start(
            ground,
            name,
            workers,
            &format!("runtime = \"native\"\ncommand = [\"{}\"]", app.display()),
        )
    }

    /// `hostler reload`, and how long it took.
    pub(crate) fn reload(&self) -> Result<Duration, Error> {
        let began = Instant::now();
        let output =
            Command::new(built("hostler")?).arg("reload").arg("--control").arg(&self.control).output();
        let output = output.map_err(|source| Error::system("starting hostler reload", source))?;
        if output.status.success() {
            return Ok(began.elapsed());
        }
        let said = [output.stdout, output.stderr].concat();
        Err(Error::new(format!(
            "hostler reload: {}: {}",
            output.status,
            String::from_utf8_lossy(&said).trim()
        )))
    }
}

/// As a peer of `compare`: workers that run the example `hello`.
pub(crate) fn native(ground: &Ground) -> Result<Server, Error> {
    Hostler::native(ground, "hostler", ground.processes, "hello").map(|hostler| hostler.server)
}

/// The same example without the supervisor: as many processes on one listener as descriptor 0.
pub(crate) fn bare(ground: &Ground) -> Result<Server, Error> {
    let app = example("hello")?;
    let address = ground.socket("bare");
    let mut command = Command::new(env::current_exe().map_err(found)?);
    command.arg("prefork").arg(address.to_string()).args([
        "--processes",
        &ground.processes.to_string(),
        "--",
    ]);
    command.arg(app);
    Server::start(&mut command, address, &ground.path("bare.log"))
}

/// An example of the worker, built.
pub(crate) fn example(name: &str) -> Result<PathBuf, Error> {
    build()?;
    built(&format!("examples/{name}"))
}

/// Builds Hostler beside this program and in its profile.
///
/// Always the same targets: another choice would mean other features of what they share, and all built again.
pub(crate) fn build() -> Result<(), Error> {
    static BUILT: AtomicBool = AtomicBool::new(false);
    if BUILT.load(Relaxed) {
        return Ok(());
    }
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "-p", "hostler", "-p", "hostler-worker"]);
    command.args(["--bin", "hostler", "--example", "hello", "--example", "probe"]);
    if !cfg!(debug_assertions) {
        command.arg("--release");
    }
    match command.current_dir(env!("CARGO_MANIFEST_DIR")).stdin(Stdio::null()).status() {
        Ok(status) if status.success() => {
            BUILT.store(true, Relaxed);
            Ok(())
        }
        Ok(status) => Err(Error::new(format!("building hostler ended with {status}"))),
        Err(source) => Err(Error::system("starting cargo to build hostler", source)),
    }
}

/// A program that was built beside this one.
pub(crate) fn built(name: &str) -> Result<PathBuf, Error> {
    let path = env::current_exe().map_err(found)?.with_file_name(name);
    if path.is_file() {
        return Ok(path);
    }
    Err(Error::new(format!("{} is not built", path.display())))
}

fn found(source: io::Error) -> Error {
    Error::system("finding this program", source)
}

/// A TCP port of the loopback that nobody listens on now.
pub(crate) fn free_port() -> Result<Address, Error> {
    let listener = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    listener.map(Address::Tcp).map_err(|source| Error::system("finding a free port", source))
}
