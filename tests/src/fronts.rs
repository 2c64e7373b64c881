//! Requests as the web servers of Debian 12 send them to a FastCGI application: their parameters, records, ids,
//! padding and flags.
//!
//! From what was seen of nginx 1.22, Apache 2.4 (mod_proxy_fcgi, mod_authnz_fcgi), lighttpd 1.4, HAProxy 2.6 and
//! Caddy 2.6. The real servers are driven elsewhere; these let a test send the rare forms at will.

use crate::fcgi::{AUTHORIZER, Padding, Request, Shape};

/// What a client asked the web server for.
#[derive(Debug, Clone)]
pub struct Ask<'a> {
    /// Method.
    pub method: &'a str,
    /// Path.
    pub path: &'a str,
    /// Query, without `?`.
    pub query: &'a str,
    /// Fields as `HTTP_` parameters.
    pub fields: &'a [(&'a str, &'a str)],
    /// Body.
    pub body: &'a [u8],
}

impl Ask<'_> {
    fn uri(&self) -> String {
        if self.query.is_empty() { self.path.into() } else { format!("{}?{}", self.path, self.query) }
    }

    fn request(&self, params: &[(&str, &str)], shape: Shape) -> Request {
        let mut request = Request::get("/");
        request.params.clear();
        request.shape = shape;
        request.body = Some(self.body.to_vec());
        for (name, value) in params.iter().chain(self.fields) {
            request = request.with(name, value);
        }
        request
    }

    fn length(&self, none: &str) -> String {
        if self.body.is_empty() { none.into() } else { self.body.len().to_string() }
    }
}

/// nginx: one PARAMS record, padded to eight, CONTENT_LENGTH there but empty without a body.
#[must_use]
pub fn nginx(ask: &Ask<'_>, keep: bool) -> Request {
    let (uri, length) = (ask.uri(), ask.length(""));
    let params = [
        ("QUERY_STRING", ask.query),
        ("REQUEST_METHOD", ask.method),
        ("CONTENT_TYPE", ""),
        ("CONTENT_LENGTH", &length),
        ("SCRIPT_NAME", ask.path),
        ("REQUEST_URI", &uri),
        ("DOCUMENT_URI", ask.path),
        ("DOCUMENT_ROOT", "/usr/share/nginx/html"),
        ("SERVER_PROTOCOL", "HTTP/1.1"),
        ("REQUEST_SCHEME", "http"),
        ("GATEWAY_INTERFACE", "CGI/1.1"),
        ("SERVER_SOFTWARE", "nginx/1.22.1"),
        ("REMOTE_ADDR", "127.0.0.1"),
        ("REMOTE_PORT", "40000"),
        ("REMOTE_USER", ""),
        ("SERVER_ADDR", "127.0.0.1"),
        ("SERVER_PORT", "80"),
        ("SERVER_NAME", "localhost"),
        ("REDIRECT_STATUS", "200"),
        ("HTTP_HOST", "localhost"),
    ];
    let shape = Shape { padding: Padding::ToEight, stdin_record: 32_768, ..Shape::default() };
    Request { keep, ..ask.request(&params, shape) }
}

/// Apache mod_proxy_fcgi: PARAMS records of up to 16 KiB with whole pairs, STDIN records of 8,192, CONTENT_LENGTH
/// absent without a body, SCRIPT_FILENAME with a `proxy:` prefix.
#[must_use]
pub fn apache(ask: &Ask<'_>, keep: bool) -> Request {
    let (uri, file) = (ask.uri(), format!("proxy:fcgi://127.0.0.1:9000{}", ask.path));
    let params = [
        ("HTTP_HOST", "localhost"),
        ("PATH", "/usr/local/bin:/usr/bin:/bin"),
        ("SERVER_SIGNATURE", "<address>Apache/2.4.71 (Debian)</address>\n"),
        ("SERVER_SOFTWARE", "Apache/2.4.71 (Debian)"),
        ("SERVER_NAME", "localhost"),
        ("SERVER_ADDR", "127.0.0.1"),
        ("SERVER_PORT", "80"),
        ("REMOTE_ADDR", "127.0.0.1"),
        ("DOCUMENT_ROOT", "/var/www/html"),
        ("REQUEST_SCHEME", "http"),
        ("CONTEXT_PREFIX", ""),
        ("CONTEXT_DOCUMENT_ROOT", "/var/www/html"),
        ("SERVER_ADMIN", "[no address given]"),
        ("SCRIPT_FILENAME", &file),
        ("REMOTE_PORT", "40000"),
        ("GATEWAY_INTERFACE", "CGI/1.1"),
        ("SERVER_PROTOCOL", "HTTP/1.1"),
        ("REQUEST_METHOD", ask.method),
        ("QUERY_STRING", ask.query),
        ("REQUEST_URI", &uri),
        ("SCRIPT_NAME", ask.path),
    ];
    let shape = Shape { params_record: 16_384, stdin_record: 8192, ..Shape::default() };
    let request = Request { keep, ..ask.request(&params, shape) };
    if ask.body.is_empty() { request } else { request.with("CONTENT_LENGTH", ask.body.len().to_string()) }
}

/// Apache mod_authnz_fcgi: an Authorizer's request, without any STDIN record.
#[must_use]
pub fn apache_authorizer(ask: &Ask<'_>) -> Request {
    let request =
        apache(ask, false).with("FCGI_ROLE", "AUTHORIZER").with("FCGI_APACHE_ROLE", "AUTHENTICATOR");
    Request { role: AUTHORIZER, body: None, ..request }
}

/// lighttpd: one PARAMS record, no padding, STDIN records of up to 65,535, never kept.
#[must_use]
pub fn lighttpd(ask: &Ask<'_>) -> Request {
    let (uri, length, file) = (ask.uri(), ask.length("0"), format!("/var/www/html{}", ask.path));
    let params = [
        ("CONTENT_LENGTH", length.as_str()),
        ("QUERY_STRING", ask.query),
        ("REQUEST_URI", &uri),
        ("REDIRECT_STATUS", "200"),
        ("SCRIPT_NAME", ask.path),
        ("SCRIPT_FILENAME", &file),
        ("DOCUMENT_ROOT", "/var/www/html"),
        ("REQUEST_METHOD", ask.method),
        ("SERVER_PROTOCOL", "HTTP/1.1"),
        ("SERVER_SOFTWARE", "lighttpd/1.4.69"),
        ("GATEWAY_INTERFACE", "CGI/1.1"),
        ("REQUEST_SCHEME", "http"),
        ("SERVER_PORT", "80"),
        ("SERVER_ADDR", "127.0.0.1"),
        ("SERVER_NAME", "localhost"),
        ("REMOTE_ADDR", "127.0.0.1"),
        ("REMOTE_PORT", "40000"),
        ("HTTP_HOST", "localhost"),
    ];
    let shape = Shape { stdin_record: 65_535, ..Shape::default() };
    ask.request(&params, shape).closing()
}

/// HAProxy: odd ids that rise, kept by default, no padding, STDIN records of up to 16,320.
#[must_use]
pub fn haproxy(ask: &Ask<'_>, id: u16) -> Request {
    let (uri, length, file) = (ask.uri(), ask.length("0"), format!("/srv{}", ask.path));
    let params = [
        ("DOCUMENT_ROOT", "/srv"),
        ("SCRIPT_FILENAME", file.as_str()),
        ("SCRIPT_NAME", ask.path),
        ("REQUEST_URI", &uri),
        ("QUERY_STRING", ask.query),
        ("REQUEST_METHOD", ask.method),
        ("SERVER_PROTOCOL", "HTTP/1.1"),
        ("SERVER_NAME", "localhost"),
        ("SERVER_ADDR", "127.0.0.1"),
        ("SERVER_PORT", "80"),
        ("REMOTE_ADDR", "127.0.0.1"),
        ("REMOTE_PORT", "40000"),
        ("CONTENT_LENGTH", &length),
        ("GATEWAY_INTERFACE", "CGI/1.1"),
        ("HTTP_HOST", "localhost"),
    ];
    let shape = Shape { stdin_record: 16_320, ..Shape::default() };
    ask.request(&params, shape).id(id)
}

/// Caddy: several PARAMS records, padded to eight, STDIN records of up to 65,500, CONTENT_LENGTH "-1" where the
/// client sent chunks (`chunked`), never kept.
#[must_use]
pub fn caddy(ask: &Ask<'_>, chunked: bool) -> Request {
    let (uri, file) = (ask.uri(), format!("/srv{}", ask.path));
    let length = if chunked { "-1".into() } else { ask.length("0") };
    let params = [
        ("AUTH_TYPE", ""),
        ("CONTENT_LENGTH", length.as_str()),
        ("CONTENT_TYPE", ""),
        ("GATEWAY_INTERFACE", "CGI/1.1"),
        ("PATH_INFO", ""),
        ("QUERY_STRING", ask.query),
        ("REMOTE_ADDR", "127.0.0.1"),
        ("REMOTE_HOST", "127.0.0.1"),
        ("REMOTE_PORT", "40000"),
        ("REMOTE_IDENT", ""),
        ("REMOTE_USER", ""),
        ("REQUEST_METHOD", ask.method),
        ("REQUEST_SCHEME", "http"),
        ("SERVER_NAME", "localhost"),
        ("SERVER_PROTOCOL", "HTTP/1.1"),
        ("SERVER_SOFTWARE", "Caddy/v2.6.2"),
        ("DOCUMENT_ROOT", "/srv"),
        ("DOCUMENT_URI", ask.path),
        ("HTTP_HOST", "localhost"),
        ("REQUEST_URI", &uri),
        ("SCRIPT_FILENAME", &file),
        ("SCRIPT_NAME", ask.path),
    ];
    let shape =
        Shape { padding: Padding::ToEight, params_record: 512, stdin_record: 65_500, ..Shape::default() };
    ask.request(&params, shape).closing()
}
