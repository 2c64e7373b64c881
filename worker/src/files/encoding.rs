//! The Accept-Encoding request header (RFC 9110, section 12.5.3): which stored form of a file a client prefers.
//!
//! Does no I/O.

/// A content coding of which files may lie ready beside the plain ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Coding {
    /// Brotli, `x.br`.
    Brotli,
    /// gzip, `x.gz`.
    Gzip,
}

impl Coding {
    /// Its name in Content-Encoding.
    pub(super) fn name(self) -> &'static str {
        match self {
            Coding::Brotli => "br",
            Coding::Gzip => "gzip",
        }
    }

    /// What its files' names end with.
    pub(super) fn suffix(self) -> &'static str {
        match self {
            Coding::Brotli => ".br",
            Coding::Gzip => ".gz",
        }
    }
}

/// The codings to look for, the preferred one first; those that the client likes less than the plain file, or
/// does not accept, are not among them.
pub(super) fn accepted(header: Option<&[u8]>) -> impl Iterator<Item = Coding> {
    let weights = header.map(Weights::from_header).unwrap_or_default();
    let brotli = weights.brotli.or(weights.any).unwrap_or(0);
    let gzip = weights.gzip.or(weights.any).unwrap_or(0);
    let plain = weights.identity.unwrap_or(0);
    let order = if gzip > brotli {
        [(Coding::Gzip, gzip), (Coding::Brotli, brotli)]
    } else {
        [(Coding::Brotli, brotli), (Coding::Gzip, gzip)]
    };
    order.into_iter().filter(move |&(_, weight)| weight > 0 && weight >= plain).map(|(coding, _)| coding)
}

/// Weights in thousandths; `None` where a coding is not named.
#[derive(Default)]
struct Weights {
    brotli: Option<u16>,
    gzip: Option<u16>,
    identity: Option<u16>,
    any: Option<u16>,
}

impl Weights {
    fn from_header(header: &[u8]) -> Weights {
        let mut weights = Weights::default();
        for element in header.split(|&b| b == b',') {
            let mut parts = element.split(|&b| b == b';').map(<[u8]>::trim_ascii);
            let name = parts.next().unwrap_or_default();
            let Some(weight) = parts.next().map_or(Some(1000), thousandths) else { continue };
            match () {
                () if name.eq_ignore_ascii_case(b"br") => weights.brotli = Some(weight),
                () if name.eq_ignore_ascii_case(b"gzip") || name.eq_ignore_ascii_case(b"x-gzip") => {
                    weights.gzip = Some(weight);
                }
                () if name.eq_ignore_ascii_case(b"identity") => weights.identity = Some(weight),
                () if name == b"*" => weights.any = Some(weight),
                () => {}
            }
        }
        weights
    }
}

/// `q=0.25` as 250 (RFC 9110, section 12.4.2); `None` where it is not a weight.
fn thousandths(parameter: &[u8]) -> Option<u16> {
    let value = parameter.strip_prefix(b"q=").or_else(|| parameter.strip_prefix(b"Q="))?;
    let (whole, decimals) = match value.split_first()? {
        (&whole @ (b'0' | b'1'), []) => (whole, &[][..]),
        (&whole @ (b'0' | b'1'), [b'.', decimals @ ..]) if decimals.len() <= 3 => (whole, decimals),
        _ => return None,
    };
    let mut weight = u16::from(whole - b'0') * 1000;
    for (&digit, scale) in decimals.iter().zip([100, 10, 1]) {
        weight += digit.is_ascii_digit().then(|| u16::from(digit - b'0') * scale)?;
    }
    (weight <= 1000).then_some(weight)
}

#[cfg(test)]
mod tests {
    use super::{Coding::*, *};

    fn order(header: &str) -> Vec<Coding> {
        accepted(Some(header.as_bytes())).collect()
    }

    #[test]
    fn a_client_that_says_nothing_gets_the_plain_file() {
        assert_eq!(accepted(None).count(), 0);
        assert_eq!(order(""), []);
        assert_eq!(order("deflate, zstd"), []);
    }

    #[test]
    fn brotli_comes_first_among_equals_and_weights_decide_otherwise() {
        assert_eq!(order("gzip, deflate, br"), [Brotli, Gzip]);
        assert_eq!(order("gzip;q=1.0, br;q=0.5"), [Gzip, Brotli]);
        assert_eq!(order("br;q=0.001"), [Brotli]);
        assert_eq!(order("GZIP"), [Gzip]);
        assert_eq!(order("x-gzip ; q=0.8"), [Gzip]);
    }

    #[test]
    fn a_coding_with_weight_zero_is_not_sent() {
        assert_eq!(order("br;q=0, gzip"), [Gzip]);
        assert_eq!(order("br;q=0.000, gzip;q=0"), []);
        assert_eq!(order("*;q=0"), []);
        assert_eq!(order("*;q=0, gzip"), [Gzip]);
    }

    #[test]
    fn a_star_stands_for_what_is_not_named() {
        assert_eq!(order("*"), [Brotli, Gzip]);
        assert_eq!(order("br;q=0, *;q=0.5"), [Gzip]);
    }

    #[test]
    fn a_preferred_plain_file_is_respected() {
        assert_eq!(order("identity, gzip;q=0.5"), []);
        assert_eq!(order("identity;q=0.5, gzip"), [Gzip]);
        assert_eq!(order("identity;q=0, gzip"), [Gzip]);
    }

    #[test]
    fn what_is_no_weight_is_not_taken_for_one() {
        for header in [
            "gzip;q=2",
            "gzip;q=1.001",
            "gzip;q=0.1234",
            "gzip;q=",
            "gzip;q=x",
            "gzip;x=1",
            "gzip;q=-1",
            "gzip;q=.5",
        ] {
            assert_eq!(order(header), [], "{header}");
        }
    }
}
