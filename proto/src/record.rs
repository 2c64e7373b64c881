//! Records and their fixed bodies (FastCGI 3.3, 4.2, 5.1, 5.5, 8).
//!
//! Always holds: `from_bytes(to_bytes(x)) == x`.

use crate::Error;

/// `FCGI_VERSION_1`.
pub const VERSION: u8 = 1;
/// The id of management records, which belong to no request (FastCGI 3.3).
pub const MANAGEMENT_ID: u16 = 0;
/// The largest record content that needs no padding to keep records aligned to 8 bytes.
pub const CONTENT_MAX: usize = 65_528;

/// The type of a record (FastCGI 8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // each is named and explained by the specification
pub enum Kind {
    BeginRequest,
    AbortRequest,
    EndRequest,
    Params,
    Stdin,
    Stdout,
    Stderr,
    Data,
    GetValues,
    GetValuesResult,
    UnknownType,
    /// A type that version 1 does not define.
    Other(u8),
}

impl Kind {
    /// The type with this number.
    #[must_use]
    pub fn from_byte(byte: u8) -> Kind {
        match byte {
            1 => Kind::BeginRequest,
            2 => Kind::AbortRequest,
            3 => Kind::EndRequest,
            4 => Kind::Params,
            5 => Kind::Stdin,
            6 => Kind::Stdout,
            7 => Kind::Stderr,
            8 => Kind::Data,
            9 => Kind::GetValues,
            10 => Kind::GetValuesResult,
            11 => Kind::UnknownType,
            other => Kind::Other(other),
        }
    }

    /// The number of this type.
    #[must_use]
    pub fn to_byte(self) -> u8 {
        match self {
            Kind::BeginRequest => 1,
            Kind::AbortRequest => 2,
            Kind::EndRequest => 3,
            Kind::Params => 4,
            Kind::Stdin => 5,
            Kind::Stdout => 6,
            Kind::Stderr => 7,
            Kind::Data => 8,
            Kind::GetValues => 9,
            Kind::GetValuesResult => 10,
            Kind::UnknownType => 11,
            Kind::Other(other) => other,
        }
    }
}

/// The header of a record (FastCGI 3.3). The version is checked, not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// What the record is.
    pub kind: Kind,
    /// The request it belongs to; [`MANAGEMENT_ID`] for none.
    pub id: u16,
    /// Bytes of content that follow.
    pub content_length: u16,
    /// Bytes of padding after the content.
    pub padding_length: u8,
}

impl Header {
    /// Bytes of a header.
    pub const LEN: usize = 8;

    /// A header with padding to a multiple of 8 bytes.
    #[must_use]
    pub fn padded(kind: Kind, id: u16, content_length: u16) -> Header {
        Header { kind, id, content_length, padding_length: (content_length.wrapping_neg() & 7) as u8 }
    }

    /// Reads a header.
    ///
    /// # Errors
    /// [`Error::Version`] for any version but 1.
    #[inline]
    pub fn from_bytes(bytes: [u8; Header::LEN]) -> Result<Header, Error> {
        let [version, kind, id1, id0, length1, length0, padding_length, _reserved] = bytes;
        if version != VERSION {
            return Err(Error::Version(version));
        }
        Ok(Header {
            kind: Kind::from_byte(kind),
            id: u16::from_be_bytes([id1, id0]),
            content_length: u16::from_be_bytes([length1, length0]),
            padding_length,
        })
    }

    /// The bytes of this header.
    #[must_use]
    #[inline]
    pub fn to_bytes(self) -> [u8; Header::LEN] {
        let [id1, id0] = self.id.to_be_bytes();
        let [length1, length0] = self.content_length.to_be_bytes();
        [VERSION, self.kind.to_byte(), id1, id0, length1, length0, self.padding_length, 0]
    }

    /// Bytes of the record after its header.
    #[must_use]
    pub fn rest(self) -> usize {
        usize::from(self.content_length) + usize::from(self.padding_length)
    }
}

/// What the app is asked to be (FastCGI 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Answers a request.
    Responder,
    /// Allows or refuses a request.
    Authorizer,
    /// Answers a request from a file that the web server sends along.
    Filter,
    /// A role that version 1 does not define.
    Other(u16),
}

/// The body of `BEGIN_REQUEST` (FastCGI 5.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BeginRequest {
    /// What the app is asked to be.
    pub role: Role,
    /// `FCGI_KEEP_CONN`: the web server closes the connection, not the app.
    pub keep_conn: bool,
}

impl BeginRequest {
    /// Bytes of the body.
    pub const LEN: usize = 8;

    /// Reads the body. Reserved bytes and unknown flags are ignored.
    #[must_use]
    pub fn from_bytes(bytes: [u8; BeginRequest::LEN]) -> BeginRequest {
        let [role1, role0, flags, ..] = bytes;
        let role = match u16::from_be_bytes([role1, role0]) {
            1 => Role::Responder,
            2 => Role::Authorizer,
            3 => Role::Filter,
            other => Role::Other(other),
        };
        BeginRequest { role, keep_conn: flags & 1 != 0 }
    }

    /// The bytes of the body.
    #[must_use]
    pub fn to_bytes(self) -> [u8; BeginRequest::LEN] {
        let role = match self.role {
            Role::Responder => 1,
            Role::Authorizer => 2,
            Role::Filter => 3,
            Role::Other(other) => other,
        };
        let [role1, role0] = role.to_be_bytes();
        [role1, role0, u8::from(self.keep_conn), 0, 0, 0, 0, 0]
    }
}

/// How a request ended, for the protocol (FastCGI 5.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // each is named and explained by the specification
pub enum ProtocolStatus {
    RequestComplete,
    CantMpxConn,
    Overloaded,
    UnknownRole,
    /// A status that version 1 does not define.
    Other(u8),
}

/// The body of `END_REQUEST` (FastCGI 5.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndRequest {
    /// The exit status that a CGI program would have had.
    pub app_status: u32,
    /// How the request ended.
    pub protocol_status: ProtocolStatus,
}

impl EndRequest {
    /// Bytes of the body.
    pub const LEN: usize = 8;

    /// Reads the body.
    #[must_use]
    pub fn from_bytes(bytes: [u8; EndRequest::LEN]) -> EndRequest {
        let [a3, a2, a1, a0, status, ..] = bytes;
        let protocol_status = match status {
            0 => ProtocolStatus::RequestComplete,
            1 => ProtocolStatus::CantMpxConn,
            2 => ProtocolStatus::Overloaded,
            3 => ProtocolStatus::UnknownRole,
            other => ProtocolStatus::Other(other),
        };
        EndRequest { app_status: u32::from_be_bytes([a3, a2, a1, a0]), protocol_status }
    }

    /// The bytes of the body.
    #[must_use]
    pub fn to_bytes(self) -> [u8; EndRequest::LEN] {
        let [a3, a2, a1, a0] = self.app_status.to_be_bytes();
        let status = match self.protocol_status {
            ProtocolStatus::RequestComplete => 0,
            ProtocolStatus::CantMpxConn => 1,
            ProtocolStatus::Overloaded => 2,
            ProtocolStatus::UnknownRole => 3,
            ProtocolStatus::Other(other) => other,
        };
        [a3, a2, a1, a0, status, 0, 0, 0]
    }

    /// The whole record: header and body.
    #[must_use]
    pub fn to_record(self, id: u16) -> [u8; Header::LEN + EndRequest::LEN] {
        let header = Header { kind: Kind::EndRequest, id, content_length: 8, padding_length: 0 };
        joined(header.to_bytes(), self.to_bytes())
    }
}

/// The record that answers a management record of unknown type (FastCGI 4.2).
#[must_use]
pub fn unknown_type(kind: Kind) -> [u8; Header::LEN + 8] {
    let header = Header { kind: Kind::UnknownType, id: MANAGEMENT_ID, content_length: 8, padding_length: 0 };
    joined(header.to_bytes(), [kind.to_byte(), 0, 0, 0, 0, 0, 0, 0])
}

fn joined(header: [u8; 8], body: [u8; 8]) -> [u8; 16] {
    let mut record = [0; 16];
    for (to, from) in record.iter_mut().zip(header.iter().chain(&body)) {
        *to = *from;
    }
    record
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_survives_the_wire() {
        for byte in 0..=255 {
            let header =
                Header { kind: Kind::from_byte(byte), id: 65535, content_length: 300, padding_length: byte };
            assert_eq!(Header::from_bytes(header.to_bytes()), Ok(header));
            assert_eq!(header.kind.to_byte(), byte);
        }
    }

    #[test]
    fn a_header_has_the_bytes_of_the_specification() {
        let header = Header { kind: Kind::Stdin, id: 0x0102, content_length: 0x0304, padding_length: 5 };
        assert_eq!(header.to_bytes(), [1, 5, 1, 2, 3, 4, 5, 0]);
        assert_eq!(header.rest(), 0x0304 + 5);
    }

    #[test]
    fn another_version_is_refused() {
        assert_eq!(Header::from_bytes([2, 1, 0, 1, 0, 8, 0, 0]), Err(Error::Version(2)));
        assert_eq!(Header::from_bytes(*b"GET / HT"), Err(Error::Version(b'G')));
    }

    #[test]
    fn padding_fills_up_to_eight() {
        for length in 0..64 {
            let header = Header::padded(Kind::Stdout, 1, length);
            assert_eq!(header.rest() % 8, 0);
            assert!(header.padding_length < 8);
        }
        assert_eq!(Header::padded(Kind::Stdout, 1, 65535).padding_length, 1);
    }

    #[test]
    fn begin_request_survives_the_wire_and_has_the_bytes_of_the_specification() {
        for (role, number) in
            [(Role::Responder, 1), (Role::Authorizer, 2), (Role::Filter, 3), (Role::Other(9), 9)]
        {
            for keep_conn in [false, true] {
                let begin = BeginRequest { role, keep_conn };
                assert_eq!(BeginRequest::from_bytes(begin.to_bytes()), begin);
                assert_eq!(begin.to_bytes(), [0, number, u8::from(keep_conn), 0, 0, 0, 0, 0]);
            }
        }
        assert!(!BeginRequest::from_bytes([0, 1, 0xfe, 9, 9, 9, 9, 9]).keep_conn);
    }

    #[test]
    fn end_request_survives_the_wire_and_is_a_record() {
        for (protocol_status, byte) in [
            (ProtocolStatus::RequestComplete, 0),
            (ProtocolStatus::CantMpxConn, 1),
            (ProtocolStatus::Overloaded, 2),
            (ProtocolStatus::UnknownRole, 3),
            (ProtocolStatus::Other(7), 7),
        ] {
            let end = EndRequest { app_status: 0x0102_0304, protocol_status };
            assert_eq!(EndRequest::from_bytes(end.to_bytes()), end);
            assert_eq!(end.to_record(258), [1, 3, 1, 2, 0, 8, 0, 0, 1, 2, 3, 4, byte, 0, 0, 0]);
        }
    }

    #[test]
    fn unknown_type_names_the_type() {
        assert_eq!(unknown_type(Kind::Other(99)), [1, 11, 0, 0, 0, 8, 0, 0, 99, 0, 0, 0, 0, 0, 0, 0]);
    }
}
