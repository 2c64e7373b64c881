//! The smallest worker: answers every request with 200, `text/plain` and `hello\n`. The benchmarks use it.
//!
//!     spawn-fcgi -n -s /tmp/hello.sock -- target/release/examples/hello

use hostler_worker::{Error, Request, run};

fn main() -> std::process::ExitCode {
    run(|_: &mut Request<'_>| {
        Ok::<_, Error>(http::Response::builder().header("content-type", "text/plain").body("hello\n")?)
    })
}
