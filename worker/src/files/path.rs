//! From a routed request's path to a path beneath the root, and to the redirect that a directory needs.
//!
//! Always holds: a [`Wanted`] has no empty, `.` or `..` segment and no NUL; a redirect's location begins with
//! exactly one `/`, is built of the request's own path alone (never of Host), and is pure visible ASCII.
//! Does no I/O. It is not what keeps a request inside the root: that is the kernel's part, in `beneath`.

/// What a request asks for, relative to the root.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    /// Segments joined by `/`; empty for the root itself.
    pub relative: Vec<u8>,
    /// The path ended with a `/`: a directory is meant.
    pub directory: bool,
}

impl Wanted {
    /// Reads `path_info`, percent-decoded. `None` where it names what is not served: a NUL, a way up, or,
    /// unless `dot_files`, a name that begins with a dot. `.well-known` (RFC 8615) is served, as first segment.
    pub(super) fn from_path_info(path_info: &[u8], dot_files: bool) -> Option<Wanted> {
        let mut relative = Vec::with_capacity(path_info.len());
        let directory = path_info.last() == Some(&b'/');
        if path_info.contains(&0) {
            return None;
        }
        for segment in path_info.split(|&byte| byte == b'/').filter(|s| !matches!(*s, b"" | b".")) {
            let well_known = relative.is_empty() && segment == b".well-known";
            if segment == b".." || (segment.first() == Some(&b'.') && !dot_files && !well_known) {
                return None;
            }
            if !relative.is_empty() {
                relative.push(b'/');
            }
            relative.extend_from_slice(segment);
        }
        Some(Wanted { relative, directory })
    }

    /// The name `name` in this directory.
    pub(super) fn join(&self, name: &str) -> Vec<u8> {
        let mut path = Vec::with_capacity(self.relative.len() + 1 + name.len());
        path.extend_from_slice(&self.relative);
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name.as_bytes());
        path
    }

    /// Where a client should ask for this directory: `mount` and the path with a `/` after it, and the query.
    pub(super) fn location(&self, mount: &[u8], query: &[u8]) -> Vec<u8> {
        let mut location = Vec::with_capacity(mount.len() + self.relative.len() + query.len() + 8);
        for segment in mount.split(|&b| b == b'/').chain(self.relative.split(|&b| b == b'/')) {
            if !segment.is_empty() {
                location.push(b'/');
                percent_encode(segment, &mut location);
            }
        }
        location.push(b'/');
        if !query.is_empty() {
            location.push(b'?');
            for &byte in query {
                if byte.is_ascii_graphic() {
                    location.push(byte)
                } else {
                    percent_encode(&[byte], &mut location)
                }
            }
        }
        location
    }
}

/// Appends `segment`, each byte that is not unreserved (RFC 3986, section 2.3) as `%XX`.
pub(super) fn percent_encode(segment: &[u8], out: &mut Vec<u8>) {
    for &byte in segment {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(byte);
        } else {
            out.extend_from_slice(format!("%{byte:02X}").as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn relative(path: &[u8]) -> Option<Vec<u8>> {
        Wanted::from_path_info(path, false).map(|wanted| wanted.relative)
    }

    #[test]
    fn slashes_and_dot_segments_are_folded() {
        assert_eq!(relative(b"").unwrap(), b"");
        assert_eq!(relative(b"/").unwrap(), b"");
        assert_eq!(relative(b"//a///b.txt").unwrap(), b"a/b.txt");
        assert_eq!(relative(b"/./a/./b/").unwrap(), b"a/b");
        assert!(Wanted::from_path_info(b"/a/", false).unwrap().directory);
        assert!(!Wanted::from_path_info(b"/a", false).unwrap().directory);
    }

    #[test]
    fn a_way_up_and_a_nul_name_nothing() {
        for path in [&b"/.."[..], b"/a/../b", b"..", b"/a/..", b"/a\0.txt", b"/\0"] {
            assert_eq!(Wanted::from_path_info(path, true), None, "{path:?}");
        }
        assert_eq!(relative(b"/a..b/c..").unwrap(), b"a..b/c..");
        assert_eq!(Wanted::from_path_info(b"/...", true).unwrap().relative, b"...");
    }

    #[test]
    fn dot_files_are_hidden_but_for_well_known_at_the_front() {
        for hidden in [&b"/.git/config"[..], b"/a/.htpasswd", b"/.env", b"/a/.well-known/x", b"/.well-known2"]
        {
            assert_eq!(relative(hidden), None, "{hidden:?}");
            assert!(Wanted::from_path_info(hidden, true).is_some());
        }
        assert_eq!(relative(b"/.well-known/acme").unwrap(), b".well-known/acme");
        assert_eq!(relative(b"/.well-known/.x"), None);
    }

    #[test]
    fn a_redirect_keeps_the_mount_and_the_query() {
        let wanted = Wanted::from_path_info(b"/a b/\xc3\xa4", false).unwrap();
        assert_eq!(wanted.location(b"/static", b"x=1&y=%2F"), b"/static/a%20b/%C3%A4/?x=1&y=%2F");
        assert_eq!(Wanted::from_path_info(b"", false).unwrap().location(b"/static", b""), b"/static/");
    }

    #[test]
    fn a_redirect_never_leaves_the_site_or_splits_the_head() {
        for (path, query, want) in [
            (&b"//evil.example"[..], &b""[..], &b"/evil.example/"[..]),
            (b"/\\evil.example", b"", b"/%5Cevil.example/"),
            (b"/a\r\nSet-Cookie: x", b"", b"/a%0D%0ASet-Cookie%3A%20x/"),
            (b"/a", b"q\r\nX: y", b"/a/?q%0D%0AX:%20y"),
            (b"/\t/evil", b"", b"/%09/evil/"),
        ] {
            assert_eq!(Wanted::from_path_info(path, false).unwrap().location(b"", query), want, "{path:?}");
        }
        assert_eq!(Wanted::from_path_info(b"/x", false).unwrap().location(b"//evil", b""), b"/evil/x/");
    }
}
