//! 1,000 pools of one ondemand worker in one supervisor: start, a reload where one changed, memory; and 20 pools
//! at rest: nothing wakes up.

use crate::{
    ground::{Ground, is_root},
    hostler,
    report::{Report, Wanted},
    rounds::Extent,
};
use hostler_bench::{address::Address, load::Error, load::real, server::Server, tree};
use std::{
    fs,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

const POOLS: usize = 1000;

/// Whether start, reload, memory and rest hold.
pub(crate) fn run(extent: &Extent) -> Result<bool, Error> {
    let mut report = Report::default();
    report.line(format!(
        "{POOLS} pools of one ondemand files worker each; then 20 pools of two static workers.\n"
    ));
    many(&mut report)?;
    at_rest(&mut report)?;
    report.finish("pools", "cargo run --release -p hostler-bench -- pools --write", extent.write)
}

fn many(report: &mut Report) -> Result<(), Error> {
    let ground = Ground::new(1, false)?;
    let config = write(&ground, POOLS, "model = \"ondemand\"\nmax = 1\n", "64MiB")?;
    let began = Instant::now();
    let supervisor = start(&ground, &config)?;
    let last = ground.path(&format!("p{}.sock", POOLS - 1));
    while !last.exists() && began.elapsed() < Duration::from_secs(30) {
        thread::sleep(Duration::from_millis(1));
    }
    report.check("seconds to start", began.elapsed().as_secs_f64(), Wanted::AtMost(5.0));
    let text = fs::read_to_string(&config).map_err(|source| Error::system("reading the config", source))?;
    ground.write("hostler.toml", &text.replacen("64MiB", "65MiB", 1))?;
    let began = Instant::now();
    let mut command = Command::new(hostler::built("hostler")?);
    command.args(["reload", "--changed", "--control"]).arg(ground.path("control.sock"));
    let output = command.output().map_err(|source| Error::system("starting hostler reload", source))?;
    let took = began.elapsed();
    if !output.status.success() {
        return Err(Error::new(format!("hostler reload: {}", String::from_utf8_lossy(&output.stderr))));
    }
    report.check(
        "milliseconds of reload --changed with one changed",
        took.as_secs_f64() * 1e3,
        Wanted::AtMost(100.0),
    );
    let memory = real(tree::private_memory_of(supervisor.pid())) / 1_048_576.0;
    report.check("MiB of the supervisor", memory, Wanted::AtMost(64.0));
    Ok(())
}

fn at_rest(report: &mut Report) -> Result<(), Error> {
    let ground = Ground::new(1, false)?;
    let config = write(&ground, 20, "model = \"static\"\ncount = 2\n", "64MiB")?;
    let supervisor = start(&ground, &config)?;
    while tree::workers(supervisor.pid()).len() < 40 {
        thread::sleep(Duration::from_millis(10));
    }
    thread::sleep(Duration::from_secs(2));
    let before = tree::wake_ups(supervisor.pid());
    thread::sleep(Duration::from_secs(10));
    let woken = tree::wake_ups(supervisor.pid()).saturating_sub(before);
    report.check("wake-ups of 20 pools in 10 s at rest", real(woken), Wanted::AtMost(0.0));
    Ok(())
}

fn write(ground: &Ground, pools: usize, model: &str, max_body: &str) -> Result<std::path::PathBuf, Error> {
    let site = ground.path("site");
    fs::create_dir_all(&site).map_err(|source| Error::system("making a directory of files", source))?;
    let user = if is_root() { "user = \"root\"\n" } else { "" };
    let mut config = format!("[supervisor]\ncontrol = \"unix:{}\"\n", ground.path("control.sock").display());
    for at in 0..pools {
        config += &format!(
            "[pool.p{at}]\nlisten = [\"{}\"]\n{user}runtime = \"files\"\nroot = \"{}\"\nmax_body = \"{max_body}\"\n[pool.p{at}.workers]\n{model}",
            ground.socket(&format!("p{at}")),
            site.display()
        );
    }
    ground.write("hostler.toml", &config)
}

fn start(ground: &Ground, config: &Path) -> Result<Server, Error> {
    hostler::build()?;
    let mut command = Command::new(hostler::built("hostler")?);
    command.args(["run", "--config"]).arg(config);
    Server::start(&mut command, Address::Unix(ground.path("control.sock")), &ground.path("hostler.log"))
}
