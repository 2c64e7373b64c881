//! Any bytes as all that an HTTP client says, cut anywhere, through the real serving loop.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| hostler_worker::fuzzing::connection(true, bytes));
