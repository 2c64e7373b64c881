//! munin under `hostler run` behind nginx, as its example config has it: CGI programs whose pages are made from what
//! munin has gathered, here from a node of one plugin.

use hostler_tests::{
    place::{Place, root},
    site::Site,
    web::{Front, Kind, pool},
};
use nix::{
    sys::signal::Signal,
    unistd::{User, chown},
};
use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    os::unix::process::CommandExt,
    path::Path,
    process::Command,
    thread,
};

const TITLE: &str = "Visits of the site";

/// One conversation of a munin node.
fn node(stream: TcpStream) -> std::io::Result<()> {
    let mut to = stream.try_clone()?;
    to.write_all(b"# munin node at box.example\n")?;
    for line in BufReader::new(stream).lines() {
        let answer = match line?.split_whitespace().next() {
            Some("cap") => "cap multigraph dirtyconfig\n".to_owned(),
            Some("nodes") => "box.example\n.\n".to_owned(),
            Some("list") => "visits\n".to_owned(),
            Some("config") => {
                format!(
                    "graph_title {TITLE}\ngraph_vlabel visits\ngraph_category web\nvisits.label visits\n.\n"
                )
            }
            Some("fetch") => "visits.value 42\n.\n".to_owned(),
            _ => return Ok(()),
        };
        to.write_all(answer.as_bytes())?;
    }
    Ok(())
}

/// Gathers once, as munin's cron job does, into directories of `place`.
fn gather(place: &Place) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || listener.incoming().flatten().for_each(|stream| drop(node(stream))));
    let mut config = format!(
        "graph_strategy cgi\nhtml_strategy cgi\n[box.example]\naddress 127.0.0.1\nport {port}\nuse_node_name yes\n"
    );
    for (key, directory) in
        [("db", "db"), ("html", "html"), ("log", "log"), ("run", "run"), ("cgitmp", "tmp")]
    {
        let path = place.path(&format!("munin/{directory}"));
        fs::create_dir_all(&path).unwrap();
        config.insert_str(0, &format!("{key}dir {}\n", path.display()));
    }
    let config = place.file("munin/munin.conf", config);
    give(&place.path("munin"));
    for step in ["update", "limits", "html"] {
        let mut command = Command::new(format!("/usr/share/munin/munin-{step}"));
        command.arg("--config").arg(&config).current_dir("/");
        if root() {
            let user = web();
            command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
        }
        let output = command.output().expect("start munin");
        assert!(output.status.success(), "{step}: {output:?}");
    }
}

fn web() -> User {
    User::from_name("www-data").unwrap().unwrap()
}

/// Gives a directory to whom workers become.
fn give(directory: &Path) {
    if !root() {
        return;
    }
    chown(directory, Some(web().uid), Some(web().gid)).unwrap();
    for entry in fs::read_dir(directory).unwrap().flatten().filter(|entry| entry.path().is_dir()) {
        give(&entry.path());
    }
}

#[test]
fn munin_makes_pages_and_graphs_of_what_it_has_gathered() {
    let place = Place::new();
    gather(&place);
    let config = pool("munin").replace("/etc/munin/munin.conf", "{dir}/munin/munin.conf");
    let site = Site::start_in(place, &config);
    fs::create_dir_all(site.place.path("site")).unwrap();
    let front = Front::start(Kind::Nginx, &site.place.path("munin.sock"), &site.place.path("site"));
    let mut client = front.connect();

    let overview = client.get("/munin-cgi/munin-cgi-html/");
    assert!(overview.status == 200 && overview.text().contains("box.example"), "{}", overview.text());
    let page = client.get("/munin-cgi/munin-cgi-html/example/box.example/").text();
    let graph = "/munin-cgi/munin-cgi-graph/example/box.example/visits-day.png";
    assert!(page.contains(TITLE) && page.contains(graph), "{page}");
    let style = client.get("/munin-cgi/munin-cgi-html/static/style-new.css");
    assert_eq!((style.status, style.field("content-type")), (200, Some("text/css; charset=utf-8")));

    let image = client.get(graph);
    assert_eq!((image.status, image.field("content-type")), (200, Some("image/png")));
    assert!(image.body.starts_with(b"\x89PNG\r\n\x1a\n") && image.body.len() > 2000, "{}", image.body.len());
    assert_eq!(client.get("/munin-cgi/munin-cgi-graph/example/none/visits-day.png").status, 404);
    assert_eq!(client.get("/munin-cgi/none").status, 404);
    site.stop(Signal::SIGTERM);
}
