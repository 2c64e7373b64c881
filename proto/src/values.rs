//! `GET_VALUES` and its answer (FastCGI 4.1).

use crate::{
    Pairs,
    pairs::write_pair,
    record::{Header, Kind, MANAGEMENT_ID},
};

/// Appends the `GET_VALUES_RESULT` record that answers the `GET_VALUES` with this content.
///
/// Names that are not known are left out, as the specification asks; a content that is no list of pairs is
/// answered as far as it could be read. Each known name is answered once. `connections` is what
/// `FCGI_MAX_CONNS` and `FCGI_MAX_REQS` say.
pub fn answer(out: &mut Vec<u8>, content: &[u8], connections: usize) {
    let mut body = Vec::new();
    let most = connections.to_string();
    let mut known = [
        (&b"FCGI_MAX_CONNS"[..], Some(&*most)),
        (b"FCGI_MAX_REQS", Some(&most)),
        (b"FCGI_MPXS_CONNS", Some("0")),
    ];
    for (name, _) in Pairs::new(content).map_while(Result::ok) {
        for (known, value) in &mut known {
            if *known == name
                && let Some(value) = value.take()
            {
                write_pair(&mut body, name, value.as_bytes());
            }
        }
    }
    let header = Header::padded(Kind::GetValuesResult, MANAGEMENT_ID, u16::try_from(body.len()).unwrap_or(0));
    out.extend_from_slice(&header.to_bytes());
    out.extend_from_slice(&body);
    out.resize(out.len() + usize::from(header.padding_length), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(names: &[&[u8]]) -> Vec<(Vec<u8>, Vec<u8>)> {
        let (mut query, mut out) = (Vec::new(), Vec::new());
        for name in names {
            write_pair(&mut query, name, b"");
        }
        answer(&mut out, &query, 1024);
        assert_eq!(out.len() % 8, 0);
        let header = Header::from_bytes(*out.first_chunk().unwrap()).unwrap();
        assert_eq!((header.kind, header.id), (Kind::GetValuesResult, 0));
        let content = &out[8..8 + usize::from(header.content_length)];
        Pairs::new(content).map(|pair| pair.map(|(n, v)| (n.to_vec(), v.to_vec())).unwrap()).collect()
    }

    #[test]
    fn the_three_names_of_the_specification_are_answered() {
        let pairs = answered(&[b"FCGI_MAX_CONNS", b"FCGI_MAX_REQS", b"FCGI_MPXS_CONNS"]);
        let values: Vec<_> = pairs.iter().map(|(_, v)| &v[..]).collect();
        assert_eq!(values, [&b"1024"[..], b"1024", b"0"]);
    }

    #[test]
    fn unknown_names_are_left_out_and_repeated_ones_answered_once() {
        assert_eq!(answered(&[b"FCGI_WHAT", b""]), []);
        assert_eq!(answered(&[&b"FCGI_MAX_REQS"[..]; 9000]).len(), 1);
    }

    #[test]
    fn what_is_no_list_of_pairs_is_answered_as_far_as_it_goes() {
        let mut out = Vec::new();
        answer(&mut out, b"\x0f\x00FCGI_MPXS_CONNS\xff\xff", 1);
        assert_eq!(out.len(), 8 + 24);
        out.clear();
        answer(&mut out, b"\xff", 1);
        assert_eq!(out.len(), 8);
    }
}
