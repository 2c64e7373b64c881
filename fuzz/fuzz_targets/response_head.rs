//! Any bytes as the head of a CGI response: what is taken can be sent to any web server.
#![no_main]

use hostler_proto::cgi::Head;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(Some(head)) = Head::parse(bytes, 8192) else { return };
    assert!((100..600).contains(&head.status));
    assert!(head.len <= bytes.len() && head.len <= 8192);
    assert!(bytes[..head.len].ends_with(b"\n"));
    for (name, value) in &head.fields {
        assert!(!name.is_empty() && name.bytes().all(|b| b.is_ascii_graphic() && b != b':'));
        assert!(value.iter().all(|b| *b == b'\t' || (*b >= 0x20 && *b != 0x7f)));
    }
    // The head alone, and with more behind it, is the same head.
    let alone = Head::parse(&bytes[..head.len], 8192);
    assert_eq!(alone, Ok(Some(head)));
});
