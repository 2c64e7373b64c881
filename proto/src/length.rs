//! The meaning of CONTENT_LENGTH (RFC 3875, section 4.1.2), as web servers really send it.

/// What a CONTENT_LENGTH says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// Absent, empty or "-1": the body ends with its stream.
    Unknown,
    /// Bytes of body.
    Known(u64),
    /// Not a number, or one of over 18 digits.
    Invalid,
}

/// Reads a CONTENT_LENGTH: decimal digits alone, with no sign, no space and no list.
#[must_use]
pub fn content_length(value: Option<&[u8]>) -> Length {
    match value {
        None | Some(b"" | b"-1") => Length::Unknown,
        Some(digits) if digits.len() <= 18 && digits.iter().all(u8::is_ascii_digit) => {
            Length::Known(digits.iter().fold(0, |n, d| n * 10 + u64::from(d - b'0')))
        }
        Some(_) => Length::Invalid,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_length_has_one_meaning_for_each_spelling() {
        assert_eq!(content_length(None), Length::Unknown);
        assert_eq!(content_length(Some(b"")), Length::Unknown);
        assert_eq!(content_length(Some(b"-1")), Length::Unknown);
        assert_eq!(content_length(Some(b"0")), Length::Known(0));
        assert_eq!(content_length(Some(b"0042")), Length::Known(42));
        assert_eq!(content_length(Some(b"999999999999999999")), Length::Known(999_999_999_999_999_999));
        for bad in [&b"-2"[..], b"+1", b" 1", b"1 ", b"1,1", b"0x1", b"1e3", b"9999999999999999999", b"\xb2"]
        {
            assert_eq!(content_length(Some(bad)), Length::Invalid, "{bad:?}");
        }
    }
}
