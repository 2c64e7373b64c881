//! Values with units: times, sizes, modes.
//!
//! An error is the end of a sentence that begins with the key's name.

use std::time::Duration;

const SECOND: u64 = 1000;
const TIMES: [(&str, u64); 5] =
    [("ms", 1), ("s", SECOND), ("m", 60 * SECOND), ("h", 3600 * SECOND), ("d", 24 * 3600 * SECOND)];
const SIZES: [(&str, u64); 11] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1000),
    ("KB", 1000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("bytes", 1),
    ("B", 1),
];

/// A time such as `30s`, `250ms`, `1m30s`.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let mut rest = text.trim();
    if !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!("needs a unit: \"{rest}\" may be \"{rest}s\" or \"{rest}ms\""));
    }
    let mut all: u64 = 0;
    let wrong = || format!("must be a time such as \"30s\", \"250ms\" or \"1m30s\", not \"{text}\"");
    if rest.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let (number, after) = rest.split_at(digits);
        let end = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, left) = after.split_at(end);
        let number: u64 = number.parse().map_err(|_| wrong())?;
        let Some((_, factor)) = TIMES.iter().find(|(name, _)| *name == unit.trim()) else {
            return Err(format!("has no unit \"{}\"; units of time are ms, s, m, h, d", unit.trim()));
        };
        all = number.checked_mul(*factor).and_then(|n| all.checked_add(n)).ok_or_else(wrong)?;
        rest = left;
    }
    // Sums of instants must not overflow; a hundred years are for ever.
    if all > 36_500 * 24 * 3600 * SECOND {
        return Err(format!("must be under a hundred years, not \"{text}\""));
    }
    Ok(Duration::from_millis(all))
}

/// A size such as `256MiB`, in bytes; `0` needs no unit.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let wrong = || format!("must be a size such as \"256KiB\" or \"64MiB\", not \"{text}\"");
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let unit = unit.trim();
    if unit.is_empty() {
        let needs = format!("needs a unit: \"{text}\" may be \"{text}KiB\" or \"{text}MiB\"");
        return if number == 0 { Ok(0) } else { Err(needs) };
    }
    let Some((_, factor)) = SIZES.iter().find(|(name, _)| *name == unit) else {
        return Err(format!(
            "has no unit \"{unit}\"; units of size are B, KiB, MiB, GiB, TiB, kB, MB, GB, TB"
        ));
    };
    number.checked_mul(*factor).ok_or_else(wrong)
}

/// A file mode or mask such as `0660`: three or four octal digits.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn mode(text: &str) -> Result<u32, String> {
    let octal = matches!(text.len(), 3 | 4) && text.bytes().all(|b| (b'0'..=b'7').contains(&b));
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| octal && *mode <= 0o777);
    mode.ok_or_else(|| format!("must be octal such as \"0660\", not \"{text}\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units_and_add_up() {
        for (text, ms) in [
            ("30s", 30_000),
            ("250ms", 250),
            ("1m30s", 90_000),
            ("2h", 7_200_000),
            ("1d", 86_400_000),
            ("0s", 0),
            ("1m 5s", 65_000),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "s", "-1s", "1.5s", "30", "30x", "30S", "s30", "99999999999999999999s", "9999999d"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_have_units() {
        for (text, bytes) in
            [("0", 0), ("1B", 1), ("256KiB", 262_144), ("64 MiB", 67_108_864), ("2GB", 2_000_000_000)]
        {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in ["", "64", "64M", "64mib", "-1B", "1.5GiB", "MiB", "99999999999TiB"] {
            assert!(size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn modes_are_octal() {
        assert_eq!((mode("0660"), mode("027"), mode("0000")), (Ok(0o660), Ok(0o27), Ok(0)));
        for text in ["", "0888", "660x", "00660", "7777", "+66", "0o66"] {
            assert!(mode(text).is_err(), "{text}");
        }
    }
}
