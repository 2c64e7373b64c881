//! The characters of a token (RFC 9110, section 5.6.2): methods and field names are made of them.

/// Whether a token may have this byte in it.
#[must_use]
#[inline]
pub fn is_token(byte: u8) -> bool {
    const TOKEN: u128 = {
        let mut set = 0;
        let mut char = 0u8;
        while char < 128 {
            if char.is_ascii_alphanumeric()
                || matches!(char, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^'..=b'`' | b'|' | b'~')
            {
                set |= 1 << char;
            }
            char += 1;
        }
        set
    };
    byte < 128 && TOKEN & (1 << byte) != 0
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
