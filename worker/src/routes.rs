//! Which app answers: by host, then by the longest path prefix that ends at a `/`.
//!
//! Always holds: an exact host goes before `*.domain`, that before any host; the search ends at the first kind of
//! host that is there, as INTERFACE pins it: an app for any host does not answer for a host that has its own.

use crate::App;

struct Route {
    host: Option<String>,
    /// Without a slash at its end: empty for `/`.
    path: String,
    app: Box<dyn App>,
}

/// The apps of a worker.
pub(crate) struct Routes {
    /// Longest path first within a host.
    routes: Vec<Route>,
}

impl Routes {
    /// Routes in any order.
    pub(crate) fn new(apps: impl IntoIterator<Item = (Option<String>, String, Box<dyn App>)>) -> Routes {
        let mut routes: Vec<Route> = apps
            .into_iter()
            .map(|(host, path, app)| Route { host, path: path.trim_end_matches('/').to_owned(), app })
            .collect();
        // Exact hosts, then wildcards, the longer domain first, then any host.
        let rank = |host: &Option<String>| match host.as_deref() {
            Some(h) if !h.starts_with('*') => (0, 0),
            Some(h) => (1, usize::MAX - h.len()),
            None => (2, 0),
        };
        routes.sort_by(|a, b| {
            let host = rank(&a.host).cmp(&rank(&b.host)).then_with(|| a.host.cmp(&b.host));
            host.then(b.path.len().cmp(&a.path.len()))
        });
        Routes { routes }
    }

    /// The app for a host as the client sent it and a decoded path; and the bytes of the path that are its mount.
    pub(crate) fn find(&mut self, host: &[u8], path: &[u8]) -> Option<(usize, &mut dyn App)> {
        let at = self.position(host, path)?;
        let route = self.routes.get_mut(at)?;
        Some((route.path.len(), route.app.as_mut()))
    }

    fn position(&self, host: &[u8], path: &[u8]) -> Option<usize> {
        if matches!(&*self.routes, [only] if only.host.is_none() && only.path.is_empty()) {
            return Some(0);
        }
        let host = without_port(host).to_ascii_lowercase();
        let first = self.routes.iter().position(|route| answers_for(route.host.as_deref(), &host))?;
        let kind = &self.routes.get(first)?.host;
        self.routes.iter().position(|r| r.host == *kind && begins_at_slash(path, r.path.as_bytes()))
    }
}

fn answers_for(route: Option<&str>, host: &[u8]) -> bool {
    match route {
        None => true,
        Some(pattern) => match pattern.strip_prefix('*') {
            Some(domain) => host.len() > domain.len() && host.ends_with(domain.as_bytes()),
            None => host == pattern.as_bytes(),
        },
    }
}

fn begins_at_slash(path: &[u8], prefix: &[u8]) -> bool {
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

/// `Example.org:80` is `Example.org`, `[::1]:80` is `[::1]`, and a dot at the end means nothing.
fn without_port(host: &[u8]) -> &[u8] {
    let host = match host.iter().rposition(|b| *b == b':') {
        Some(at) if !host.ends_with(b"]") => host.get(..at).unwrap_or(host),
        _ => host,
    };
    host.strip_suffix(b".").unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Answer, Error, Request};

    struct Named;
    impl App for Named {
        fn serve(&mut self, _: &mut Request<'_>, _: &mut Answer<'_>) -> Result<(), Error> {
            Ok(())
        }
    }

    fn routes() -> Routes {
        let all = [
            (None, "/"),
            (None, "/static"),
            (Some("shop.example"), "/"),
            (Some("shop.example"), "/a"),
            (Some("shop.example"), "/a/b"),
            (Some("*.example"), "/w"),
            (Some("*.deep.example"), "/"),
        ];
        Routes::new(all.map(|(h, p)| (h.map(str::to_owned), p.to_owned(), Box::new(Named) as Box<dyn App>)))
    }

    fn found(host: &str, path: &str) -> Option<usize> {
        routes().find(host.as_bytes(), path.as_bytes()).map(|(mount, _)| mount)
    }

    #[test]
    fn the_longest_prefix_at_a_slash_answers() {
        assert_eq!(found("shop.example", "/a/b/c"), Some(4));
        assert_eq!(found("shop.example", "/a/bc"), Some(2));
        assert_eq!(found("shop.example", "/apple"), Some(0));
        assert_eq!(found("shop.example", "/a"), Some(2));
        assert_eq!(found("other", "/static"), Some(7));
        assert_eq!(found("other", "/statics"), Some(0));
    }

    #[test]
    fn an_exact_host_goes_before_a_wildcard_and_that_before_any() {
        assert_eq!(found("SHOP.Example:8080", "/static/x"), Some(0));
        assert_eq!(found("x.example", "/w/1"), Some(2));
        assert_eq!(found("x.example", "/static"), None);
        assert_eq!(found("y.deep.example.", "/w"), Some(0));
        assert_eq!(found("example", "/static"), Some(7));
        assert_eq!(found("[::1]:80", "/static"), Some(7));
        assert_eq!(found("", "/"), Some(0));
    }
}
