//! The smallest worker: answers every request with 200, `text/plain` and `hello\n`. The benchmarks use it.
//!
//!     spawn-fcgi -n -s /tmp/hello.sock -- target/release/examples/hello

use hostler_worker::{Answer, App, Error, Request, run_app};

struct Hello;

impl App for Hello {
    fn serve(&mut self, _: &mut Request<'_>, answer: &mut Answer<'_>) -> Result<(), Error> {
        answer.head(http::StatusCode::OK, &[("Content-Type", b"text/plain")])?;
        answer.write(b"hello\n")
    }
}

fn main() -> std::process::ExitCode {
    run_app(Hello)
}
