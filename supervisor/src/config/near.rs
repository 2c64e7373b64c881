//! "Did you mean": the known word that a mistyped one is closest to.

/// `; did you mean "user"?`, or nothing where no known word is near.
pub(crate) fn hint<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> String {
    match nearest(word, known) {
        Some(near) => format!("; did you mean \"{near}\"?"),
        None => String::new(),
    }
}

/// The nearest of the known words, where one is near enough to be meant.
pub(crate) fn nearest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let word = word.to_lowercase().replace(['-', '.'], "_");
    let allowed = (word.chars().count() / 3).max(1);
    let distance = |k: &str| strsim::damerau_levenshtein(&word, &k.to_lowercase());
    let all = known.into_iter().map(|k| (distance(k), k));
    all.filter(|(d, _)| *d <= allowed).min_by_key(|(d, _)| *d).map(|(_, k)| k)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_misses_are_found_and_far_ones_are_not() {
        let known = ["user", "umask", "request_timeout", "listen"];
        assert_eq!(nearest("usr", known), Some("user"));
        assert_eq!(nearest("request-timeout", known), Some("request_timeout"));
        assert_eq!(nearest("Listen", known), Some("listen"));
        assert_eq!(nearest("request_timeuot", known), Some("request_timeout"));
        assert_eq!(nearest("colour", known), None);
        assert_eq!(hint("usr", known), "; did you mean \"user\"?");
        assert_eq!(hint("zzz", known), "");
    }
}
