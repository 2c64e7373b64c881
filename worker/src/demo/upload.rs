//! What was sent to the demo: each field counted and summed as it streams by, and kept nowhere.
//!
//! Always holds: memory does not grow with the body; the body's media type decides how it is read, and a body
//! that is no form counts as one field without a name.

use super::{
    cksum::Cksum,
    multipart::{Event, Multipart},
};
use std::io::{self, Read};

/// Bytes taken from the body at once.
const PIECE: usize = 32 * 1024;

/// One field or file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Field {
    /// The field's name; empty for a body that is no form.
    pub name: String,
    /// The file's name, where there is one.
    pub file_name: Option<String>,
    /// Its length and checksum.
    pub sum: Cksum,
}

/// Why there is no account of a body.
pub(super) enum Fault {
    /// The client broke the format; said in the answer.
    Format(&'static str),
    /// The body could not be read.
    Read(io::Error),
}

/// Reads `body` to its end.
pub(super) fn account(content_type: &[u8], body: &mut dyn Read) -> Result<Vec<Field>, Fault> {
    let mut multipart = Multipart::new(content_type);
    let mut fields = Vec::new();
    if multipart.is_none() {
        fields.push(Field { name: String::new(), file_name: None, sum: Cksum::default() });
    }
    let mut piece = vec![0; PIECE];
    loop {
        let bytes = match body.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => piece.get(..count).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(Fault::Read(error)),
        };
        match &mut multipart {
            Some(multipart) => {
                multipart.push(bytes, &mut |event| take(&mut fields, event)).map_err(Fault::Format)?
            }
            None => take(&mut fields, Event::Data(bytes)),
        }
    }
    multipart.map_or(Ok(()), |multipart| multipart.finish()).map_err(Fault::Format)?;
    Ok(fields)
}

fn take(fields: &mut Vec<Field>, event: Event<'_>) {
    match event {
        Event::Part { name, file_name } => fields.push(Field { name, file_name, sum: Cksum::default() }),
        Event::Data(bytes) => {
            if let Some(field) = fields.last_mut() {
                field.sum.update(bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_is_accounted_field_by_field() {
        let body = b"--b\r\nContent-Disposition: form-data; name=\"note\"\r\n\r\nhello\n\r\n\
            --b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"x\"\r\n\r\n123456789\r\n--b--\r\n";
        let fields = account(b"multipart/form-data; boundary=b", &mut &body[..]).ok().unwrap();
        let told: Vec<_> = fields.iter().map(|f| (f.name.as_str(), f.sum.length, f.sum.value())).collect();
        assert_eq!(told, [("note", 6, 3_015_617_425), ("file", 9, 930_766_865)]);
        assert_eq!(fields[1].file_name.as_deref(), Some("x"));
    }

    #[test]
    fn a_body_that_is_no_form_counts_as_one_field() {
        let fields = account(b"application/octet-stream", &mut &b"hello\n"[..]).ok().unwrap();
        assert_eq!((fields.len(), fields[0].sum.value()), (1, 3_015_617_425));
        assert_eq!(account(b"", &mut &b""[..]).ok().unwrap().len(), 1);
    }

    #[test]
    fn a_broken_form_is_a_fault_of_its_format() {
        assert!(matches!(
            account(b"multipart/form-data; boundary=b", &mut &b"--b"[..]),
            Err(Fault::Format(_))
        ));
    }
}
