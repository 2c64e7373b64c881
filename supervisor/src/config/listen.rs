//! One entry of `listen`: from text to an address, and which addresses are in each other's way.

use super::{
    check::{Check, Section},
    near,
    users::System,
};
use crate::settings::{Address, Listen};
use hostler_worker::control::Protocol;
use std::net::{IpAddr, SocketAddr};

/// The listener that a section means; `None` after a fault.
pub(crate) fn resolve(check: &mut Check<'_>, section: &Section, system: &dyn System) -> Option<Listen> {
    let Some(text) = section.text("address") else {
        check.fault(section.at, "an entry of \"listen\" needs \"address\"");
        return None;
    };
    let address = match address(&text) {
        Ok(address) => address,
        Err(message) => {
            check.fault(section.place("address"), message);
            return None;
        }
    };
    misplaced(check, section, &address);
    let protocol = match section.text("protocol").as_deref() {
        Some("http") => Protocol::Http,
        _ => Protocol::Fastcgi,
    };
    for (at, network) in section.placed_words("allow") {
        if !is_network(&network) {
            check.fault(at, format!("\"{network}\" is no network such as \"10.0.0.0/8\" or \"::1\""));
        }
    }
    let mut listen = Listen::new(address);
    listen.protocol = protocol;
    listen.allow = section.words("allow");
    listen.mode = section.number32("mode").unwrap_or(listen.mode);
    listen.backlog = section.number32("backlog").unwrap_or(listen.backlog);
    listen.v6only = section.bool("v6only");
    if let Some(name) = section.text("owner") {
        listen.owner = system.account(&name).map(|account| account.uid);
        if listen.owner.is_none() {
            check.fault(section.place("owner"), format!("there is no user \"{name}\""));
        }
    }
    if let Some(name) = section.text("group") {
        listen.group = system.group(&name);
        if listen.group.is_none() {
            check.fault(section.place("group"), format!("there is no group \"{name}\""));
        }
    }
    Some(listen)
}

/// An address from its text.
///
/// # Errors
/// What is wrong with it, as a whole sentence.
pub(crate) fn address(text: &str) -> Result<Address, String> {
    let known = "unix:/path, unix:@name, tcp:127.0.0.1:9000, tcp:[::1]:9000 or systemd:NAME";
    let Some((kind, rest)) = text.split_once(':') else {
        return Err(format!("\"{text}\" is no address; write {known}"));
    };
    match kind {
        "unix" if rest.strip_prefix('@').is_some_and(|name| !name.is_empty()) => {
            Ok(Address::Unix(rest.into()))
        }
        "unix" if rest.starts_with('/') => {
            if rest.len() > 107 {
                return Err(format!(
                    "the path of a Unix socket is at most 107 bytes long, this one {}",
                    rest.len()
                ));
            }
            // Components leave out what is said twice, so that the same file has one name.
            Ok(Address::Unix(std::path::Path::new(rest).components().collect()))
        }
        "unix" => Err(format!("the path of a Unix socket must be absolute, not \"{rest}\"")),
        "tcp" => tcp(rest),
        "systemd" if !rest.is_empty() && !rest.contains(':') => Ok(Address::Systemd(rest.to_owned())),
        _ => Err(format!(
            "\"{text}\" is no address; write {known}{}",
            near::hint(kind, ["unix", "tcp", "systemd"])
        )),
    }
}

fn tcp(rest: &str) -> Result<Address, String> {
    if let Ok(address) = rest.parse::<SocketAddr>() {
        return Ok(Address::Tcp(address));
    }
    if rest.parse::<u16>().is_ok() {
        return Err(format!(
            "\"tcp:{rest}\" says no address; \"tcp:127.0.0.1:{rest}\" listens for this machine alone"
        ));
    }
    match rest.rsplit_once(':') {
        Some((host, port)) if port.parse::<u16>().is_ok() && host.matches(':').count() > 1 => {
            Err(format!("an IPv6 address stands in brackets: \"tcp:[{host}]:{port}\""))
        }
        _ if rest.parse::<IpAddr>().is_ok() => Err(format!("\"tcp:{rest}\" needs a port")),
        Some(("localhost", port)) => {
            Err(format!("\"tcp:{rest}\" is a name; write \"tcp:127.0.0.1:{port}\" or \"tcp:[::1]:{port}\""))
        }
        Some((_, port)) if port.parse::<u16>().is_err() => Err(format!("\"{port}\" is no port")),
        _ => Err(format!("\"tcp:{rest}\" is no IP address with a port, such as \"tcp:127.0.0.1:9000\"")),
    }
}

/// A key that has no meaning for this kind of address is a fault, not a hope.
fn misplaced(check: &mut Check<'_>, section: &Section, address: &Address) {
    let file = matches!(address, Address::Unix(_)) && !is_abstract(address);
    let tcp = matches!(address, Address::Tcp(_));
    let v6 = matches!(address, Address::Tcp(SocketAddr::V6(_)));
    let from_systemd = matches!(address, Address::Systemd(_));
    for (names, fits, whom) in [
        (&["mode", "owner", "group"][..], file, "the file of a Unix socket"),
        (&["allow"], tcp || from_systemd, "TCP"),
        (&["v6only"], v6, "an IPv6 address"),
    ] {
        for name in names {
            if let (Some(item), false) = (section.written(name), fits) {
                check.fault(item.at, format!("\"{name}\" is for {whom} alone, not for {address}"));
            }
        }
    }
}

fn is_abstract(address: &Address) -> bool {
    matches!(address, Address::Unix(path) if crate::listeners::abstract_name(path).is_some())
}

/// An address, or one with the length of its prefix.
fn is_network(text: &str) -> bool {
    let (address, length) = text.split_once('/').map_or((text, None), |(a, l)| (a, Some(l)));
    let Ok(address) = address.parse::<IpAddr>() else { return false };
    let most = if address.is_ipv4() { 32 } else { 128 };
    length.is_none_or(|length| length.parse::<u8>().is_ok_and(|length| length <= most))
}

/// Whether two listeners cannot both be bound. Port 0 means any free one and is in nobody's way.
pub(crate) fn clash(one: &Listen, other: &Listen) -> bool {
    let (Address::Tcp(a), Address::Tcp(b)) = (&one.address, &other.address) else {
        return one.address == other.address;
    };
    if a.port() != b.port() || a.port() == 0 {
        return false;
    }
    let takes_both =
        |listen: &Listen, at: &SocketAddr| at.is_ipv6() && at.ip().is_unspecified() && !listen.v6only;
    a.ip() == b.ip()
        || (a.is_ipv4() == b.is_ipv4() && (a.ip().is_unspecified() || b.ip().is_unspecified()))
        || (takes_both(one, a) && b.is_ipv4())
        || (takes_both(other, b) && a.is_ipv4())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listen(text: &str) -> Listen {
        Listen::new(address(text).unwrap())
    }

    #[test]
    fn addresses_are_written_as_they_are_read() {
        for text in [
            "unix:/run/a.sock",
            "unix:@name",
            "tcp:127.0.0.1:9000",
            "tcp:[::1]:9000",
            "tcp:[::]:0",
            "systemd:shop",
        ] {
            assert_eq!(address(text).unwrap().to_string(), text);
        }
        assert_eq!(address("unix:/run//./a.sock").unwrap().to_string(), "unix:/run/a.sock");
    }

    #[test]
    fn what_is_no_address_is_refused_with_what_would_be_one() {
        for (text, expected) in [
            (
                "9000",
                "\"9000\" is no address; write unix:/path, unix:@name, tcp:127.0.0.1:9000, tcp:[::1]:9000 or systemd:NAME",
            ),
            (
                "tcp:9000",
                "\"tcp:9000\" says no address; \"tcp:127.0.0.1:9000\" listens for this machine alone",
            ),
            ("tcp:127.0.0.1", "\"tcp:127.0.0.1\" needs a port"),
            ("tcp:::1:9000", "an IPv6 address stands in brackets: \"tcp:[::1]:9000\""),
            (
                "tcp:localhost:80",
                "\"tcp:localhost:80\" is a name; write \"tcp:127.0.0.1:80\" or \"tcp:[::1]:80\"",
            ),
            ("tcp:127.0.0.1:99999", "\"99999\" is no port"),
            (
                "tcp:example:80",
                "\"tcp:example:80\" is no IP address with a port, such as \"tcp:127.0.0.1:9000\"",
            ),
            ("unix:run/x", "the path of a Unix socket must be absolute, not \"run/x\""),
            ("unix:@", "the path of a Unix socket must be absolute, not \"@\""),
        ] {
            assert_eq!(address(text).unwrap_err(), expected);
        }
        assert!(address("unx:/run/x").unwrap_err().ends_with("did you mean \"unix\"?"));
        for text in ["systemd:", "systemd:a:b", "", ":", "udp:1.2.3.4:5"] {
            assert!(address(text).is_err(), "{text}");
        }
    }

    #[test]
    fn networks_are_known_from_other_texts() {
        for text in ["10.0.0.0/8", "::1", "127.0.0.1", "fe80::/10", "0.0.0.0/0"] {
            assert!(is_network(text), "{text}");
        }
        for text in ["10.0.0.0/33", "10.0.0/8", "::/129", "localhost", "", "/8", "1.2.3.4/"] {
            assert!(!is_network(text), "{text}");
        }
    }

    #[test]
    fn listeners_in_each_others_way_are_found() {
        for (a, b, expected) in [
            ("unix:/a", "unix:/a", true),
            ("unix:/a", "unix:/b", false),
            ("tcp:127.0.0.1:1", "tcp:127.0.0.1:1", true),
            ("tcp:127.0.0.1:1", "tcp:127.0.0.1:2", false),
            ("tcp:127.0.0.1:0", "tcp:127.0.0.1:0", false),
            ("tcp:0.0.0.0:1", "tcp:127.0.0.1:1", true),
            ("tcp:0.0.0.0:1", "tcp:[::1]:1", false),
            ("tcp:0.0.0.0:1", "tcp:[::]:1", true),
            ("tcp:[::]:1", "tcp:127.0.0.1:1", true),
            ("tcp:[::]:1", "tcp:[::1]:1", true),
            ("systemd:a", "systemd:a", true),
        ] {
            assert_eq!(clash(&listen(a), &listen(b)), expected, "{a} {b}");
            assert_eq!(clash(&listen(b), &listen(a)), expected, "{b} {a}");
        }
        let v6only = Listen { v6only: true, ..listen("tcp:[::]:1") };
        assert!(!clash(&v6only, &listen("tcp:0.0.0.0:1")));
    }
}
