//! The `Date` field (RFC 9110, section 6.6.1), made once a second.

use std::time::{Duration, SystemTime};

/// The text of the present second.
pub(crate) struct Date {
    text: String,
    /// CLOCK_MONOTONIC in nanoseconds at which the text is old.
    until: u64,
}

impl Date {
    /// No text yet.
    pub(crate) fn new() -> Date {
        Date { text: String::new(), until: 0 }
    }

    /// The text at `now`, in nanoseconds of CLOCK_MONOTONIC.
    #[inline]
    pub(crate) fn at(&mut self, now: u64) -> &str {
        if now >= self.until {
            let wall = SystemTime::now();
            let part = wall.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO).subsec_nanos();
            self.text = httpdate::fmt_http_date(wall);
            self.until = now + 1_000_000_000 - u64::from(part);
        }
        &self.text
    }
}
