//! The other end of the control socket: one request, one answer, waiting for it.

use super::core::Answer;
use serde::{Deserialize, de::DeserializeOwned};
use std::{
    fmt,
    io::{ErrorKind, Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

/// The largest answer that is read.
const ANSWER_LIMIT: u64 = 64 << 20;

/// Why there is no answer. The phrase is for the user.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Error {
    /// No supervisor there.
    Absent(String),
    /// It is not for this user.
    Forbidden(String),
    /// It said no, or nothing that makes sense.
    Failed(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Absent(message) | Error::Forbidden(message) | Error::Failed(message) => {
                f.write_str(message)
            }
        }
    }
}

#[derive(Deserialize)]
struct Refusal {
    error: String,
}

/// Asks for a document.
///
/// # Errors
/// See [`Error`].
pub(crate) fn get<T: DeserializeOwned>(socket: &Path, path: &str) -> Result<T, Error> {
    let (status, body) = exchange(socket, "GET", path, "", Some(Duration::from_secs(10)))?;
    match status {
        200 => serde_json::from_slice(&body).map_err(|e| Error::Failed(format!("read the answer: {e}"))),
        _ => Err(refusal(status, &body)),
    }
}

/// Has a command done, for as long as it takes.
///
/// # Errors
/// See [`Error`]; that a command did not do what was asked for some pool is no error but an [`Answer`].
pub(crate) fn post(socket: &Path, path: &str, body: &serde_json::Value) -> Result<Answer, Error> {
    let (status, body) = exchange(socket, "POST", path, &body.to_string(), None)?;
    match serde_json::from_slice(&body) {
        Ok(answer) if matches!(status, 200 | 500) => Ok(answer),
        _ => Err(refusal(status, &body)),
    }
}

fn refusal(status: u16, body: &[u8]) -> Error {
    let said = serde_json::from_slice(body).map(|refusal: Refusal| refusal.error);
    let message = said.unwrap_or_else(|_| format!("the supervisor answered {status}"));
    if status == 403 { Error::Forbidden(message) } else { Error::Failed(message) }
}

fn exchange(
    socket: &Path,
    method: &str,
    path: &str,
    body: &str,
    patience: Option<Duration>,
) -> Result<(u16, Vec<u8>), Error> {
    let mut stream = UnixStream::connect(socket).map_err(|e| cannot_connect(socket, &e))?;
    let lost =
        |e: std::io::Error| Error::Failed(format!("talk to the supervisor at {}: {e}", socket.display()));
    stream.set_read_timeout(patience).map_err(lost)?;
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: hostler\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    // A refusal may come before all is written; it is read all the same.
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes()));
    let mut bytes = Vec::new();
    stream.take(ANSWER_LIMIT).read_to_end(&mut bytes).map_err(lost)?;
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut head = httparse::Response::new(&mut headers);
    match head.parse(&bytes) {
        Ok(httparse::Status::Complete(at)) => Ok((head.code.unwrap_or(500), bytes.split_off(at))),
        _ if bytes.is_empty() => {
            Err(Error::Failed("the supervisor closed the connection without an answer".into()))
        }
        _ => Err(Error::Failed(format!("what answers at {} is no supervisor", socket.display()))),
    }
}

fn cannot_connect(socket: &Path, error: &std::io::Error) -> Error {
    let place = socket.display();
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => Error::Absent(format!(
            "no supervisor answers at {place}; start one with \"hostler run\", or name its socket with --control \
             (the old one, where the config was given another since)"
        )),
        ErrorKind::PermissionDenied => Error::Forbidden(format!(
            "no permission for {place}; only root and the supervisor's user have it"
        )),
        _ => Error::Failed(format!("connect to {place}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_nobody_answers_is_told_from_where_one_may_not_ask() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        assert!(matches!(get::<serde_json::Value>(&path, "/status"), Err(Error::Absent(_))));
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let error = get::<serde_json::Value>(&path, "/status").unwrap_err();
        assert!(matches!(&error, Error::Absent(m) if m.starts_with("no supervisor answers at")), "{error}");
    }

    #[test]
    fn what_is_no_supervisor_is_said_to_be_none() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let other = std::thread::spawn(move || {
            for answer in [&b""[..], b"SSH-2.0\r\n"] {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 16];
                stream.read_exact(&mut request).unwrap();
                stream.write_all(answer).unwrap();
            }
        });
        for _ in 0..2 {
            assert!(matches!(get::<serde_json::Value>(&path, "/status"), Err(Error::Failed(_))));
        }
        other.join().unwrap();
    }
}
