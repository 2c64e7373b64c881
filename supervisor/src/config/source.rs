//! A config file's text, and faults that say where in it they are.

use std::{
    fmt,
    path::{Path, PathBuf},
    rc::Rc,
};

/// One thing that is wrong: `FILE:LINE:COLUMN: message`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    /// Where it stands.
    pub place: Place,
    /// What is wrong and what would be right, in one line.
    pub message: String,
}

/// A place in a file; line and column count from 1, the column in characters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Place {
    /// As the user named it.
    pub file: Rc<PathBuf>,
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
}

impl Fault {
    /// Faults of one file in the order of the file.
    pub(crate) fn order(&self) -> (usize, usize) {
        (self.place.line, self.place.column)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file.display(), self.line, self.column)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

/// A file that was read.
#[derive(Debug)]
pub(crate) struct Source {
    path: Rc<PathBuf>,
    text: String,
    lines: Vec<usize>,
}

impl Source {
    /// A file with its text.
    pub(crate) fn new(path: &Path, text: String) -> Source {
        let ends = text.bytes().enumerate().filter(|(_, b)| *b == b'\n').map(|(at, _)| at + 1);
        let lines = std::iter::once(0).chain(ends).collect();
        Source { path: Rc::new(path.to_owned()), text, lines }
    }

    /// What stands in it.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Its name.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The place of the byte `at`.
    pub(crate) fn place(&self, at: usize) -> Place {
        let line = self.lines.partition_point(|start| *start <= at).max(1);
        let start = self.lines.get(line - 1).copied().unwrap_or(0);
        let before = self.text.get(start..at.min(self.text.len())).unwrap_or("");
        Place { file: Rc::clone(&self.path), line, column: before.chars().count() + 1 }
    }

    /// A fault at the byte `at`.
    pub(crate) fn fault(&self, at: usize, message: impl Into<String>) -> Fault {
        Fault { place: self.place(at), message: message.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_counts_lines_and_characters_from_one() {
        let source = Source::new(Path::new("f"), "a\nüb\n\nc".to_owned());
        let at = |byte| (source.place(byte).line, source.place(byte).column);
        assert_eq!(
            [at(0), at(1), at(2), at(4), at(5), at(6), at(7)],
            [(1, 1), (1, 2), (2, 1), (2, 2), (2, 3), (3, 1), (4, 1)]
        );
        assert_eq!(at(99), (4, 2));
    }

    #[test]
    fn an_empty_file_has_a_place() {
        assert_eq!(Source::new(Path::new("f"), String::new()).place(0).to_string(), "f:1:1");
    }
}
