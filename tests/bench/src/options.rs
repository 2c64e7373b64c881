//! The command line of `load` and `limit`. Scenarios keep theirs beside themselves.

use hostler_bench::{
    address::Address,
    driver,
    load::{Error, Plan, Until},
    request::{Protocol, Request},
    still::{Still, Stop, raise_descriptor_limit},
};
use std::{
    ffi::OsString,
    io::{Write, stdout},
    time::Duration,
};

/// What load to put on which server.
#[derive(Debug, clap::Args)]
pub(crate) struct Load {
    /// unix:PATH or tcp:ADDRESS:PORT
    address: Address,
    /// Speak HTTP instead of FastCGI
    #[arg(long)]
    http: bool,
    /// Connections, each with one request in flight
    #[arg(short, long, default_value_t = 16)]
    connections: usize,
    /// Keep connections open
    #[arg(short, long)]
    keep: bool,
    /// Seconds to run
    #[arg(short, long, default_value_t = 3.0)]
    seconds: f64,
    /// Stop after so many answers instead
    #[arg(short, long)]
    number: Option<u64>,
    /// Bytes of body; not 0 makes it a POST
    #[arg(short, long, default_value_t = 0)]
    body: usize,
    /// Path and query
    #[arg(short, long, default_value = "/hello")]
    uri: String,
    /// One more CGI parameter (HTTP: header field); repeat
    #[arg(short, long, value_name = "NAME=VALUE", value_parser = pair)]
    parameter: Vec<(String, String)>,
    /// This fraction of requests asks for `--slow-uri`, with `--slow-parameter`
    #[arg(long, default_value_t = 0.0)]
    slow: f64,
    /// Path and query of slow requests
    #[arg(long)]
    slow_uri: Option<String>,
    /// Parameter of slow requests alone
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    slow_parameter: Vec<(String, String)>,
    /// Connections beside the load that say nothing
    #[arg(long, default_value_t = 0)]
    silent: usize,
    /// Connections beside the load that stop inside the head
    #[arg(long, default_value_t = 0)]
    in_head: usize,
    /// Connections beside the load that stop inside a body of 10 KB
    #[arg(long, default_value_t = 0)]
    in_body: usize,
    /// Kept connections beside the load that rest after one answer
    #[arg(long, default_value_t = 0)]
    at_rest: usize,
    /// Text that each answer must hold in its first 4 KiB
    #[arg(short, long, default_value = "")]
    expect: String,
    /// Account CPU time and memory of this process and its descendants
    #[arg(long, value_name = "PID")]
    tree: Option<u32>,
}

/// Where the limit program serves.
#[derive(Debug, clap::Args)]
pub(crate) struct Limit {
    /// unix:PATH or tcp:ADDRESS:PORT
    pub(crate) address: Address,
    /// Processes that serve
    #[arg(short, long, default_value_t = 4)]
    pub(crate) processes: usize,
    /// Spread connections as Hostler does: who has taken four goes to the end of those to wake
    #[arg(long)]
    pub(crate) spread: bool,
}

/// Which program to start how often.
#[derive(Debug, clap::Args)]
pub(crate) struct Prefork {
    /// unix:PATH or tcp:ADDRESS:PORT
    pub(crate) address: Address,
    /// Copies
    #[arg(short, long, default_value_t = 4)]
    pub(crate) processes: usize,
    /// Program and arguments
    #[arg(last = true, required = true)]
    pub(crate) program: Vec<OsString>,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("wanted NAME=VALUE")?;
    Ok((name.into(), value.into()))
}

impl Load {
    /// Runs it and prints what came of it; false where a request failed.
    pub(crate) fn run(&self) -> Result<bool, Error> {
        raise_descriptor_limit()?;
        let plan = self.plan();
        let kinds = [
            (Stop::Silent, self.silent),
            (Stop::InHead, self.in_head),
            (Stop::InBody, self.in_body),
            (Stop::AtRest, self.at_rest),
        ];
        let mut still = Vec::new();
        for (stop, count) in kinds.into_iter().filter(|(_, count)| *count > 0) {
            still.push((stop, Still::open(&plan.address, &plan.request, stop, count)?));
        }
        let outcome = driver::run(&plan)?;
        let mut out = stdout().lock();
        // That nobody reads it is no fault.
        let _ = write!(out, "{outcome}");
        for (stop, held) in &still {
            let _ = writeln!(
                out,
                "still        {stop:?}: {} of {} untouched by the server",
                held.untouched(),
                held.opened()
            );
        }
        Ok(outcome.errors == 0 && outcome.requests > 0)
    }

    fn plan(&self) -> Plan {
        let protocol = if self.http { Protocol::Http } else { Protocol::Fastcgi };
        let method = if self.body > 0 { "POST" } else { "GET" }.into();
        let (keep, uri, body) = (self.keep, self.uri.clone(), self.body);
        let request = Request { protocol, keep, method, uri, body, parameters: self.parameter.clone() };
        let mut slow = request.clone();
        slow.uri = self.slow_uri.clone().unwrap_or(slow.uri);
        slow.parameters.extend(self.slow_parameter.iter().cloned());
        let mut plan = Plan::new(self.address.clone(), request, self.connections, self.seconds);
        plan.slow = (self.slow > 0.0).then_some((self.slow, slow));
        if let Some(number) = self.number {
            (plan.until, plan.warm_up) = (Until::Answers(number), Duration::ZERO);
        }
        plan.expect.clone_from(&self.expect);
        plan.tree = self.tree;
        plan
    }
}
