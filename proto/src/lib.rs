//! FastCGI 1.0 and the CGI response head (RFC 3875, section 6): bytes to values and back.
#![forbid(unsafe_code)]
