//! Any bytes as all that a FastCGI peer says, cut anywhere, through the real serving loop.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| hostler_worker::fuzzing::connection(false, bytes));
