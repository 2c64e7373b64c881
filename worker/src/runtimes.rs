//! From a runtime's settings to the app that it is.

use crate::{
    Answer, App, Error, Request,
    cgi::Cgi,
    control::{self, Runtime},
    demo::Demo,
    files::Files,
    relay::Relay,
    routes::Routes,
};
use http::StatusCode;

/// The apps of a pool, loaded; `generation` names it and its generation.
///
/// # Errors
/// Why one cannot be loaded, as a phrase that names it.
pub(crate) fn load(apps: &[control::App], generation: &str) -> Result<Routes, String> {
    let mut loaded = Vec::with_capacity(apps.len());
    for (number, app) in apps.iter().enumerate() {
        let made = of(&app.runtime, format!("{generation} {number}"))
            .map_err(|why| format!("app at {}: {why}", app.path))?;
        loaded.push((app.host.clone(), app.path.clone(), made));
    }
    Ok(Routes::new(loaded))
}

/// `name` is of this app in all workers of its generation.
fn of(runtime: &Runtime, name: String) -> Result<Box<dyn App>, String> {
    match runtime {
        Runtime::Unavailable { message, retry_after } => {
            Ok(Box::new(Unavailable { message: message.clone(), retry_after: retry_after.to_string() }))
        }
        Runtime::Files(settings) => Ok(Box::new(Files::new(settings)?)),
        Runtime::Cgi(settings) => Ok(Box::new(Cgi::new(settings)?)),
        Runtime::Demo => Ok(Box::new(Demo::default())),
        Runtime::Fastcgi(settings) => Ok(Box::new(Relay::new(settings, name)?)),
    }
}

/// Answers for a pool that is stopped or has failed.
struct Unavailable {
    message: String,
    retry_after: String,
}

impl App for Unavailable {
    fn serve(&mut self, _: &mut Request<'_>, answer: &mut Answer<'_>) -> Result<(), Error> {
        let fields = [("Content-Type", &b"text/plain"[..]), ("Retry-After", self.retry_after.as_bytes())];
        answer.head(StatusCode::SERVICE_UNAVAILABLE, &fields)?;
        answer.write(self.message.as_bytes())?;
        answer.write(b"\n")
    }
}
