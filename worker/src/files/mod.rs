//! The `files` runtime: static files beneath one directory (RFC 9110 for conditions, ranges and codings).
//!
//! Files to read first: `beneath` (why nothing gets out of the root), then [`Files::reply`] (what a request
//! comes to), then `send`. The rest is pure: `path`, `condition`, `range`, `encoding`, `kind`, `listing`.
//!
//! Always holds: only regular files are sent, from a descriptor that is opened once a request, so that size,
//! tags and bytes are of one file; nothing is mapped into memory, so a file that shrinks cuts the connection
//! and never kills the worker; what a request can make the server send is bounded by the file's size.
//!
//! # Limitations
//! No compression on the fly. A file that is written over in place while it is sent goes out mixed: replace
//! files by rename.

mod condition;
mod encoding;
mod kind;
mod listing;
mod path;
mod range;
mod reply;

#[cfg(test)]
mod tests;

use crate::{
    answer::Answer,
    app::App,
    beneath::{Entry, Opened, Refusal, Root},
    control,
    error::Error,
    request::Request,
};
use condition::{Validators, Verdict};
use encoding::Coding;
use http::StatusCode;
use path::Wanted;
use range::Asked;
use reply::Reply;
use std::time::SystemTime;

/// Serves the files beneath one directory.
pub(crate) struct Files {
    root: Root,
    settings: control::Files,
}

/// What matters of a request here.
struct Question<'a> {
    method: &'a [u8],
    mount: &'a [u8],
    path: &'a [u8],
    query: &'a [u8],
    header: &'a dyn Fn(&str) -> Option<&'a [u8]>,
}

impl Files {
    /// Opens the root.
    ///
    /// # Errors
    /// A phrase for the log: what of `settings` cannot be used and why.
    pub(crate) fn new(settings: &control::Files) -> Result<Files, String> {
        let visible = |value: &String| value.bytes().all(|b| b == b' ' || b.is_ascii_graphic());
        if settings.cache_control.as_ref().is_some_and(|value| !visible(value)) {
            return Err("cache_control holds a character that no header may hold".into());
        }
        if let Some(name) = settings.index.iter().find(|name| name.is_empty() || name.contains(['/', '\0'])) {
            return Err(format!("the index {name:?} is no file name"));
        }
        Ok(Files { root: Root::open(&settings.root, settings.symlinks)?, settings: settings.clone() })
    }

    fn reply(&mut self, question: &Question<'_>) -> Reply {
        match question.method {
            b"GET" | b"HEAD" => {}
            b"OPTIONS" => return Reply::new(StatusCode::NO_CONTENT).with("Allow", reply::METHODS),
            _ => return Reply::plain(StatusCode::METHOD_NOT_ALLOWED).with("Allow", reply::METHODS),
        }
        let Some(wanted) = Wanted::from_path_info(question.path, self.settings.dot_files) else {
            return Reply::plain(StatusCode::NOT_FOUND);
        };
        self.root.refresh();
        self.find(question, &wanted).unwrap_or_else(Reply::from)
    }

    fn find(&self, question: &Question<'_>, wanted: &Wanted) -> Result<Reply, Refusal> {
        // The root itself is a directory, asked for as "/" or, by the bare mount, as "".
        if wanted.directory || (wanted.relative.is_empty() && question.mount.is_empty()) {
            return self.directory(question, wanted);
        }
        match self.root.entry(&wanted.relative)? {
            Entry::File(file) => Ok(self.file(question, &wanted.relative, file)),
            Entry::Directory(_) => {
                let location = wanted.location(question.mount, question.query);
                Ok(Reply::plain(StatusCode::MOVED_PERMANENTLY).with("Location", location))
            }
        }
    }

    fn directory(&self, question: &Question<'_>, wanted: &Wanted) -> Result<Reply, Refusal> {
        for name in &self.settings.index {
            let relative = wanted.join(name);
            match self.root.entry(&relative) {
                Ok(Entry::File(file)) => return Ok(self.file(question, &relative, file)),
                Ok(Entry::Directory(_)) | Err(Refusal::Absent) => {}
                Err(refusal) => return Err(refusal),
            }
        }
        let Entry::Directory(directory) = self.root.entry(&wanted.relative)? else {
            return Err(Refusal::Absent);
        };
        if !self.settings.listing {
            return Err(Refusal::Forbidden);
        }
        let shown = [question.mount, question.path].concat();
        let page = listing::page(&self.root, wanted, directory, &shown, self.settings.dot_files)?;
        Ok(Reply::new(StatusCode::OK).with("Content-Type", &b"text/html; charset=utf-8"[..]).bytes(page))
    }

    /// The answer with the file `relative`, or with its form that lies ready compressed.
    fn file(&self, question: &Question<'_>, relative: &[u8], plain: Opened) -> Reply {
        let (file, coding) = self.preferred_form(question, relative, plain);
        let validators = Validators::new(file.modified, file.size, file.inode, SystemTime::now());
        let base = |status| {
            let reply = Reply::new(status)
                .with("ETag", validators.etag.clone())
                .with_some("Cache-Control", self.settings.cache_control.clone());
            if self.settings.precompressed { reply.with("Vary", &b"Accept-Encoding"[..]) } else { reply }
        };
        match condition::judge(question.header, &validators) {
            Verdict::NotModified => return base(StatusCode::NOT_MODIFIED),
            Verdict::Failed => return Reply::plain(StatusCode::PRECONDITION_FAILED),
            Verdict::Holds => {}
        }
        let full = |status| {
            base(status)
                .with("Last-Modified", httpdate::fmt_http_date(validators.modified))
                .with("Accept-Ranges", &b"bytes"[..])
                .with_some("Content-Encoding", coding.map(Coding::name))
        };
        let media_type = kind::media_type(relative);
        match asked_ranges(question, &validators, file.size) {
            Asked::Whole => full(StatusCode::OK).with("Content-Type", media_type).file(file.file, file.size),
            Asked::Unsatisfiable => Reply::plain(StatusCode::RANGE_NOT_SATISFIABLE)
                .with("Content-Range", format!("bytes */{}", file.size)),
            Asked::Spans(spans) => {
                full(StatusCode::PARTIAL_CONTENT).spans(file.file, file.size, spans, &media_type)
            }
        }
    }

    /// The form of the file that the client likes best among those that lie there.
    fn preferred_form(
        &self,
        question: &Question<'_>,
        relative: &[u8],
        plain: Opened,
    ) -> (Opened, Option<Coding>) {
        let header = self.settings.precompressed.then(|| (question.header)("accept-encoding")).flatten();
        for coding in encoding::accepted(header) {
            let name = [relative, coding.suffix().as_bytes()].concat();
            if let Ok(Entry::File(file)) = self.root.entry(&name) {
                return (file, Some(coding));
            }
        }
        (plain, None)
    }
}

/// What the Range header asks for; it is defined for GET alone (RFC 9110, section 14.2).
fn asked_ranges(question: &Question<'_>, validators: &Validators, size: u64) -> Asked {
    match (question.header)("range") {
        Some(range)
            if question.method == b"GET"
                && condition::range_counts((question.header)("if-range"), validators) =>
        {
            range::asked(range, size)
        }
        _ => Asked::Whole,
    }
}

/// Where a client that asked for the directory `path` below `mount` without its `/` should ask instead.
pub(crate) fn with_slash(mount: &[u8], path: &[u8], query: &[u8]) -> Vec<u8> {
    Wanted { relative: path.to_vec(), directory: true }.location(mount, query)
}

impl App for Files {
    fn serve(&mut self, request: &mut Request<'_>, answer: &mut Answer<'_>) -> Result<(), Error> {
        let question = Question {
            method: request.method(),
            mount: request.script_name(),
            path: request.path_info(),
            query: request.query(),
            header: &|name| request.header(name),
        };
        let reply = self.reply(&question);
        let head_only = question.method == b"HEAD";
        if let Some(failure) = &reply.failure {
            let line = format!("open {}: {failure}", String::from_utf8_lossy(question.path));
            request.log(line.as_bytes());
        }
        reply.send(answer, head_only)
    }
}
