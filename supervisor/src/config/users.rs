//! Users and groups: from what is written to what the kernel needs.
//!
//! A user that is named by number keeps the groups of its name, where it has one.

use hostler_worker::control::Identity;
use nix::unistd::{Gid, Group, Uid, User, getegid, geteuid, getgrouplist};
use std::{cell::RefCell, collections::BTreeMap, env, ffi::CString};

/// What the config depends on besides its files.
pub(crate) trait System {
    /// The effective user that Hostler runs as.
    fn caller(&self) -> u32;
    /// A user by name or number.
    fn account(&self, name: &str) -> Option<Account>;
    /// A group by name or number.
    fn group(&self, name: &str) -> Option<u32>;
    /// A variable of Hostler's own environment.
    fn variable(&self, name: &str) -> Option<String>;
}

/// A user of the system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Account {
    /// Its name; the number where it has none.
    pub name: String,
    /// User id.
    pub uid: u32,
    /// Primary group; `None` where the number has no entry.
    pub gid: Option<u32>,
    /// All groups, the primary one among them.
    pub groups: Vec<u32>,
    /// Its home directory.
    pub home: Option<String>,
}

impl Account {
    /// What its processes run as, with another primary group where one is given; `None` where it has no group.
    pub(crate) fn identity(&self, group: Option<u32>) -> Option<Identity> {
        let gid = group.or(self.gid)?;
        let mut groups = self.groups.clone();
        if !groups.contains(&gid) {
            groups.insert(0, gid);
        }
        Some(Identity { uid: self.uid, gid, groups })
    }
}

/// The system that we run on. Each user is looked up once, however many pools name it.
#[derive(Default)]
pub(crate) struct ThisSystem {
    accounts: RefCell<BTreeMap<String, Option<Account>>>,
}

impl System for ThisSystem {
    fn caller(&self) -> u32 {
        geteuid().as_raw()
    }

    fn account(&self, name: &str) -> Option<Account> {
        if let Some(known) = self.accounts.borrow().get(name) {
            return known.clone();
        }
        let account = look_up(name);
        self.accounts.borrow_mut().insert(name.to_owned(), account.clone());
        account
    }

    fn group(&self, name: &str) -> Option<u32> {
        let named = Group::from_name(name).ok().flatten().map(|group| group.gid.as_raw());
        named.or_else(|| name.parse().ok())
    }

    fn variable(&self, name: &str) -> Option<String> {
        env::var(name).ok()
    }
}

/// The user and group that Hostler itself runs as, by number, for those who need no name.
pub(crate) fn myself() -> (u32, u32) {
    (geteuid().as_raw(), getegid().as_raw())
}

fn look_up(name: &str) -> Option<Account> {
    let number: Option<u32> = name.parse().ok();
    let by_number = || number.and_then(|uid| User::from_uid(Uid::from_raw(uid)).ok().flatten());
    let Some(user) = User::from_name(name).ok().flatten().or_else(by_number) else {
        let nameless =
            |uid| Account { name: name.to_owned(), uid, gid: None, groups: Vec::new(), home: None };
        return number.map(nameless);
    };
    let groups = CString::new(user.name.as_str()).ok().and_then(|name| getgrouplist(&name, user.gid).ok());
    Some(Account {
        uid: user.uid.as_raw(),
        gid: Some(user.gid.as_raw()),
        groups: groups.unwrap_or_else(|| vec![user.gid]).into_iter().map(Gid::as_raw).collect(),
        home: user.dir.to_str().map(str::to_owned),
        name: user.name,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_found_by_name_and_by_number_with_the_same_groups() {
        let system = ThisSystem::default();
        let root = system.account("root").unwrap();
        assert_eq!((root.uid, root.gid), (0, Some(0)));
        assert_eq!(system.account("0"), Some(root));
    }

    #[test]
    fn a_number_without_an_entry_has_no_group_of_its_own() {
        let account = ThisSystem::default().account("3999999999").unwrap();
        assert_eq!(account.identity(None), None);
        assert_eq!(account.identity(Some(7)), Some(Identity { uid: 3_999_999_999, gid: 7, groups: vec![7] }));
    }

    #[test]
    fn an_unknown_name_is_nobody() {
        assert_eq!(ThisSystem::default().account("no such user"), None);
        assert_eq!(ThisSystem::default().group("no such group"), None);
    }

    #[test]
    fn another_primary_group_joins_the_groups() {
        let account = Account { name: "a".into(), uid: 1, gid: Some(2), groups: vec![2, 3], home: None };
        assert_eq!(account.identity(Some(9)).unwrap().groups, [9, 2, 3]);
        assert_eq!(account.identity(Some(3)).unwrap().groups, [2, 3]);
    }
}
