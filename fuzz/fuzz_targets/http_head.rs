//! Any bytes as the head of an HTTP request: it is taken, waited for or refused, whole or in two pieces.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| hostler_worker::fuzzing::http_head(bytes));
