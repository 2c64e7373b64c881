//! The Range request header (RFC 9110, section 14.2): which bytes of a file a client asks for.
//!
//! Always holds: what comes back lies within the file, no two spans overlap, and there are at most
//! [`SPANS_LIMIT`]. A header that is no valid set of byte ranges, or asks for more spans than that, is ignored
//! as the section allows: the client gets the whole.
//! Does no I/O.

/// The most spans that one request may ask for; a header with more is ignored.
pub(super) const SPANS_LIMIT: usize = 32;

/// Some of a file's bytes: from `start`, `len` of them; never empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    /// Offset of the first byte.
    pub start: u64,
    /// Number of bytes.
    pub len: u64,
}

impl Span {
    /// Offset after the last byte.
    fn end(self) -> u64 {
        self.start + self.len
    }

    /// The value of Content-Range in a file of `size` bytes.
    pub(super) fn content_range(self, size: u64) -> String {
        format!("bytes {}-{}/{size}", self.start, self.end() - 1)
    }
}

/// What a Range header asks of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// The header is absent or to be ignored.
    Whole,
    /// One span or several, in the client's order unless some overlapped.
    Spans(Vec<Span>),
    /// No span that was asked for lies within the file: 416.
    Unsatisfiable,
}

/// What `header` asks of a file of `size` bytes.
pub(super) fn asked(header: &[u8], size: u64) -> Asked {
    let Some(set) = header.split_at_checked(6).filter(|(unit, _)| unit.eq_ignore_ascii_case(b"bytes="))
    else {
        return Asked::Whole;
    };
    let mut spans = Vec::new();
    let mut seen = 0;
    for item in set.1.split(|&b| b == b',').map(<[u8]>::trim_ascii).filter(|item| !item.is_empty()) {
        seen += 1;
        match span(item, size) {
            Item::Invalid => return Asked::Whole,
            _ if seen > SPANS_LIMIT => return Asked::Whole,
            Item::Outside => {}
            Item::Within(span) => spans.push(span),
            Item::SuffixOfNothing => return Asked::Whole,
        }
    }
    match (seen, spans.is_empty()) {
        (0, _) => Asked::Whole,
        (_, true) => Asked::Unsatisfiable,
        (_, false) => Asked::Spans(coalesced(spans)),
    }
}

/// One element of the set.
enum Item {
    Invalid,
    Outside,
    Within(Span),
    /// `-5` of an empty file is satisfiable, and no Content-Range can say so.
    SuffixOfNothing,
}

fn span(item: &[u8], size: u64) -> Item {
    let Some(dash) = item.iter().position(|&b| b == b'-') else { return Item::Invalid };
    let (first, last) = (item.get(..dash).unwrap_or_default(), item.get(dash + 1..).unwrap_or_default());
    match (number(first), number(last)) {
        (Number::Absent, Number::Is(0)) => Item::Outside,
        (Number::Absent, Number::Is(_)) if size == 0 => Item::SuffixOfNothing,
        (Number::Absent, Number::Is(n)) => {
            Item::Within(Span { start: size.saturating_sub(n), len: n.min(size) })
        }
        (Number::Is(a), Number::Is(b)) if a > b => Item::Invalid,
        (Number::Is(a), Number::Absent | Number::Is(_)) if a >= size => Item::Outside,
        (Number::Is(a), Number::Absent) => Item::Within(Span { start: a, len: size - a }),
        (Number::Is(a), Number::Is(b)) => Item::Within(Span { start: a, len: b.min(size - 1) - a + 1 }),
        _ => Item::Invalid,
    }
}

enum Number {
    Absent,
    /// Saturated: a number over 2⁶⁴ lies outside any file.
    Is(u64),
    Invalid,
}

fn number(digits: &[u8]) -> Number {
    if digits.is_empty() {
        return Number::Absent;
    }
    digits
        .iter()
        .try_fold(0u64, |n, &b| {
            b.is_ascii_digit().then(|| n.saturating_mul(10).saturating_add(u64::from(b - b'0')))
        })
        .map_or(Number::Invalid, Number::Is)
}

/// `spans` as they are where none overlaps, else sorted and merged: what a client can make the server send is
/// never more than the file.
fn coalesced(spans: Vec<Span>) -> Vec<Span> {
    let mut sorted = spans.clone();
    sorted.sort_by_key(|span| span.start);
    let mut merged: Vec<Span> = Vec::with_capacity(sorted.len());
    for span in sorted {
        match merged.last_mut() {
            Some(last) if span.start < last.end() => last.len = last.end().max(span.end()) - last.start,
            _ => merged.push(span),
        }
    }
    if merged.len() == spans.len() { spans } else { merged }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(pairs: &[(u64, u64)]) -> Asked {
        Asked::Spans(pairs.iter().map(|&(start, len)| Span { start, len }).collect())
    }

    #[test]
    fn one_range_is_cut_to_the_file() {
        assert_eq!(asked(b"bytes=0-0", 10), spans(&[(0, 1)]));
        assert_eq!(asked(b"bytes=2-5", 10), spans(&[(2, 4)]));
        assert_eq!(asked(b"bytes=7-", 10), spans(&[(7, 3)]));
        assert_eq!(asked(b"bytes=7-100", 10), spans(&[(7, 3)]));
        assert_eq!(asked(b"bytes=-3", 10), spans(&[(7, 3)]));
        assert_eq!(asked(b"bytes=-30", 10), spans(&[(0, 10)]));
        assert_eq!(asked(b"Bytes= 1-2 ", 10), spans(&[(1, 2)]));
        assert_eq!(asked(b"bytes=0-99999999999999999999999999", 10), spans(&[(0, 10)]));
    }

    #[test]
    fn a_range_outside_the_file_is_unsatisfiable() {
        for header in [
            &b"bytes=10-"[..],
            b"bytes=10-20",
            b"bytes=-0",
            b"bytes=99999999999999999999999-",
            b"bytes=10-,11-",
        ] {
            assert_eq!(asked(header, 10), Asked::Unsatisfiable, "{header:?}");
        }
        assert_eq!(asked(b"bytes=0-", 0), Asked::Unsatisfiable);
        assert_eq!(asked(b"bytes=-5", 0), Asked::Whole);
    }

    #[test]
    fn what_is_no_set_of_byte_ranges_is_ignored() {
        for header in [
            &b""[..],
            b"bytes",
            b"bytes=",
            b"bytes=,",
            b"bytes=-",
            b"bytes=a-b",
            b"bytes=5-2",
            b"bytes=1",
            b"lines=1-2",
            b"bytes=1-2-3",
            b"bytes=+1-2",
            b"bytes=0x1-2",
            b"bytes=1 - 2",
            b"bytes=0-1;2-3",
            b"bytes=0-1,x",
            b"\xff\xff\xff\xff\xff\xff\xff",
        ] {
            assert_eq!(asked(header, 10), Asked::Whole, "{header:?}");
        }
    }

    #[test]
    fn several_ranges_keep_their_order_and_drop_those_outside() {
        assert_eq!(asked(b"bytes=8-9,0-1", 10), spans(&[(8, 2), (0, 2)]));
        assert_eq!(asked(b"bytes=0-1, ,20-30,-1", 10), spans(&[(0, 2), (9, 1)]));
        assert_eq!(asked(b"bytes=0-1,2-3", 10), spans(&[(0, 2), (2, 2)]));
    }

    #[test]
    fn overlapping_ranges_are_merged_so_that_no_byte_is_sent_twice() {
        assert_eq!(asked(b"bytes=0-,0-,0-,0-", 10), spans(&[(0, 10)]));
        assert_eq!(asked(b"bytes=5-7,0-5", 10), spans(&[(0, 8)]));
        assert_eq!(asked(b"bytes=0-9,2-3,4-5", 10), spans(&[(0, 10)]));
        assert_eq!(asked(b"bytes=6-9,0-3,2-4", 10), spans(&[(0, 5), (6, 4)]));
    }

    #[test]
    fn too_many_ranges_get_the_whole() {
        let header = |n: usize| {
            let items: Vec<String> = (0..n).map(|i| format!("{}-{}", i * 2, i * 2)).collect();
            format!("bytes={}", items.join(","))
        };
        assert!(
            matches!(asked(header(SPANS_LIMIT).as_bytes(), 1000), Asked::Spans(s) if s.len() == SPANS_LIMIT)
        );
        assert_eq!(asked(header(SPANS_LIMIT + 1).as_bytes(), 1000), Asked::Whole);
        assert_eq!(asked(header(SPANS_LIMIT + 1).as_bytes(), 1), Asked::Whole);
    }

    #[test]
    fn spans_lie_within_the_file_whatever_is_asked() {
        let numbers = ["", "0", "1", "4", "5", "6", "18446744073709551615", "18446744073709551616"];
        for size in [0, 1, 5, u64::MAX] {
            for header in numbers
                .iter()
                .flat_map(|a| numbers.iter().map(move |b| format!("bytes={a}-{b},{b}-{a},-{a}")))
            {
                let Asked::Spans(spans) = asked(header.as_bytes(), size) else { continue };
                for span in &spans {
                    assert!(
                        span.len > 0 && span.start < size && span.len <= size - span.start,
                        "{header} of {size}"
                    );
                }
                assert!(spans.iter().map(|span| u128::from(span.len)).sum::<u128>() <= u128::from(size));
            }
        }
    }
}
