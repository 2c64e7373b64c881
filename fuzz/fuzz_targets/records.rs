//! Any bytes as the records of a FastCGI connection: however they are torn, the scan comes to the same end.
#![no_main]

use hostler_proto::{Error, Gather, Limits, Piece, Step, Stream};
use libfuzzer_sys::fuzz_target;

const LIMITS: Limits = Limits { params: 2048, body: 512 };

/// What a connection's bytes lead to, given `piece` bytes at a time; but for heads, which are not told of where the
/// request is whole with them.
fn steps(bytes: &[u8], piece: usize) -> Vec<Result<Step, Error>> {
    let (mut gather, mut steps, mut start, mut end, mut heads) = (Gather::default(), Vec::new(), 0, 0, 0);
    loop {
        let step = gather.scan(&bytes[start..end], &LIMITS);
        assert!(gather.scanned() <= end - start);
        match step {
            Ok(Step::More) if end < bytes.len() => {
                end = bytes.len().min(end + piece);
                continue;
            }
            Ok(Step::More) => return steps,
            Ok(Step::Head) => {
                heads += 1;
                assert!(heads <= bytes.len(), "a head without a byte");
                continue;
            }
            Ok(Step::Whole | Step::Aborted(_) | Step::UnknownRole(_)) => {
                start += gather.scanned();
                gather.restart();
            }
            Ok(Step::Large) => {
                let begun = gather.begun().expect("a body has a request");
                steps.push(step);
                stream(&bytes[start + gather.scanned()..], begun.id);
                return steps;
            }
            Err(_) => {
                steps.push(step);
                return steps;
            }
            Ok(_) => {}
        }
        steps.push(step);
        assert!(steps.len() <= bytes.len(), "a step without a byte");
    }
}

/// The rest of a body: it ends, or asks for more than there is.
fn stream(bytes: &[u8], id: u16) {
    let (mut stream, mut at, mut steps) = (Stream::new(id, false), 0, 0);
    while let Ok(piece) = stream.next(&bytes[at.min(bytes.len())..]) {
        match piece {
            Piece::Content(n) => {
                assert!(n > 0 && n <= bytes.len() - at);
                at += n;
            }
            Piece::Skip(n) => {
                assert!(n > 0);
                at += n;
            }
            Piece::Multiplexed(_) => {}
            _ => break,
        }
        steps += 1;
        assert!(steps <= 2 * bytes.len() + 2, "it makes no way");
        if at > bytes.len() {
            break;
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let whole = steps(bytes, bytes.len().max(1));
    for piece in [1, 7] {
        assert_eq!(steps(bytes, piece), whole, "pieces of {piece}");
    }
});
