//! Pools of the probe: their config, connections to them, and what status says of them.

use crate::{
    http::{Answer, Connection},
    net::Address,
    program::eventually,
    site::Site,
};

/// A pool `name` of the probe, over HTTP, with more keys, and with the lines of its `workers`.
#[must_use]
pub fn pool(name: &str, keys: &str, workers: &str) -> String {
    format!(
        "[pool.{name}]\n{{user}}\nlisten = [{{ address = \"unix:{{dir}}/{name}.sock\", protocol = \"http\" }}]\n\
         runtime = \"native\"\ncommand = [\"{{probe}}\"]\n{keys}\n[pool.{name}.workers]\n{workers}\n"
    )
}

/// `n` workers always.
#[must_use]
pub fn count(n: u32) -> String {
    format!("model = \"static\"\ncount = {n}")
}

/// A connection to a pool.
#[must_use]
pub fn http(site: &Site, name: &str) -> Connection {
    Connection::to(&site.address(&format!("{name}.sock")))
}

/// One GET on a connection of its own.
///
/// # Errors
/// What was wrong with the connection or the answer.
pub fn get(address: &Address, target: &str) -> Result<Answer, String> {
    let mut connection = Connection::over(address.try_connect().map_err(|e| e.to_string())?);
    connection.ask("GET", target, &["Connection: close"]);
    connection.answer("GET").map_err(|e| format!("{e:?}"))
}

/// What status says of a pool; of all where there is none of that name.
#[must_use]
pub fn state(site: &Site, name: &str) -> serde_json::Value {
    let status = site.status();
    status["pools"].as_array().unwrap().iter().find(|p| p["name"] == name).unwrap_or(&status["pools"]).clone()
}

/// How many workers of a pool are in a state: `booting`, `idle`, `busy`, `retiring`.
#[must_use]
pub fn workers_in(pool: &serde_json::Value, state: &str) -> usize {
    pool["workers"].as_array().unwrap().iter().filter(|worker| worker["state"] == state).count()
}

/// Waits until `n` workers of a pool are in a state.
pub fn until(site: &Site, name: &str, n: usize, wanted: &str) {
    eventually(&format!("{n} {wanted} workers"), || {
        (workers_in(&state(site, name), wanted) == n).then_some(())
    });
}
