//! The environment of a script (RFC 3875, section 4.1), built from nothing: of the worker's own environment it
//! gets PATH alone.
//!
//! Always holds: no name is empty or holds `=` or NUL, no value holds NUL; each name stands once; HTTP_PROXY is
//! not there; what locates the script is what the runtime found, whatever was sent.
//! Does no I/O.

use super::script::Script;
use std::{
    ffi::{CString, OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::Path,
};

/// Set by the runtime, or by nobody.
const OURS: [&[u8]; 7] = [
    b"GATEWAY_INTERFACE",
    b"HTTP_PROXY",
    b"PATH",
    b"PATH_INFO",
    b"PATH_TRANSLATED",
    b"SCRIPT_FILENAME",
    b"SCRIPT_NAME",
];

/// What a script is given.
pub(super) struct Surroundings<'a> {
    /// The script and how the path splits at it.
    pub script: &'a Script,
    /// The app's root, for want of a DOCUMENT_ROOT.
    pub root: &'a Path,
    /// The worker's own PATH.
    pub path: Option<&'a OsStr>,
    /// Settings of the app; they win.
    pub env: &'a [(String, String)],
}

/// The whole environment of a script for a request with the meta-variables `sent`.
pub(super) fn variables<'p>(
    sent: impl Iterator<Item = (&'p [u8], &'p [u8])>,
    given: &Surroundings<'_>,
) -> Vec<CString> {
    let mut vars: Vec<(OsString, OsString)> = Vec::with_capacity(64);
    for (name, value) in sent.filter(|(name, value)| passes(name, value)) {
        vars.push((os(name), os(value)));
    }
    let missing = |vars: &[(OsString, OsString)], name: &str| !vars.iter().any(|(n, _)| n == name);
    let version = concat!("Hostler/", env!("CARGO_PKG_VERSION"));
    for (name, value) in [
        ("QUERY_STRING", OsStr::new("")), // must always be there (section 4.1.7)
        ("SERVER_PROTOCOL", OsStr::new("HTTP/1.1")),
        ("SERVER_SOFTWARE", OsStr::new(version)),
        ("REDIRECT_STATUS", OsStr::new("200")), // php-cgi runs for nobody who does not set it
        ("DOCUMENT_ROOT", given.root.as_os_str()),
    ] {
        if missing(&vars, name) {
            vars.push((name.into(), value.into()));
        }
    }
    let script = given.script;
    vars.push(("GATEWAY_INTERFACE".into(), "CGI/1.1".into()));
    vars.push(("SCRIPT_NAME".into(), os(&script.script_name)));
    vars.push(("SCRIPT_FILENAME".into(), script.file.clone().into()));
    vars.push(("PATH".into(), given.path.unwrap_or(OsStr::new("/usr/local/bin:/usr/bin:/bin")).into()));
    if !script.path_info.is_empty() {
        let root = vars.iter().find(|(name, _)| name == "DOCUMENT_ROOT").map(|(_, root)| root.as_bytes());
        let translated = [root.unwrap_or_default(), &script.path_info].concat();
        vars.push(("PATH_INFO".into(), os(&script.path_info)));
        vars.push(("PATH_TRANSLATED".into(), os(&translated)));
    }
    for (name, value) in given.env {
        vars.retain(|(n, _)| n != name.as_str());
        vars.push((name.into(), value.into()));
    }
    // What would not make a string of C is not there: see `passes`, and `Cgi::new` for the settings.
    let assigned = |(name, value): &(OsString, OsString)| [name.as_bytes(), b"=", value.as_bytes()].concat();
    vars.iter().filter_map(|var| CString::new(assigned(var)).ok()).collect()
}

/// Whether a meta-variable reaches a script as it was sent.
fn passes(name: &[u8], value: &[u8]) -> bool {
    let sound = !name.is_empty() && !name.contains(&b'=') && !name.contains(&0) && !value.contains(&0);
    // nginx says by an empty length that there is no body, Caddy by -1 that it does not know: section 4.1.2 has it
    // unset then, and the script finds the end of its input.
    let no_length = name == b"CONTENT_LENGTH" && (value.is_empty() || !value.iter().all(u8::is_ascii_digit));
    sound && !OURS.contains(&name) && !no_length
}

fn os(bytes: &[u8]) -> OsString {
    OsString::from_vec(bytes.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(sent: &[(&str, &str)], env: &[(&str, &str)], path_info: &str) -> Vec<(String, String)> {
        let script = Script {
            file: "/srv/cgi/a.cgi".into(),
            script_name: b"/m/a.cgi".to_vec(),
            path_info: path_info.as_bytes().to_vec(),
        };
        let env: Vec<_> = env.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        let given = Surroundings { script: &script, root: Path::new("/srv/cgi"), path: None, env: &env };
        let sent = sent.iter().map(|(n, v)| (n.as_bytes(), v.as_bytes()));
        let text = variables(sent, &given).into_iter().map(|var| var.into_string().unwrap());
        text.map(|var| var.split_once('=').map(|(n, v)| (n.to_owned(), v.to_owned())).unwrap()).collect()
    }

    fn value<'v>(vars: &'v [(String, String)], name: &str) -> Option<&'v str> {
        let mut values = vars.iter().filter(|(n, _)| n == name);
        let value = values.next().map(|(_, v)| v.as_str());
        assert_eq!(values.next(), None, "{name} twice");
        value
    }

    #[test]
    fn the_script_learns_where_it_is_whatever_was_sent() {
        let sent = [
            ("SCRIPT_NAME", "/x"),
            ("PATH_INFO", "/y"),
            ("SCRIPT_FILENAME", "/z"),
            ("GATEWAY_INTERFACE", "?"),
        ];
        let vars = environment(&sent, &[], "/i");
        assert_eq!(value(&vars, "SCRIPT_NAME"), Some("/m/a.cgi"));
        assert_eq!(value(&vars, "SCRIPT_FILENAME"), Some("/srv/cgi/a.cgi"));
        assert_eq!(value(&vars, "PATH_INFO"), Some("/i"));
        assert_eq!(value(&vars, "PATH_TRANSLATED"), Some("/srv/cgi/i"));
        assert_eq!(value(&vars, "GATEWAY_INTERFACE"), Some("CGI/1.1"));
        let vars = environment(&sent, &[], "");
        assert_eq!((value(&vars, "PATH_INFO"), value(&vars, "PATH_TRANSLATED")), (None, None));
    }

    #[test]
    fn what_rfc_3875_demands_is_there_even_if_it_was_not_sent() {
        let vars = environment(&[], &[], "");
        for name in ["QUERY_STRING", "SERVER_PROTOCOL", "SERVER_SOFTWARE", "GATEWAY_INTERFACE", "PATH"] {
            assert!(value(&vars, name).is_some(), "{name}");
        }
        let vars = environment(&[("QUERY_STRING", "a=b"), ("DOCUMENT_ROOT", "/d")], &[], "/i");
        assert_eq!(value(&vars, "QUERY_STRING"), Some("a=b"));
        assert_eq!(value(&vars, "PATH_TRANSLATED"), Some("/d/i"));
    }

    #[test]
    fn what_must_not_reach_a_script_does_not() {
        let sent = [
            ("HTTP_PROXY", "http://evil"),
            ("PATH", "/evil"),
            ("", "x"),
            ("A=B", "x"),
            ("C\0", "x"),
            ("D", "x\0"),
        ];
        let vars = environment(&sent, &[], "");
        assert_eq!(value(&vars, "HTTP_PROXY"), None);
        assert_eq!(value(&vars, "PATH"), Some("/usr/local/bin:/usr/bin:/bin"));
        assert!(
            vars.iter()
                .all(|(n, v)| !n.is_empty() && !n.contains(['=', '\0']) && !v.contains('\0') && n != "D")
        );
    }

    #[test]
    fn a_length_that_is_none_is_not_passed_on() {
        for none in ["", "-1", "1x"] {
            assert_eq!(value(&environment(&[("CONTENT_LENGTH", none)], &[], ""), "CONTENT_LENGTH"), None);
        }
        assert_eq!(value(&environment(&[("CONTENT_LENGTH", "0")], &[], ""), "CONTENT_LENGTH"), Some("0"));
    }

    #[test]
    fn the_apps_own_settings_win() {
        let vars = environment(&[("A", "sent")], &[("A", "set"), ("PATH", "/opt"), ("B", "")], "");
        assert_eq!(
            (value(&vars, "A"), value(&vars, "PATH"), value(&vars, "B")),
            (Some("set"), Some("/opt"), Some(""))
        );
    }
}
