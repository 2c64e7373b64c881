//! `hostler demo`: a built-in site, without config and without any other program.

use crate::{
    cli::Demo,
    config::{Loaded, users},
    print,
    run::{self, Source},
    scratch::Scratch,
    serve::{can_listen, fail, listen_at, load, shown},
};
use hostler_worker::control::{App, Runtime};
use std::{fs, path::Path, process::ExitCode};

/// The files that it serves, by name.
const SITE: [(&str, &str); 3] = [
    ("hello.txt", include_str!("demo/hello.txt")),
    ("page.html", include_str!("demo/page.html")),
    ("mark.svg", include_str!("demo/mark.svg")),
];

/// Serves until it is told to stop.
pub(crate) fn demo(options: &Demo) -> ExitCode {
    let scratch = match Scratch::new() {
        Ok(scratch) => scratch,
        Err(message) => return fail(&message),
    };
    match set_up(options, &scratch) {
        Ok((loaded, said)) => {
            print(&said);
            run::run(Source::Made(Box::new(loaded)))
        }
        Err(message) => fail(&message),
    }
}

fn set_up(options: &Demo, scratch: &Scratch) -> Result<(Loaded, String), String> {
    let (address, protocol) = listen_at(&options.listen)?;
    let (site, socket) = (scratch.path().join("files"), scratch.path().join("demo.sock"));
    write_site(&site)?;
    scratch.open_to_others()?;
    let mut loaded = load(config(scratch, &site, &socket, &address, protocol))?;
    for pool in &mut loaded.pools {
        pool.apps.insert(0, App { host: None, path: "/".to_owned(), runtime: Runtime::Demo });
        pool.runtime = "demo+files".to_owned();
    }
    can_listen(&loaded)?;
    Ok((loaded, introduction(&shown(&address, protocol), &socket, &scratch.control())))
}

fn write_site(site: &Path) -> Result<(), String> {
    let failed = |e: std::io::Error| format!("write the demo's files to {}: {e}", site.display());
    fs::create_dir(site).map_err(failed)?;
    SITE.iter().try_for_each(|(name, text)| fs::write(site.join(name), text)).map_err(failed)
}

fn config(scratch: &Scratch, site: &Path, socket: &Path, address: &str, protocol: &str) -> String {
    let user = if users::myself().0 == 0 { "user = \"root\"" } else { "" };
    format!(
        "[supervisor]\n\
         control = \"unix:{control}\"\n\
         log = {{ level = \"warn\" }}\n\
         [pool.demo]\n\
         listen = [\n\
         {{ address = \"{address}\", protocol = \"{protocol}\" }},\n\
         {{ address = \"unix:{socket}\", mode = \"0666\" }},\n\
         ]\n\
         {user}\n\
         [pool.demo.workers]\n\
         min = 2\n\
         [[pool.demo.app]]\n\
         path = \"/files\"\n\
         runtime = \"files\"\n\
         root = \"{site}\"\n\
         listing = true\n",
        control = scratch.control().display(),
        socket = socket.display(),
        site = site.display(),
    )
}

fn introduction(url: &str, socket: &Path, control: &Path) -> String {
    let (socket, control) = (socket.display(), control.display());
    let base = url.trim_end_matches('/');
    format!(
        "Hostler serves a site of its own, by preforked workers under a supervisor:\n\
         \n\
         \x20   {url}\n\
         \x20   FastCGI on unix:{socket}\n\
         \n\
         Three things to try:\n\
         \n\
         \x20 1. Open it in a browser, or:\n\
         \x20    send a file:     curl -F file=@/etc/hostname {base}/upload\n\
         \x20    see it stream:   curl -N '{base}/stream?lines=10'\n\
         \x20    part of a file:  curl -i -r 0-9 {base}/files/hello.txt\n\
         \n\
         \x20 2. See how it does:    hostler status --control {control}\n\
         \x20    kill a worker, and look again.\n\
         \n\
         \x20 3. Put nginx in front of it:\n\
         \n\
         \x20    location / {{\n\
         \x20        include fastcgi_params;\n\
         \x20        fastcgi_pass unix:{socket};\n\
         \x20    }}\n\
         \n\
         Ctrl-C ends it.\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demo_at(listen: &str) -> Result<(Loaded, String), String> {
        let scratch = Scratch::new().unwrap();
        set_up(&Demo { listen: listen.to_owned() }, &scratch)
    }

    #[test]
    fn the_set_up_is_sound_and_names_what_it_serves() {
        let (loaded, said) = demo_at("127.0.0.1:0").unwrap();
        let pool = &loaded.pools[0];
        assert_eq!(pool.listen.len(), 2);
        assert_eq!(pool.apps[0].runtime, Runtime::Demo);
        assert_eq!(pool.apps[1].path, "/files");
        assert!(said.contains(&pool.listen[1].address.to_string()), "{said}");
        assert!(said.contains("http://127.0.0.1:0/"));
    }

    #[test]
    fn a_taken_port_is_told_with_what_to_do() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let error = demo_at(&taken.local_addr().unwrap().to_string()).unwrap_err();
        assert!(error.contains("another process listens there") && error.contains("--listen"), "{error}");
    }
}
