//! A pool as it is put together by an import, and its text with comments.

use std::net::SocketAddr;
use toml::Value;

/// One pool.
#[derive(Debug, Default)]
pub(super) struct Draft {
    /// Its name; what a name must not hold is replaced.
    pub name: String,
    from: String,
    keys: Vec<(&'static str, Value, Option<String>)>,
    workers: Vec<(&'static str, Value)>,
    memory: Vec<(&'static str, Value)>,
    notes: Vec<String>,
}

impl Draft {
    /// An empty pool that is made from `from`.
    pub(super) fn new(name: &str, from: &str) -> Draft {
        let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let name: String = name.chars().map(|c| if good(c) { c } else { '-' }).take(60).collect();
        let name = name.trim_start_matches('.').to_owned();
        let name = if name.is_empty() { "imported".to_owned() } else { name };
        Draft { name, from: from.to_owned(), ..Draft::default() }
    }

    /// Sets a key of the pool; the last one counts.
    pub(super) fn set(&mut self, key: &'static str, value: impl Into<Value>) {
        let value = value.into();
        match self.keys.iter_mut().find(|(known, ..)| *known == key) {
            Some(entry) => entry.1 = value,
            None => self.keys.push((key, value, None)),
        }
    }

    /// Sets a key of the pool, with a remark behind it.
    pub(super) fn set_with(&mut self, key: &'static str, value: impl Into<Value>, remark: impl Into<String>) {
        self.set(key, value);
        if let Some(entry) = self.keys.iter_mut().find(|(known, ..)| *known == key) {
            entry.2 = Some(remark.into());
        }
    }

    /// What a key of the pool has been set to.
    pub(super) fn value(&self, key: &str) -> Option<&Value> {
        self.keys.iter().find(|(known, ..)| *known == key).map(|(_, value, _)| value)
    }

    /// Sees to it that each address of `listen` is one: a host's name and a placeholder are none.
    pub(super) fn settle_addresses(&mut self) {
        let Some((_, Value::Array(entries), _)) = self.keys.iter_mut().find(|(key, ..)| *key == "listen")
        else {
            return;
        };
        let mut notes = Vec::new();
        for address in entries.iter_mut().filter_map(|entry| entry.get_mut("address")) {
            let Some(text) = address.as_str().and_then(|text| text.strip_prefix("tcp:")) else { continue };
            if text.parse::<SocketAddr>().is_ok() {
                continue;
            }
            let (host, port) = text.rsplit_once(':').unwrap_or((text, ""));
            let chosen = format!("127.0.0.1:{}", port.parse::<u16>().unwrap_or(9000));
            if host != "localhost" || !chosen.ends_with(port) {
                notes.push(format!(
                    "{text}: is no address but a name or a placeholder: {chosen} stands in its place"
                ));
            }
            *address = format!("tcp:{chosen}").into();
        }
        self.notes.append(&mut notes);
    }

    /// Adds to a table of texts (`env`).
    pub(super) fn add_to_map(&mut self, key: &'static str, name: &str, value: &str) {
        let mut map = match self.value(key) {
            Some(Value::Table(map)) => map.clone(),
            _ => toml::Table::new(),
        };
        map.insert(name.to_owned(), value.into());
        self.set(key, Value::Table(map));
    }

    /// Adds to a list.
    pub(super) fn add_to_list(&mut self, key: &'static str, value: impl Into<Value>) {
        let mut list = match self.value(key) {
            Some(Value::Array(list)) => list.clone(),
            _ => Vec::new(),
        };
        list.push(value.into());
        self.set(key, Value::Array(list));
    }

    /// Sets a key of `[pool.NAME.workers]`.
    pub(super) fn worker(&mut self, key: &'static str, value: impl Into<Value>) {
        self.workers.push((key, value.into()));
    }

    /// Sets a key of `[pool.NAME.memory]`.
    pub(super) fn memory(&mut self, key: &'static str, value: impl Into<Value>) {
        self.memory.push((key, value.into()));
    }

    /// Says what could not be carried over, and why.
    pub(super) fn note(&mut self, setting: &str, why: &str) {
        self.notes.push(format!("{setting}: {why}"));
    }

    /// TOML with comments.
    pub(super) fn text(&self) -> String {
        let mut text = format!("# From {}.\n[pool.{}]\n", comment(&self.from), quoted_name(&self.name));
        for (key, value, remark) in &self.keys {
            if let Some(remark) = remark {
                text.push_str(&format!("# {}\n", comment(remark)));
            }
            text.push_str(&format!("{key} = {value}\n"));
        }
        for (table, keys) in [("workers", &self.workers), ("memory", &self.memory)] {
            if !keys.is_empty() {
                text.push_str(&format!("\n[pool.{}.{table}]\n", quoted_name(&self.name)));
                keys.iter().for_each(|(key, value)| text.push_str(&format!("{key} = {value}\n")));
            }
        }
        if !self.notes.is_empty() {
            text.push_str("\n# Not carried over:\n");
            self.notes.iter().for_each(|note| text.push_str(&format!("#   {}\n", comment(note))));
        }
        text
    }
}

/// A name with a dot in it must be quoted, or TOML takes it for two.
fn quoted_name(name: &str) -> String {
    if name.contains('.') { format!("\"{name}\"") } else { name.to_owned() }
}

/// What stands in a comment cannot end it.
fn comment(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_cannot_become_config() {
        let mut draft = Draft::new("a b/../c", "x\n[pool.evil]");
        draft.note("y\nuser = \"root\"", "no");
        draft.set("umask", "0022\"\nuser = \"root");
        let text = draft.text();
        assert!(text.parse::<toml::Table>().unwrap()["pool"].get("evil").is_none());
        let pool = &text.parse::<toml::Table>().unwrap()["pool"]["a-b-..-c"];
        assert!(pool.get("user").is_none());
        assert_eq!(pool["umask"].as_str(), Some("0022\"\nuser = \"root"));
    }
}
