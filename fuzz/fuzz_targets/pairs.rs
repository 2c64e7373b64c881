//! Any bytes as name-value pairs: what is read is written back the same, or an error ends it.
#![no_main]

use hostler_proto::{Pairs, pairs::write_pair};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut written = Vec::new();
    let mut pairs = Pairs::new(bytes);
    for pair in pairs.by_ref() {
        let Ok((name, value)) = pair else { break };
        write_pair(&mut written, name, value);
    }
    assert!(pairs.next().is_none(), "nothing follows an error");
    // Short lengths written in four bytes come back in one: never longer.
    assert!(written.len() <= bytes.len());
    let again: Vec<_> = Pairs::new(&written).map(|pair| pair.expect("a written pair")).collect();
    let first: Vec<_> = Pairs::new(bytes).map_while(Result::ok).collect();
    assert_eq!(again, first);
});
