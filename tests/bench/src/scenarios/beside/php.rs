//! php-fpm and Hostler with php-cgi, four processes each: connections at rest, a reload in a request, a broken file
//! of one pool.

use super::{PATIENCE, Seen, Story, ask, clear};
use crate::{
    ground::{Ground, is_root},
    hostler::{self, Hostler},
    peers::{self, path, script},
    rounds::progress,
};
use hostler_bench::{
    address::Address,
    load::Error,
    request::{Protocol, Request},
    server::Server,
    still::{Still, Stop},
};
use nix::sys::signal::Signal;
use std::{fs, process::Command, thread, time::Duration};

/// How long the request runs into which the reload falls.
const RUNS: Duration = Duration::from_millis(1500);

pub(super) fn stories(ground: &Ground) -> Result<Vec<Story>, Error> {
    ground.write("slow.php", &format!("<?php usleep({}); echo 'hello';", RUNS.as_micros()))?;
    Ok(vec![rest(ground)?, reload(ground)?, broken(ground)?])
}

fn serving(ground: &Ground) -> Result<String, Error> {
    let program = ground.program("php-cgi8.2", "php8.2-cgi")?;
    Ok(format!(
        "runtime = \"fastcgi\"\ncommand = [\"{}\"]\nenv = {{ PHP_FCGI_CHILDREN = \"0\", PHP_FCGI_MAX_REQUESTS = \"0\" }}\n",
        program.display()
    ))
}

fn request(ground: &Ground, name: &str, keep: bool) -> Request {
    let mut request = Request::new(Protocol::Fastcgi, keep);
    request.uri = format!("/{name}");
    request.parameters = script(ground, name);
    request
}

fn rest(ground: &Ground) -> Result<Story, Error> {
    let what = "4 kept connections at rest on 4 processes, and a fifth client";
    progress(what);
    let tell = |server: Server| {
        let kept = Still::open(server.address(), &request(ground, "hello.php", true), Stop::AtRest, 4)?;
        let heard = ask(server.address(), &request(ground, "hello.php", false), PATIENCE)?;
        drop(kept);
        clear(server, None);
        Ok(Seen { words: heard.to_string(), right: heard.is_whole() })
    };
    let today = tell(peers::php_fpm(ground)?)?;
    let hostler = tell(Hostler::start(ground, "ours", 4, &serving(ground)?)?.server)?;
    Ok(Story { what, today, hostler })
}

fn reload(ground: &Ground) -> Result<Story, Error> {
    let what = "a reload while a request of 1.5 s runs";
    progress(what);
    let tell = |address: &Address, reload: &dyn Fn() -> Result<(), Error>| {
        thread::scope(|scope| {
            let running = scope.spawn(|| ask(address, &request(ground, "slow.php", false), 2 * PATIENCE));
            thread::sleep(RUNS / 3);
            reload()?;
            let heard = running.join().map_err(|_| Error::new("the client panicked"))??;
            Ok::<_, Error>(Seen { words: heard.to_string(), right: heard.is_whole() })
        })
    };
    let theirs = peers::php_fpm(ground)?;
    let today = tell(theirs.address(), &|| theirs.signal(Signal::SIGUSR2))?;
    clear(theirs, None);
    let ours = Hostler::start(ground, "ours", 4, &serving(ground)?)?;
    let hostler = tell(ours.server.address(), &|| ours.reload().map(|_| ()))?;
    clear(ours.server, None);
    Ok(Story { what, today, hostler })
}

fn broken(ground: &Ground) -> Result<Story, Error> {
    let what = "a syntax error in the file of pool b, and a reload";
    progress(what);
    let (theirs, pools) = two_pools_of_php_fpm(ground)?;
    let today = with_b_broken(ground, theirs, &pools, Signal::SIGUSR2, "fpm/b.conf")?;
    let (ours, pools) = two_pools_of_hostler(ground)?;
    let hostler = with_b_broken(ground, ours, &pools, Signal::SIGHUP, "pools.d/b.toml")?;
    Ok(Story { what, today, hostler })
}

/// Breaks the file of pool b, reloads, and asks both pools.
fn with_b_broken(
    ground: &Ground,
    server: Server,
    pools: &[Address; 2],
    reload: Signal,
    file: &str,
) -> Result<Seen, Error> {
    for pool in pools {
        let heard = ask(pool, &request(ground, "hello.php", false), PATIENCE)?;
        if !heard.is_whole() {
            return Err(Error::new(format!(
                "{pool} before its file was broken: {heard}; {}",
                server.last_words()
            )));
        }
    }
    ground.write(file, "[[ this is = no config\n")?;
    server.signal(reload)?;
    thread::sleep(Duration::from_secs(1));
    let [a, b] = pools;
    let a = ask(a, &request(ground, "hello.php", false), PATIENCE)?;
    let b = ask(b, &request(ground, "hello.php", false), PATIENCE)?;
    clear(server, None);
    Ok(Seen { words: format!("pool a: {a}; pool b: {b}"), right: a.is_whole() && b.is_whole() })
}

fn two_pools_of_php_fpm(ground: &Ground) -> Result<(Server, [Address; 2]), Error> {
    let program = ground.program("php-fpm8.2", "php8.2-fpm")?;
    directory(ground, "fpm")?;
    let pools = ["a", "b"].map(|name| ground.socket(&format!("fpm-{name}")));
    for (name, address) in ["a", "b"].iter().zip(&pools) {
        let user = if is_root() { "user = www-data\ngroup = www-data\n" } else { "" };
        let listen = path(address).display();
        let text = format!("[{name}]\nlisten = {listen}\n{user}pm = static\npm.max_children = 2\n");
        ground.write(&format!("fpm/{name}.conf"), &text)?;
    }
    let text = format!(
        "[global]\nerror_log = /dev/stderr\ndaemonize = no\ninclude = {}/*.conf\n",
        ground.path("fpm").display()
    );
    let config = ground.write("fpm.conf", &text)?;
    let mut command = Command::new(program);
    command.args(["-F", "-c", "/dev/null", "-y"]).arg(config);
    let [first, _] = &pools;
    Ok((Server::start(&mut command, first.clone(), &ground.path("fpm.log"))?, pools))
}

fn two_pools_of_hostler(ground: &Ground) -> Result<(Server, [Address; 2]), Error> {
    hostler::build()?;
    directory(ground, "pools.d")?;
    let pools = ["a", "b"].map(|name| ground.socket(&format!("pool-{name}")));
    for (name, address) in ["a", "b"].iter().zip(&pools) {
        let user = if is_root() { "user = \"root\"\n" } else { "" };
        let text = format!(
            "[pool.{name}]\nlisten = [\"{address}\"]\n{user}{}\n[pool.{name}.workers]\nmodel = \"static\"\ncount = 2\n",
            serving(ground)?
        );
        ground.write(&format!("pools.d/{name}.toml"), &text)?;
    }
    let control = ground.path("two.control");
    let text =
        format!("[supervisor]\ncontrol = \"unix:{}\"\ninclude = [\"pools.d/*.toml\"]\n", control.display());
    let config = ground.write("two.toml", &text)?;
    let mut command = Command::new(hostler::built("hostler")?);
    command.args(["run", "--config"]).arg(config);
    let [first, _] = &pools;
    Ok((Server::start(&mut command, first.clone(), &ground.path("two.log"))?, pools))
}

fn directory(ground: &Ground, name: &str) -> Result<(), Error> {
    fs::create_dir_all(ground.path(name)).map_err(|source| Error::system(format!("making {name}"), source))
}
