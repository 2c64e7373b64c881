//! A worker's page of counters: shared memory that the worker alone writes and the supervisor alone reads.
//!
//! The page is a memfd of [`LEN`] bytes, sealed against growing and shrinking. The worker maps it; the
//! supervisor copies it with `pread` and hands the copy to [`Snapshot::from_bytes`], so that nothing a worker
//! writes there can make the supervisor fault: every number is a claim, text is bounded and checked.
//!
//! Layout: little-endian 64-bit words, see the constants. Times are nanoseconds of CLOCK_MONOTONIC.
//! Histograms are log-linear: [`bucket`] says which bucket holds a time.

/// Bytes of a page.
pub const LEN: usize = 8192;
/// Word: layout version, [`VERSION`].
pub const WORD_VERSION: usize = 0;
/// Word: 0 booting, 1 idle, 2 busy, 3 retiring.
pub const WORD_STATE: usize = 1;
/// Word: requests answered.
pub const WORD_REQUESTS: usize = 2;
/// Word: of them, answers with a status of 500 and more.
pub const WORD_ERRORS: usize = 3;
/// Word: connections held now.
pub const WORD_CONNECTIONS: usize = 4;
/// Word: requests answered with 504 at their timeout.
pub const WORD_TIMEOUTS: usize = 5;
/// Word: requests refused with 503 after `queue_timeout`.
pub const WORD_REJECTED: usize = 6;
/// Word: private memory in bytes at the last look, the worker's and its children's.
pub const WORD_MEMORY: usize = 7;
/// Word: the largest that [`WORD_MEMORY`] has been.
pub const WORD_MEMORY_PEAK: usize = 8;
/// Word: when the request in hand began; 0 where none is.
pub const WORD_BUSY_SINCE: usize = 9;
/// Word: bytes of request line at [`REQUEST_AT`].
pub const WORD_REQUEST_LEN: usize = 10;
/// Word: requests served again after a program died in them (`fastcgi`).
pub const WORD_RETRIED: usize = 11;
/// Word: connections given to the hand-over queue.
pub const WORD_HANDED: usize = 12;
/// Word: not 0 where the worker has been told to leave.
pub const WORD_LEAVING: usize = 13;
/// First word of the latency histogram.
pub const WORD_LATENCY: usize = 32;
/// First word of the histogram of waits for a worker.
pub const WORD_QUEUE: usize = WORD_LATENCY + BUCKETS;
/// Buckets of a histogram.
pub const BUCKETS: usize = 256;
/// Byte at which the last request line (`GET /path`) stands, cut to [`REQUEST_MAX`].
pub const REQUEST_AT: usize = 7168;
/// Bytes of request line kept.
pub const REQUEST_MAX: usize = 1000;
/// Version of this layout.
pub const VERSION: u64 = 1;

/// The bucket of a time in microseconds: 8 buckets an octave (12.5 % wide), from 0 µs to about 70 minutes.
#[must_use]
pub fn bucket(us: u64) -> usize {
    let us = us.min(u64::from(u32::MAX));
    if us < 8 {
        return usize::try_from(us).unwrap_or(0);
    }
    let octave = 63 - us.leading_zeros() as usize;
    let step = usize::try_from(us >> (octave - 3)).unwrap_or(0) & 7;
    ((octave - 2) * 8 + step).min(BUCKETS - 1)
}

/// The smallest time in microseconds that falls into `bucket`.
#[must_use]
pub fn bucket_floor(bucket: usize) -> u64 {
    if bucket < 8 {
        return bucket as u64;
    }
    let octave = bucket / 8 + 2;
    (8 + (bucket % 8) as u64) << (octave - 3)
}

/// What a worker does, by its own account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Not ready yet.
    Booting,
    /// Waits for a request.
    Idle,
    /// Has a request in hand.
    Busy,
    /// Takes no new request.
    Retiring,
}

/// A copy of a page at one moment.
#[derive(Debug, Clone)]
pub struct Snapshot {
    words: Vec<u64>,
    request: String,
}

impl Snapshot {
    /// Reads a copy of a page; `None` where it is too short or of another version.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Snapshot> {
        if bytes.len() < LEN {
            return None;
        }
        let (chunks, _) = bytes.as_chunks::<8>();
        let words: Vec<u64> = chunks.iter().take(REQUEST_AT / 8).map(|w| u64::from_le_bytes(*w)).collect();
        let len = usize::try_from(*words.get(WORD_REQUEST_LEN)?).ok()?.min(REQUEST_MAX);
        let request = String::from_utf8_lossy(bytes.get(REQUEST_AT..REQUEST_AT + len)?)
            .chars()
            .map(|c| if c.is_control() { '?' } else { c })
            .collect();
        (*words.first()? == VERSION).then_some(Snapshot { words, request })
    }

    /// One of the `WORD_…` counters; 0 where there is no such word.
    #[must_use]
    pub fn word(&self, word: usize) -> u64 {
        self.words.get(word).copied().unwrap_or(0)
    }

    /// What the worker does.
    #[must_use]
    pub fn state(&self) -> State {
        match self.word(WORD_STATE) {
            1 => State::Idle,
            2 => State::Busy,
            3 => State::Retiring,
            _ => State::Booting,
        }
    }

    /// The request in hand or, between requests, the last one: `GET /path`, control characters replaced.
    #[must_use]
    pub fn request(&self) -> &str {
        &self.request
    }

    /// The buckets of the histogram whose first word is `first` ([`WORD_LATENCY`] or [`WORD_QUEUE`]).
    #[must_use]
    pub fn histogram(&self, first: usize) -> &[u64] {
        self.words.get(first..first + BUCKETS).unwrap_or(&[])
    }
}

/// The time in microseconds below which the fraction `q` (0 to 1) of all values lies; 0 without values.
#[must_use]
pub fn percentile(buckets: &[u64], q: f64) -> u64 {
    let all: u64 = buckets.iter().fold(0, |sum, n| sum.saturating_add(*n));
    let mut run: u64 = 0;
    for (bucket, n) in buckets.iter().enumerate() {
        run = run.saturating_add(*n);
        if run > 0 && run as f64 >= q * all as f64 {
            return bucket_floor(bucket);
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_ordered_and_their_floors_fall_into_them() {
        let mut last = 0;
        for us in 0..2_000_000 {
            let b = bucket(us);
            assert!(b == last || b == last + 1, "{us}");
            assert!(bucket_floor(b) <= us);
            last = b;
        }
        for b in 0..=bucket(u64::MAX) {
            assert_eq!(bucket(bucket_floor(b)), b);
        }
        assert_eq!(bucket(u64::MAX), bucket(u64::from(u32::MAX)));
    }

    #[test]
    fn a_lying_page_is_bounded() {
        let mut page = vec![0xff; LEN];
        assert!(Snapshot::from_bytes(&page).is_none());
        page[..8].copy_from_slice(&VERSION.to_le_bytes());
        let snapshot = Snapshot::from_bytes(&page).unwrap();
        assert_eq!(snapshot.request().chars().count(), REQUEST_MAX);
        assert_eq!(snapshot.state(), State::Booting);
        assert_eq!(percentile(snapshot.histogram(WORD_LATENCY), 2.0), 0);
        assert!(Snapshot::from_bytes(&page[1..]).is_none());
    }

    #[test]
    fn a_percentile_is_the_floor_of_its_bucket() {
        let mut buckets = [0; BUCKETS];
        buckets[bucket(100)] = 99;
        buckets[bucket(5000)] = 1;
        assert_eq!(percentile(&buckets, 0.5), bucket_floor(bucket(100)));
        assert_eq!(percentile(&buckets, 0.999), bucket_floor(bucket(5000)));
        assert_eq!(percentile(&[], 0.5), 0);
    }
}
