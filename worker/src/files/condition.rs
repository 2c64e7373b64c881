//! Conditional requests (RFC 9110, section 13): whether a client has, or still means, the file as it is.
//!
//! Conditions are judged in the order of section 13.2.2. A date that cannot be read is no condition.
//! Does no I/O.

use std::time::{Duration, SystemTime};

/// For this long after a file's last change its tag is weak: a second change may fall into the same tick of
/// the file system's clock, and would not show in the tag (RFC 9110, section 8.8.1).
const SETTLING: Duration = Duration::from_millis(100);
/// The same for file systems that know no fractions of a second.
const SETTLING_COARSE: Duration = Duration::from_secs(2);

/// What a file is told apart by from what it was before.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Validators {
    /// The entity tag as it stands in a header, quotes and `W/` included.
    pub etag: String,
    /// Last change in whole seconds, as HTTP has them; never in the future (RFC 9110, section 8.8.2.1).
    pub modified: SystemTime,
}

impl Validators {
    /// Of a file last changed at `modified`, of `size` bytes, with inode number `inode`, looked at now.
    pub(super) fn new(modified: SystemTime, size: u64, inode: u64, now: SystemTime) -> Validators {
        let since_epoch = modified.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let settling = if since_epoch.subsec_nanos() == 0 { SETTLING_COARSE } else { SETTLING };
        let weak = now.duration_since(modified).is_ok_and(|age| age < settling);
        let etag = format!(
            "{}\"{:x}-{:x}-{size:x}-{inode:x}\"",
            if weak { "W/" } else { "" },
            since_epoch.as_secs(),
            since_epoch.subsec_nanos(),
        );
        let seconds = Duration::from_secs(since_epoch.as_secs());
        Validators { etag, modified: (SystemTime::UNIX_EPOCH + seconds).min(now) }
    }
}

/// What the conditions of a request come to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Answer as if there were none.
    Holds,
    /// 304: the client has it.
    NotModified,
    /// 412: it is not what the client means.
    Failed,
}

/// Judges a GET or HEAD whose headers `header` looks up.
pub(super) fn judge<'a>(header: &dyn Fn(&str) -> Option<&'a [u8]>, validators: &Validators) -> Verdict {
    if let Some(tags) = header("if-match") {
        if !matches(tags, &validators.etag, strongly_equal) {
            return Verdict::Failed;
        }
    } else if header("if-unmodified-since").and_then(date).is_some_and(|date| validators.modified > date) {
        return Verdict::Failed;
    }
    let unchanged = if let Some(tags) = header("if-none-match") {
        matches(tags, &validators.etag, weakly_equal)
    } else {
        header("if-modified-since").and_then(date).is_some_and(|date| validators.modified <= date)
    };
    if unchanged { Verdict::NotModified } else { Verdict::Holds }
}

/// Whether a Range header counts, by the If-Range header (section 13.1.5): a strong tag that is equal, or the
/// very date of Last-Modified.
pub(super) fn range_counts(if_range: Option<&[u8]>, validators: &Validators) -> bool {
    match if_range {
        None => true,
        Some(value) if value.starts_with(b"\"") || value.starts_with(b"W/") => {
            strongly_equal(value, validators.etag.as_bytes())
        }
        // A date is a strong validator only where the tag is one too: nothing changed since within its second.
        Some(value) => date(value) == Some(validators.modified) && !validators.etag.starts_with("W/"),
    }
}

fn date(value: &[u8]) -> Option<SystemTime> {
    httpdate::parse_http_date(std::str::from_utf8(value).ok()?).ok()
}

/// Whether `*` or one of the tags of a list is `own`, as `equal` compares.
fn matches(list: &[u8], own: &str, equal: fn(&[u8], &[u8]) -> bool) -> bool {
    list.trim_ascii() == b"*" || Tags(list).any(|tag| equal(tag, own.as_bytes()))
}

fn strongly_equal(a: &[u8], b: &[u8]) -> bool {
    a == b && !a.starts_with(b"W/")
}

fn weakly_equal(a: &[u8], b: &[u8]) -> bool {
    a.strip_prefix(b"W/").unwrap_or(a) == b.strip_prefix(b"W/").unwrap_or(b)
}

/// The entity tags of a list, quotes and `W/` included; ends at the first byte that fits no tag.
struct Tags<'a>(&'a [u8]);

impl<'a> Iterator for Tags<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let start = self.0.iter().position(|byte| !b", \t".contains(byte))?;
        let list = self.0.get(start..)?;
        let quote = if list.starts_with(b"W/") { 2 } else { 0 };
        if list.get(quote) != Some(&b'"') {
            return None;
        }
        let inside = list.get(quote + 1..)?;
        let end = quote + 2 + inside.iter().position(|&byte| byte == b'"')?;
        let (tag, rest) = list.split_at_checked(end)?;
        self.0 = rest;
        Some(tag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const EARLIER: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
    const LATER: &str = "Sunday, 06-Nov-94 08:49:38 GMT";

    fn validators(etag: &str) -> Validators {
        Validators { etag: etag.into(), modified: httpdate::parse_http_date(DATE).unwrap() }
    }

    fn verdict(headers: &[(&str, &str)]) -> Verdict {
        verdict_on("\"a\"", headers)
    }

    fn verdict_on(etag: &str, headers: &[(&str, &str)]) -> Verdict {
        let header = |name: &str| headers.iter().find(|(n, _)| *n == name).map(|(_, v)| v.as_bytes());
        judge(&header, &validators(etag))
    }

    #[test]
    fn if_none_match_compares_weakly_and_knows_lists_and_the_star() {
        for list in
            ["\"a\"", "W/\"a\"", "\"x\", \"a\"", "\"x\",W/\"a\"", ", ,\"a\"", "*", " * ", "\"x,\\\", \"a\""]
        {
            assert_eq!(verdict(&[("if-none-match", list)]), Verdict::NotModified, "{list}");
        }
        for list in ["\"A\"", "a", "\"x\"", "", "\"a", "\"x\" y \"a\"", "w/\"a\"", "\"*\""] {
            assert_eq!(verdict(&[("if-none-match", list)]), Verdict::Holds, "{list}");
        }
        assert_eq!(verdict_on("W/\"a\"", &[("if-none-match", "\"a\"")]), Verdict::NotModified);
    }

    #[test]
    fn if_none_match_outranks_if_modified_since() {
        assert_eq!(verdict(&[("if-none-match", "\"x\""), ("if-modified-since", DATE)]), Verdict::Holds);
    }

    #[test]
    fn if_modified_since_takes_each_form_of_date_and_ignores_what_is_none() {
        assert_eq!(verdict(&[("if-modified-since", DATE)]), Verdict::NotModified);
        assert_eq!(verdict(&[("if-modified-since", LATER)]), Verdict::NotModified);
        assert_eq!(verdict(&[("if-modified-since", "Sun Nov  6 08:49:37 1994")]), Verdict::NotModified);
        for date in [EARLIER, "", "yesterday", "Sun, 06 Nov 1994", "\u{fffd}"] {
            assert_eq!(verdict(&[("if-modified-since", date)]), Verdict::Holds, "{date}");
        }
    }

    #[test]
    fn if_match_compares_strongly() {
        assert_eq!(verdict(&[("if-match", "\"x\", \"a\"")]), Verdict::Holds);
        assert_eq!(verdict(&[("if-match", "*")]), Verdict::Holds);
        assert_eq!(verdict(&[("if-match", "\"x\"")]), Verdict::Failed);
        assert_eq!(verdict(&[("if-match", "W/\"a\"")]), Verdict::Failed);
        assert_eq!(verdict_on("W/\"a\"", &[("if-match", "W/\"a\"")]), Verdict::Failed);
    }

    #[test]
    fn if_unmodified_since_fails_for_a_file_changed_later_unless_if_match_speaks() {
        assert_eq!(verdict(&[("if-unmodified-since", EARLIER)]), Verdict::Failed);
        assert_eq!(verdict(&[("if-unmodified-since", DATE)]), Verdict::Holds);
        assert_eq!(verdict(&[("if-unmodified-since", "never")]), Verdict::Holds);
        assert_eq!(verdict(&[("if-unmodified-since", EARLIER), ("if-match", "\"a\"")]), Verdict::Holds);
    }

    #[test]
    fn a_failed_precondition_outranks_not_modified() {
        assert_eq!(verdict(&[("if-match", "\"x\""), ("if-none-match", "\"a\"")]), Verdict::Failed);
        assert_eq!(verdict(&[("if-match", "\"a\""), ("if-none-match", "\"a\"")]), Verdict::NotModified);
    }

    #[test]
    fn if_range_takes_a_strong_tag_or_the_exact_date() {
        let (strong, weak) = (validators("\"a\""), validators("W/\"a\""));
        assert!(range_counts(None, &weak));
        assert!(range_counts(Some(b"\"a\""), &strong));
        assert!(range_counts(Some(DATE.as_bytes()), &strong));
        for value in [&b"\"x\""[..], b"W/\"a\"", EARLIER.as_bytes(), LATER.as_bytes(), b"", b"x"] {
            assert!(!range_counts(Some(value), &strong), "{value:?}");
        }
        for value in [&b"\"a\""[..], b"W/\"a\"", DATE.as_bytes()] {
            assert!(!range_counts(Some(value), &weak), "{value:?}");
        }
    }

    #[test]
    fn a_tag_changes_with_time_size_and_inode() {
        let at = |nanos| SystemTime::UNIX_EPOCH + Duration::from_nanos(nanos);
        let now = at(u64::MAX);
        let base = Validators::new(at(5_000_000_001), 7, 9, now);
        assert_eq!(base.etag, "\"5-1-7-9\"");
        for other in
            [(5_000_000_002, 7, 9), (6_000_000_001, 7, 9), (5_000_000_001, 8, 9), (5_000_000_001, 7, 8)]
        {
            assert_ne!(Validators::new(at(other.0), other.1, other.2, now).etag, base.etag);
        }
    }

    #[test]
    fn a_tag_is_weak_until_a_second_change_would_show() {
        let modified = SystemTime::UNIX_EPOCH + Duration::new(1000, 1);
        let weak = |modified, now| Validators::new(modified, 1, 1, now).etag.starts_with("W/");
        assert!(weak(modified, modified));
        assert!(weak(modified, modified + SETTLING - Duration::from_nanos(1)));
        assert!(!weak(modified, modified + SETTLING));
        let coarse = SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
        assert!(weak(coarse, coarse + SETTLING));
        assert!(!weak(coarse, coarse + SETTLING_COARSE));
    }

    #[test]
    fn a_file_from_the_future_was_modified_now_at_the_latest() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
        assert_eq!(Validators::new(now + Duration::from_secs(5), 1, 1, now).modified, now);
        let before_epoch = SystemTime::UNIX_EPOCH - Duration::from_secs(5);
        assert_eq!(Validators::new(before_epoch, 1, 1, now).modified, SystemTime::UNIX_EPOCH);
    }
}
