//! The path of a request: percent-decoded once, dot segments removed once (RFC 3986, sections 2.1 and 5.2.4).
//!
//! Always holds: the result begins with `/`, has no `.` or `..` segment and no NUL; a path that would leave the
//! root is refused, not clamped.

/// A path that is none.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Broken;

/// Writes the decoded path of a request target (`/a%20b?c`) to `out`.
pub(crate) fn of_target(target: &[u8], out: &mut Vec<u8>) -> Result<(), Broken> {
    out.clear();
    let raw = target.split(|b| matches!(b, b'?' | b'#')).next().unwrap_or_default();
    let mut rest = raw;
    while let [first, after @ ..] = rest {
        rest = after;
        if *first == b'%' {
            let [high, low, after @ ..] = rest else { return Err(Broken) };
            rest = after;
            let digit = |b: &u8| char::from(*b).to_digit(16).and_then(|d| u8::try_from(d).ok()).ok_or(Broken);
            out.push(digit(high)? << 4 | digit(low)?);
        } else {
            out.push(*first);
        }
    }
    remove_dots(out)
}

/// Writes the path that a web server has decoded already, in two parts (RFC 3875, sections 4.1.5 and 4.1.13).
pub(crate) fn of_variables(script_name: &[u8], path_info: &[u8], out: &mut Vec<u8>) -> Result<(), Broken> {
    out.clear();
    out.extend_from_slice(script_name);
    out.extend_from_slice(path_info);
    remove_dots(out)
}

fn remove_dots(path: &mut Vec<u8>) -> Result<(), Broken> {
    if path.first() != Some(&b'/') {
        path.insert(0, b'/');
    }
    if path.contains(&0) {
        return Err(Broken);
    }
    if !path.windows(2).any(|w| w == b"/.") {
        return Ok(());
    }
    let mut clean: Vec<u8> = Vec::with_capacity(path.len());
    let mut segments = path.split(|b| *b == b'/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        match segment {
            b"." | b".." => {
                if segment == b".." {
                    let up = clean.iter().rposition(|b| *b == b'/').ok_or(Broken)?;
                    clean.truncate(up);
                }
                if segments.peek().is_none() {
                    clean.push(b'/');
                }
            }
            _ => {
                clean.push(b'/');
                clean.extend_from_slice(segment);
            }
        }
    }
    *path = clean;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(raw: &str) -> Result<String, Broken> {
        let mut out = Vec::new();
        of_target(raw.as_bytes(), &mut out).map(|()| String::from_utf8_lossy(&out).into_owned())
    }

    #[test]
    fn a_path_is_decoded_once() {
        assert_eq!(target("/a%20b/%C3%A4?c=%41").unwrap(), "/a b/ä");
        assert_eq!(target("/%2541").unwrap(), "/%41");
        assert_eq!(target("/a//b/").unwrap(), "/a//b/");
        assert_eq!(target("").unwrap(), "/");
    }

    #[test]
    fn dot_segments_go_and_none_leaves_the_root() {
        for (raw, path) in [
            ("/a/./b", "/a/b"),
            ("/a/../b", "/b"),
            ("/a/b/..", "/a/"),
            ("/a/.", "/a/"),
            ("/.", "/"),
            ("/a/%2e%2E/b", "/b"),
            ("/a%2F..%2Fb", "/b"),
            ("/...", "/..."),
            ("/.well-known/x", "/.well-known/x"),
            ("/a/..b/.c", "/a/..b/.c"),
            ("/a//../b", "/a/b"),
        ] {
            assert_eq!(target(raw).as_deref(), Ok(path), "{raw}");
        }
        for raw in ["/..", "/../etc/passwd", "/a/../../b", "/%2e%2e/x", "/a/..%2f..%2fx"] {
            assert_eq!(target(raw), Err(Broken), "{raw}");
        }
    }

    #[test]
    fn what_is_no_path_is_refused() {
        for raw in ["/%", "/%4", "/%zz", "/a%00b", "/%+1"] {
            assert_eq!(target(raw), Err(Broken), "{raw}");
        }
    }

    #[test]
    fn the_two_parts_of_a_web_server_are_one_path() {
        let mut out = Vec::new();
        of_variables(b"/app", b"/a%20/../b", &mut out).unwrap();
        assert_eq!(out, b"/app/b");
        assert_eq!(of_variables(b"", b"/../x", &mut out), Err(Broken));
    }
}
