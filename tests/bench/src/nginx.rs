//! nginx with a config of our own in the measurement's directory.

use crate::ground::{Ground, is_root};
use hostler_bench::{address::Address, load::Error, server::Server};
use std::process::Command;

/// What nginx does.
#[derive(Debug)]
pub(crate) struct Site<'a> {
    /// Of its files.
    pub(crate) name: &'a str,
    /// Where it listens.
    pub(crate) address: Address,
    /// Worker processes.
    pub(crate) processes: usize,
    /// Into its http block: upstreams.
    pub(crate) http: &'a str,
    /// Into its one server.
    pub(crate) locations: &'a str,
}

/// Starts nginx. Requests are not logged; connections are kept for ever.
pub(crate) fn start(ground: &Ground, site: Site<'_>) -> Result<Server, Error> {
    let program = ground.program("nginx", "nginx-light")?;
    let Site { name, address, processes, http, locations } = site;
    let listen = match &address {
        Address::Unix(path) => format!("unix:{}", path.display()),
        Address::Tcp(address) => address.to_string(),
    };
    let user = if is_root() { "user root;" } else { "" };
    let config = format!(
        "{user}\nworker_processes {};\npid {};\nerror_log stderr warn;\ndaemon off;\n\
         worker_rlimit_nofile 8192;\nevents {{ worker_connections 4096; }}\n\
         http {{\naccess_log off;\nkeepalive_requests 1000000000;\nkeepalive_timeout 1h;\nsendfile on;\n\
         client_body_temp_path {tmp};\nfastcgi_temp_path {tmp};\nproxy_temp_path {tmp};\nuwsgi_temp_path {tmp};\nscgi_temp_path {tmp};\n\
         {http}\nserver {{\nlisten {listen} backlog=1024;\n{locations}\n}}\n}}\n",
        processes,
        ground.path(&format!("{name}.pid")).display(),
        tmp = ground.path("nginx.tmp").display(),
    );
    let config = ground.write(&format!("{name}.conf"), &config)?;
    let mut command = Command::new(program);
    command.args(["-e", "stderr", "-p"]).arg(ground.path("")).arg("-c").arg(config);
    Server::start(&mut command, address, &ground.path(&format!("{name}.log")))
}
