//! The characters of a token (RFC 9110, section 5.6.2): methods and field names are made of them.

/// Whether a token may have this byte in it.
#[must_use]
#[inline]
pub fn is_token(byte: u8) -> bool {
    #[expect(clippy::indexing_slicing, reason = "at compile time, where a fault is no program")]
    const TOKEN: [bool; 256] = {
        let mut set = [false; 256];
        let mut char = 0u8;
        while char < 128 {
            set[char as usize] = char.is_ascii_alphanumeric()
                || matches!(char, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^'..=b'`' | b'|' | b'~');
            char += 1;
        }
        set
    };
    TOKEN.get(usize::from(byte)).copied().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_a_token_are_those_of_the_specification() {
        for byte in 0..=255u8 {
            let named = byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
            assert_eq!(is_token(byte), named, "{byte}");
        }
    }
}
