//! What a measurement says: tables, checks against a figure, and its section of BENCHMARKS.md.
//!
//! Always holds: a section is written whole, between two comment lines that name it, and carries its date,
//! machine and command; the rest of the file is left as it is.

use hostler_bench::load::Error;
use std::{fmt::Write, fs, path::PathBuf, process::Command};

/// A section in the making.
#[derive(Debug, Default)]
pub(crate) struct Report {
    text: String,
    failed: usize,
}

impl Report {
    /// A line of text, or an empty one.
    pub(crate) fn line(&mut self, line: impl AsRef<str>) {
        self.text.push_str(line.as_ref());
        self.text.push('\n');
    }

    /// A Markdown table.
    pub(crate) fn table(&mut self, head: &[&str], rows: &[Vec<String>]) {
        let wide = |column: usize| {
            rows.iter().filter_map(move |row| row.get(column)).map(|cell| cell.chars().count())
        };
        let cells = head.iter().enumerate().map(|(at, title)| wide(at).chain([title.chars().count()]).max());
        let widths: Vec<usize> = cells.map(Option::unwrap_or_default).collect();
        let row = |cells: Vec<String>| {
            let padded = cells.into_iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
            format!("| {} |", padded.collect::<Vec<_>>().join(" | "))
        };
        self.line(row(head.iter().map(ToString::to_string).collect()));
        self.line(row(widths.iter().map(|width| "-".repeat(*width)).collect()));
        for cells in rows {
            self.line(row(cells.clone()));
        }
        self.line("");
    }

    /// Holds what was measured against a figure: passes where it is at most (or at least) that.
    pub(crate) fn check(&mut self, what: &str, measured: f64, wanted: Wanted) {
        let (passes, words) = match wanted {
            Wanted::AtMost(figure) => (measured <= figure, format!("at most {figure:.2}")),
            Wanted::AtLeast(figure) => (measured >= figure, format!("at least {figure:.2}")),
        };
        self.failed += usize::from(!passes);
        let verdict = if passes { "pass" } else { "FAIL" };
        self.line(format!("- {verdict}: {what}: {measured:.2}, wanted {words}"));
    }

    /// Prints the section; with `write`, puts it into BENCHMARKS.md too. Whether every check passed.
    pub(crate) fn finish(self, name: &str, command: &str, write: bool) -> Result<bool, Error> {
        println!("{}", self.text);
        if write {
            let section = format!("{}\n`{command}`\n\n{}", surroundings(), self.text);
            let path = file();
            let error = |source| Error::system(format!("writing {}", path.display()), source);
            let old = fs::read_to_string(&path).map_err(error)?;
            fs::write(&path, replaced(&old, name, &section)).map_err(error)?;
        }
        Ok(self.failed == 0)
    }
}

/// What a figure is held against.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wanted {
    /// Passes at or under it.
    AtMost(f64),
    /// Passes at or over it.
    AtLeast(f64),
}

/// BENCHMARKS.md at the root of the repository.
fn file() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../BENCHMARKS.md"))
}

/// `old` with the section `name` replaced, or appended where there was none.
fn replaced(old: &str, name: &str, section: &str) -> String {
    let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->\n"));
    let before = old.split_once(&begin).map(|(before, _)| before);
    let after = old.split_once(&end).map(|(_, after)| after);
    let mut text = before.unwrap_or(old).to_string();
    if before.is_none() {
        let _ = write!(text, "\n## {name}\n");
    }
    let _ = write!(text, "{begin}{}\n{end}{}", section.trim_end(), after.unwrap_or_default());
    text
}

/// Date, processor, cores, kernel, distribution, compiler.
fn surroundings() -> String {
    let said = |program: &str, arguments: &[&str]| {
        let output =
            Command::new(program).args(arguments).output().map(|output| output.stdout).unwrap_or_default();
        String::from_utf8_lossy(&output).trim().to_string()
    };
    let value = |path: &str, key: &str| {
        let text = fs::read_to_string(path).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with(key)).unwrap_or_default();
        line.split([':', '=']).nth(1).unwrap_or_default().trim().trim_matches('"').to_string()
    };
    let processor = value("/proc/cpuinfo", "model name");
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    format!(
        "Measured {} on {cores} cores of {processor}, Linux {}, {}, {}.\n",
        said("date", &["--utc", "+%Y-%m-%d %H:%M UTC"]),
        said("uname", &["-r"]),
        value("/etc/os-release", "PRETTY_NAME"),
        said("rustc", &["--version"]),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_replaced_and_the_rest_stays() {
        let first = replaced("# Title\n", "a", "one");
        let both = replaced(&first, "b", "two");
        let again = replaced(&both, "a", "three\n");
        assert!(again.starts_with("# Title\n\n## a\n<!-- a -->\nthree\n<!-- end of a -->\n"), "{again}");
        assert!(again.ends_with("## b\n<!-- b -->\ntwo\n<!-- end of b -->\n") && !again.contains("one"));
    }

    #[test]
    fn a_figure_that_is_missed_fails_the_report() {
        let mut report = Report::default();
        report.check("ratio", 1.0, Wanted::AtMost(1.0));
        assert_eq!(report.failed, 0);
        report.check("ratio", 0.79, Wanted::AtLeast(0.8));
        assert_eq!(report.failed, 1);
    }
}
