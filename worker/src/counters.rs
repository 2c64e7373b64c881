//! A worker's own page of counters, as it writes it; see [`crate::page`] for what stands where.
//!
//! Always holds: no lock, no system call; only this process writes, so a load and a store suffice.

use crate::{page, sys::Page};
use std::{
    io,
    os::fd::OwnedFd,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

/// See the module.
pub(crate) struct Counters {
    page: Page,
}

/// CLOCK_MONOTONIC in nanoseconds.
#[inline]
pub(crate) fn now() -> u64 {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).map_or(0, |t| {
        u64::try_from(t.tv_sec()).unwrap_or(0) * 1_000_000_000 + u64::try_from(t.tv_nsec()).unwrap_or(0)
    })
}

impl Counters {
    /// Counters on the page behind `fd`, or on a private one.
    ///
    /// # Errors
    /// The page cannot be mapped.
    pub(crate) fn open(fd: Option<&OwnedFd>) -> io::Result<Counters> {
        let counters = Counters { page: Page::map(fd)? };
        counters.set(page::WORD_VERSION, page::VERSION);
        Ok(counters)
    }

    /// Sets a word.
    #[inline]
    pub(crate) fn set(&self, word: usize, value: u64) {
        self.page.word(word).store(value, Relaxed);
    }

    /// Reads a word.
    #[inline]
    pub(crate) fn get(&self, word: usize) -> u64 {
        self.page.word(word).load(Relaxed)
    }

    /// Adds to a word that one thread alone writes.
    #[inline]
    pub(crate) fn add(&self, word: usize, n: u64) {
        let word: &AtomicU64 = self.page.word(word);
        word.store(word.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// Adds to a word that main thread and keeper both write.
    pub(crate) fn add_shared(&self, word: usize, n: u64) {
        self.page.word(word).fetch_add(n, Relaxed);
    }

    /// A request begins at `now` after it waited `waited` nanoseconds for this worker.
    #[inline]
    pub(crate) fn begin(&self, now: u64, waited: u64, method: &[u8], uri: &[u8]) {
        self.add(page::WORD_QUEUE + page::bucket(waited / 1000), 1);
        self.write_request(method, uri);
        self.set(page::WORD_BUSY_SINCE, now);
        self.set(page::WORD_STATE, 2);
    }

    /// The request that began at `began` ended at `now` with this status.
    #[inline]
    pub(crate) fn end(&self, began: u64, now: u64, status: u16) {
        self.add(page::WORD_LATENCY + page::bucket(now.saturating_sub(began) / 1000), 1);
        self.add(page::WORD_REQUESTS, 1);
        if status >= 500 {
            self.add(page::WORD_ERRORS, 1);
        }
        self.set(page::WORD_BUSY_SINCE, 0);
        let leaves = self.get(page::WORD_LEAVING);
        self.set(page::WORD_STATE, if leaves == 0 { 1 } else { 3 });
    }

    /// Private memory at this moment.
    pub(crate) fn memory(&self, bytes: u64) {
        self.set(page::WORD_MEMORY, bytes);
        self.set(page::WORD_MEMORY_PEAK, bytes.max(self.get(page::WORD_MEMORY_PEAK)));
    }

    /// `METHOD uri`, cut, eight bytes at a time.
    fn write_request(&self, method: &[u8], uri: &[u8]) {
        let method = method.get(..32).unwrap_or(method);
        let uri = uri.get(..page::REQUEST_MAX - 33).unwrap_or(uri);
        // Most are short, and zeros cost time, too.
        if method.len() + uri.len() < 64 {
            self.write_line::<64>(method, uri);
        } else {
            self.write_line::<{ page::REQUEST_MAX }>(method, uri);
        }
    }

    #[inline]
    fn write_line<const MAX: usize>(&self, method: &[u8], uri: &[u8]) {
        // Put together first: byte by byte into words costs three times as much.
        let mut line = [0; MAX];
        let mut rest = &mut line[..];
        for part in [method, b" ", uri] {
            let Some((place, behind)) = rest.split_at_mut_checked(part.len()) else { break };
            place.copy_from_slice(part);
            rest = behind;
        }
        let len = method.len() + 1 + uri.len();
        let (words, _) = line.as_chunks::<8>();
        for (at, word) in words.iter().take(len.div_ceil(8)).enumerate() {
            self.set(page::REQUEST_AT / 8 + at, u64::from_le_bytes(*word));
        }
        self.set(page::WORD_REQUEST_LEN, len as u64);
    }

    /// The request line, for reports.
    pub(crate) fn request(&self) -> String {
        let len = usize::try_from(self.get(page::WORD_REQUEST_LEN)).unwrap_or(0).min(page::REQUEST_MAX);
        let bytes: Vec<u8> =
            (0..len.div_ceil(8)).flat_map(|at| self.get(page::REQUEST_AT / 8 + at).to_le_bytes()).collect();
        crate::request::printable(bytes.get(..len).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_counted_and_its_line_kept() {
        let counters = Counters::open(None).unwrap();
        counters.begin(5_000_000, 1_000, b"POST", b"/some/where?x=1");
        assert_eq!(counters.request(), "POST /some/where?x=1");
        assert_eq!(counters.get(page::WORD_STATE), 2);
        counters.end(5_000_000, 9_000_000, 503);
        assert_eq!(counters.get(page::WORD_REQUESTS), 1);
        assert_eq!(counters.get(page::WORD_ERRORS), 1);
        assert_eq!(counters.get(page::WORD_LATENCY + page::bucket(4000)), 1);
        counters.begin(1, 0, &[b'M'; 100], &[b'u'; 5000]);
        assert_eq!(counters.request().len(), page::REQUEST_MAX);
    }
}
