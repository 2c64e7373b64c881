//! What `hostler serve` makes of a directory or a program: which runtime, and why.
//!
//! Looks at names and modes alone; runs nothing.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};
use toml::{Table, Value};

/// An app as it would stand in the config, with the reason for it.
#[derive(Debug, PartialEq)]
pub(crate) struct Guess {
    /// Keys of the config: runtime, and what it needs.
    pub keys: Table,
    /// Said to the user.
    pub said: String,
}

/// Where programs are looked for.
pub(crate) struct Programs<'p>(pub &'p [PathBuf]);

impl Programs<'_> {
    /// The first executable file with one of these names.
    fn find(&self, names: &[&str]) -> Option<String> {
        let places = names.iter().flat_map(|name| self.0.iter().map(move |directory| directory.join(name)));
        places.filter(|path| is_program(path)).find_map(|path| path.to_str().map(str::to_owned))
    }
}

/// The directories of PATH.
pub(crate) fn path() -> Vec<PathBuf> {
    std::env::var_os("PATH").map(|path| std::env::split_paths(&path).collect()).unwrap_or_default()
}

/// What runs `what`, which is absolute, under the path `prefix`.
///
/// # Errors
/// Why nothing can, and what to do.
pub(crate) fn guess(what: &Path, prefix: &str, programs: &Programs<'_>) -> Result<Guess, String> {
    let meta = fs::metadata(what).map_err(|e| format!("look at {}: {e}", what.display()))?;
    let text = what.to_str().ok_or_else(|| format!("{} is not UTF-8", what.display()))?;
    if meta.is_file() {
        return program(what, text);
    }
    let names = names(what)?;
    let has = |wanted: &[&str]| names.iter().any(|name| wanted.contains(&name.to_lowercase().as_str()));
    let ends = |end: &str| names.iter().find(|name| name.to_lowercase().ends_with(end));
    if has(&["index.php"]) {
        return php(text, programs);
    }
    if has(&["web.config", "global.asax"]) || ends(".aspx").is_some() {
        return asp(text, prefix, programs);
    }
    if let Some(name) = ends(".cgi") {
        let said = format!("{text} holds {name}: CGI scripts (runtime cgi)");
        return Ok(Guess { keys: keys("cgi", text), said });
    }
    Ok(files(text, &format!("{text} holds no program that is known: static files (runtime files)")))
}

/// What the user said it is.
///
/// # Errors
/// Why it cannot be that.
pub(crate) fn as_told(
    runtime: &str,
    what: &Path,
    prefix: &str,
    programs: &Programs<'_>,
) -> Result<Guess, String> {
    let text = what.to_str().ok_or_else(|| format!("{} is not UTF-8", what.display()))?;
    let said = format!("{text} as told (runtime {runtime})");
    let need = |file: bool| match (what.is_file(), what.is_dir()) {
        (true, _) if file => Ok(()),
        (_, true) if !file => Ok(()),
        _ => Err(format!(
            "runtime {runtime} needs a {}, not {text}",
            if file { "program" } else { "directory" }
        )),
    };
    match runtime {
        "files" => need(false).map(|()| Guess { said, ..files(text, "") }),
        "cgi" => need(false).map(|()| Guess { keys: keys("cgi", text), said }),
        "fastcgi" if what.is_dir() => {
            let guess = guess(what, prefix, programs)?;
            match guess.keys.get("runtime").and_then(Value::as_str) {
                Some("fastcgi") => Ok(guess),
                _ => Err(format!("no FastCGI program is known for {text}; name the program instead")),
            }
        }
        _ => need(true).map(|()| Guess { keys: with_command(runtime, vec![text.into()]), said }),
    }
}

fn program(what: &Path, text: &str) -> Result<Guess, String> {
    if !is_program(what) {
        return Err(format!("{text} is a file that cannot be executed; name its directory, or chmod +x it"));
    }
    let said =
        format!("{text} is a program: a worker of its own (runtime native; --runtime fastcgi if it is not)");
    Ok(Guess { keys: with_command("native", vec![text.into()]), said })
}

fn php(root: &str, programs: &Programs<'_>) -> Result<Guess, String> {
    let Some(php) = programs.find(&["php-cgi"]) else {
        return Err(format!(
            "{root} holds index.php, and there is no php-cgi to run it; \"apt install php-cgi\" brings it, or \
             --runtime files serves the files as they are"
        ));
    };
    let said = format!("{root} holds index.php: PHP, run by {php} (runtime fastcgi)");
    let mut keys = with_command("fastcgi", vec![php.into()]);
    keys.insert("root".into(), root.into());
    keys.insert("index".into(), Value::Array(vec!["index.php".into()]));
    // One request at a time each, replaced by Hostler and not by itself.
    let env = [("PHP_FCGI_CHILDREN", "0"), ("PHP_FCGI_MAX_REQUESTS", "0")];
    let env: Table = env.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
    keys.insert("env".into(), Value::Table(env));
    Ok(Guess { keys, said })
}

fn asp(root: &str, prefix: &str, programs: &Programs<'_>) -> Result<Guess, String> {
    let names = ["fastcgi-mono-server4", "fastcgi-mono-server"];
    let Some(mono) = programs.find(&names) else {
        return Err(format!(
            "{root} looks like ASP.NET, and there is no fastcgi-mono-server4 to run it; \"apt install \
             mono-fastcgi-server4\" brings it, or --runtime files serves the files as they are"
        ));
    };
    let said = format!("{root} looks like ASP.NET: run by {mono} (runtime fastcgi)");
    let applications = format!("/applications={prefix}:{root}");
    let mut keys = with_command("fastcgi", vec![mono.into(), "/socket=pipe".into(), applications.into()]);
    keys.insert("keep_connections".into(), false.into());
    Ok(Guess { keys, said })
}

fn files(root: &str, said: &str) -> Guess {
    let mut keys = keys("files", root);
    keys.insert("listing".into(), true.into());
    Guess { keys, said: said.to_owned() }
}

fn keys(runtime: &str, root: &str) -> Table {
    Table::from_iter([("runtime".to_owned(), runtime.into()), ("root".to_owned(), root.into())])
}

fn with_command(runtime: &str, command: Vec<Value>) -> Table {
    Table::from_iter([("runtime".to_owned(), runtime.into()), ("command".to_owned(), Value::Array(command))])
}

fn names(directory: &Path) -> Result<Vec<String>, String> {
    let failed = |e: std::io::Error| format!("look into {}: {e}", directory.display());
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        names.push(entry.map_err(failed)?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(names: &[&str]) -> tempfile::TempDir {
        let place = tempfile::tempdir().unwrap();
        for name in names {
            let path = place.path().join(name);
            fs::write(&path, "x").unwrap();
            let mode = if name.contains('.') && !name.ends_with(".cgi") { 0o644 } else { 0o755 };
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        }
        place
    }

    fn runtime(guess: &Result<Guess, String>) -> &str {
        guess.as_ref().unwrap().keys["runtime"].as_str().unwrap()
    }

    #[test]
    fn the_runtime_is_guessed_from_what_lies_there() {
        let bin = place(&["php-cgi", "fastcgi-mono-server4"]);
        let path = [bin.path().to_owned()];
        for (names, expected) in [
            (&["a.txt"][..], "files"),
            (&[], "files"),
            (&["index.html", "a.cgi"], "cgi"),
            (&["index.php", "a.cgi"], "fastcgi"),
            (&["Default.ASPX"], "fastcgi"),
            (&["Web.config"], "fastcgi"),
        ] {
            let there = place(names);
            let guess = guess(there.path(), "/", &Programs(&path));
            assert_eq!(runtime(&guess), expected, "{names:?}");
            assert!(guess.unwrap().said.contains(expected));
        }
    }

    #[test]
    fn a_program_that_is_missing_is_named_with_its_package() {
        let there = place(&["index.php"]);
        let error = guess(there.path(), "/", &Programs(&[])).unwrap_err();
        assert!(error.contains("apt install php-cgi"), "{error}");
        let there = place(&["a.aspx"]);
        let error = guess(there.path(), "/", &Programs(&[])).unwrap_err();
        assert!(error.contains("apt install mono-fastcgi-server4"), "{error}");
    }

    #[test]
    fn a_program_is_native_and_a_plain_file_is_nothing() {
        let there = place(&["app", "notes.txt"]);
        assert_eq!(runtime(&guess(&there.path().join("app"), "/", &Programs(&[]))), "native");
        assert!(guess(&there.path().join("notes.txt"), "/", &Programs(&[])).is_err());
        assert!(guess(&there.path().join("none"), "/", &Programs(&[])).is_err());
    }

    #[test]
    fn what_the_user_says_goes_where_it_can() {
        let there = place(&["index.php", "app"]);
        let (directory, app) = (there.path(), there.path().join("app"));
        let told = |runtime: &str, what: &Path| as_told(runtime, what, "/", &Programs(&[]));
        assert_eq!(runtime(&told("files", directory)), "files");
        assert_eq!(runtime(&told("fastcgi", &app)), "fastcgi");
        assert_eq!(runtime(&told("native", &app)), "native");
        for (runtime, what) in [("files", app.as_path()), ("native", directory), ("fastcgi", directory)] {
            assert!(told(runtime, what).is_err(), "{runtime}");
        }
    }

    #[test]
    fn mono_is_told_its_prefix() {
        let bin = place(&["fastcgi-mono-server4"]);
        let there = place(&["a.aspx"]);
        let guess = guess(there.path(), "/forum", &Programs(&[bin.path().to_owned()])).unwrap();
        let command = guess.keys["command"].as_array().unwrap();
        assert_eq!(command[1].as_str(), Some("/socket=pipe"));
        assert_eq!(guess.keys["keep_connections"].as_bool(), Some(false));
        assert_eq!(command[2].as_str().unwrap(), format!("/applications=/forum:{}", there.path().display()));
    }
}
