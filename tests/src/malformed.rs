//! Byte sequences that no sound peer sends, each with what must come of it.
//!
//! Always holds: a sequence is complete (the sender waits for what comes, and sends nothing more); its name is
//! unique in its list.

pub mod fastcgi;
pub mod http;

/// What must come of a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// The connection is closed without a byte.
    Closed,
    /// An answer with this status. FastCGI: to request 1; HTTP: and then the connection is closed.
    Status(u16),
    /// FastCGI: END_REQUEST alone, with this protocol status, for request 1.
    Refused(u8),
    /// FastCGI: an UNKNOWN_TYPE record that names this type.
    UnknownType(u8),
}

/// One sequence.
#[derive(Debug, Clone)]
pub struct Case {
    /// What is wrong with it.
    pub name: String,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// What must come of it.
    pub due: Due,
}

impl Case {
    fn new(name: impl Into<String>, bytes: impl Into<Vec<u8>>, due: Due) -> Case {
        Case { name: name.into(), bytes: bytes.into(), due }
    }
}

/// Every proper beginning of `bytes`, the empty one left out, each with the same due.
#[must_use]
pub fn torn(bytes: &[u8], due: Due) -> Vec<Case> {
    let cut = |at| Case::new(format!("torn after {at} bytes"), &bytes[..at], due);
    (1..bytes.len()).map(cut).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn each_list_has_two_hundred_sequences_besides_the_torn_ones() {
        for cases in [fastcgi::cases(), http::cases()] {
            let names: HashSet<_> = cases.iter().map(|case| case.name.as_str()).collect();
            assert_eq!(names.len(), cases.len(), "names are unique");
            let bytes: HashSet<_> = cases.iter().map(|case| case.bytes.as_slice()).collect();
            assert_eq!(bytes.len(), cases.len(), "sequences are unique");
            assert!(cases.len() >= 200, "{}", cases.len());
        }
    }
}
