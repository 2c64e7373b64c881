//! nginx with a config of our own in the measurement's directory.

use crate::{
    ground::{Ground, is_root},
    peers::path,
};
use hostler_bench::{load::Error, server::Server};
use std::{fs, process::Command};

/// Starts nginx on the Unix socket `NAME.sock`. `http` goes into its http block (upstreams), `locations` into
/// its one server. Requests are not logged; connections are kept for ever.
pub(crate) fn start(ground: &Ground, name: &str, http: &str, locations: &str) -> Result<Server, Error> {
    let program = ground.program("nginx", "nginx-light")?;
    let address = ground.socket(name);
    let _ = fs::remove_file(path(&address));
    let user = if is_root() { "user root;" } else { "" };
    let config = format!(
        "{user}\nworker_processes {};\npid {};\nerror_log stderr warn;\ndaemon off;\n\
         worker_rlimit_nofile 8192;\nevents {{ worker_connections 4096; }}\n\
         http {{\naccess_log off;\nkeepalive_requests 1000000000;\nkeepalive_timeout 1h;\nsendfile on;\n\
         client_body_temp_path {tmp};\nfastcgi_temp_path {tmp};\nproxy_temp_path {tmp};\nuwsgi_temp_path {tmp};\nscgi_temp_path {tmp};\n\
         {http}\nserver {{\nlisten unix:{socket} backlog=1024;\n{locations}\n}}\n}}\n",
        ground.processes,
        ground.path(&format!("{name}.pid")).display(),
        tmp = ground.path("nginx.tmp").display(),
        socket = path(&address).display(),
    );
    let config = ground.write(&format!("{name}.conf"), &config)?;
    let mut command = Command::new(program);
    command.args(["-e", "stderr", "-p"]).arg(ground.path("")).arg("-c").arg(config);
    Server::start(&mut command, address, &ground.path(&format!("{name}.log")))
}
