//! The family of files with sections and `key = value`: php-fpm, uWSGI, systemd units.

/// A section with its entries in order; the part before any section has no name.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Section {
    /// What stands in brackets.
    pub name: String,
    /// Keys and values; a key may come several times.
    pub entries: Vec<(String, String)>,
}

impl Section {
    /// The last value of a key.
    pub(super) fn last(&self, key: &str) -> Option<&str> {
        self.entries.iter().rfind(|(known, _)| known == key).map(|(_, value)| value.as_str())
    }
}

/// Reads all sections. Comments begin with `;` or `#`; a `\` at the end goes on in the next line; quotes around a
/// whole value are taken off.
pub(super) fn read(text: &str) -> Vec<Section> {
    let mut sections = vec![Section { name: String::new(), entries: Vec::new() }];
    let joined = text.replace("\\\n", " ");
    for line in joined.lines().map(str::trim) {
        if line.is_empty() || line.starts_with([';', '#']) {
            continue;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            sections.push(Section { name: name.trim().to_owned(), entries: Vec::new() });
            continue;
        }
        let (key, value) = line.split_once('=').unwrap_or((line, ""));
        if let Some(section) = sections.last_mut() {
            section.entries.push((key.trim().to_owned(), unquoted(value.trim())));
        }
    }
    sections.retain(|section| !section.name.is_empty() || !section.entries.is_empty());
    sections
}

fn unquoted(value: &str) -> String {
    for quote in ['"', '\''] {
        let inner = value.strip_prefix(quote).and_then(|rest| rest.split_once(quote));
        // What follows the closing quote may be a comment alone.
        if let Some((inner, rest)) = inner
            && (rest.trim().is_empty() || rest.trim_start().starts_with(';'))
        {
            return inner.to_owned();
        }
    }
    // A comment behind a value needs a space in front of it; an empty one stands behind many a value of php-fpm.
    value.split(" ;").next().unwrap_or(value).trim_end_matches(';').trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_keys_comments_and_quotes_are_told_apart() {
        let text =
            "; c\n# c\nfree = 1\n[www] ; c\na = b ; c\nc[x] = \"d ; e\" ; f\nflag\ng = h \\\n i\na = z;y\n";
        let sections = read(text);
        assert_eq!(sections.len(), 2);
        assert_eq!(sections[0].entries, [("free".into(), "1".into())]);
        let entries: Vec<(&str, &str)> =
            sections[1].entries.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(entries, [("a", "b"), ("c[x]", "d ; e"), ("flag", ""), ("g", "h   i"), ("a", "z;y")]);
        assert_eq!(sections[1].last("a"), Some("z;y"));
    }
}
