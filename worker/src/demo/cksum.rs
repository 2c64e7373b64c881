//! The checksum of the POSIX `cksum` command, so that anyone can compare an upload with `cksum FILE`.
//!
//! CRC-32 with polynomial 0x04C11DB7, most significant bit first, start 0, the length after the bytes,
//! complemented at the end. It tells that bytes were damaged, never that somebody meant well.
//! Does no I/O.

const POLYNOMIAL: u32 = 0x04C1_1DB7;

static TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut index = 0u32;
    while index < 256 {
        let mut crc = index << 24;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc << 1) ^ if crc >> 31 == 1 { POLYNOMIAL } else { 0 };
            bit += 1;
        }
        #[allow(clippy::indexing_slicing)] // the loop's bound is the table's, and it runs at compile time
        {
            table[index as usize] = crc;
        }
        index += 1;
    }
    table
}

/// A checksum and a count in the making.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cksum {
    crc: u32,
    /// Bytes so far.
    pub length: u64,
}

impl Cksum {
    /// Takes more bytes in.
    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.crc = bytes.iter().fold(self.crc, |crc, &byte| step(crc, byte));
        self.length = self.length.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
    }

    /// The number that `cksum` prints.
    pub(super) fn value(&self) -> u32 {
        let (mut crc, mut length) = (self.crc, self.length);
        while length > 0 {
            let [low, ..] = length.to_le_bytes();
            crc = step(crc, low);
            length >>= 8;
        }
        !crc
    }
}

fn step(crc: u32, byte: u8) -> u32 {
    let [high, ..] = crc.to_be_bytes();
    (crc << 8) ^ TABLE.get(usize::from(high ^ byte)).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::Cksum;

    /// What `cksum` of coreutils printed.
    #[test]
    fn it_is_what_cksum_prints() {
        for (bytes, want) in [
            (&b""[..], 4_294_967_295),
            (b"hello\n", 3_015_617_425),
            (b"123456789", 930_766_865),
            (&[0u8; 1000], 2_610_763_910),
        ] {
            let mut sum = Cksum::default();
            sum.update(bytes);
            assert_eq!(sum.value(), want, "{bytes:?}");
        }
    }

    #[test]
    fn it_does_not_matter_where_the_bytes_are_torn() {
        let bytes: Vec<u8> = (0..=255).collect();
        let mut whole = Cksum::default();
        whole.update(&bytes);
        for cut in 0..bytes.len() {
            let mut torn = Cksum::default();
            torn.update(&bytes[..cut]);
            torn.update(&bytes[cut..]);
            assert_eq!(torn, whole);
        }
    }
}
