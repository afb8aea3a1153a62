use super::*;

/// The verdicts when the bytes are read in pieces of this size.
fn verdicts(bytes: &[u8], piece: usize) -> Vec<Verdict> {
    let (mut framing, seen) =
        (Framing { state: FramingState::Head(Vec::new()), max_head: 1000, spare: Vec::new() }, Verdicts::default());
    bytes.chunks(piece).for_each(|piece| framing.read(piece, &seen));
    seen.0.lock().unwrap().drain(..).collect()
}

fn request(headers: &str, body: &str) -> String {
    format!("POST /x HTTP/1.1\r\nHost: a\r\n{headers}\r\n{body}")
}

#[test]
fn request_is_ambiguous_when_it_has_two_framings_or_an_unknown_one() {
    for (headers, expected) in [
        ("", Some(Verdict::Length)),
        ("Content-Length: 0\r\n", Some(Verdict::Length)),
        ("content-length: 0\r\nContent-Length: 0\r\n", Some(Verdict::Length)),
        ("Transfer-Encoding: chunked\r\n", Some(Verdict::Chunked)),
        ("TRANSFER-ENCODING:\tChunked \r\n", Some(Verdict::Chunked)),
        ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", None),
        ("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", None),
        ("Transfer-Encoding: chunked\nContent-Length: 5\n", None),
        ("Transfer-Encoding: identity\r\nContent-Length: 5\r\n", None),
        ("Transfer-Encoding: chunked, identity\r\n", None),
        ("Transfer-Encoding: gzip, chunked\r\n", None),
        ("Transfer-Encoding: chunked, chunked\r\n", None),
        ("Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n", None),
        ("Transfer-Encoding:\r\n", None),
        ("Transfer-Encoding: \x0bchunked\r\n", None),
        ("Content-Length: 5\r\nContent-Length: 6\r\n", None),
        ("Content-Length: 5, 5\r\n", None),
        ("Content-Length: +5\r\n", None),
        ("Content-Length: 0x5\r\n", None),
        ("Content-Length: \r\n", None),
        ("Content-Length: 99999999999999999999\r\n", None),
    ] {
        let seen = verdicts(request(headers, "").as_bytes(), 1000);
        for piece in 1..20 {
            assert_eq!(verdicts(request(headers, "").as_bytes(), piece), seen, "{headers:?} in pieces of {piece}");
        }
        match expected {
            Some(expected) => assert_eq!(seen, [expected], "{headers:?}"),
            None => assert!(matches!(seen[..], [Verdict::Ambiguous(_)]), "{headers:?}: {seen:?}"),
        }
    }
}

#[test]
fn later_request_is_judged_by_its_own_head_when_connection_is_kept() {
    let both = "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n";
    // A body that looks like a request is not one.
    let body = request(both, "");
    let first = request(&format!("Content-Length: {}\r\n", body.len()), &body);
    let all = format!("{first}\r\n{}{}", request("", ""), request(both, ""));
    for piece in [1, 2, 7, 1000] {
        let seen = verdicts(all.as_bytes(), piece);
        assert!(matches!(seen[..], [Verdict::Length, Verdict::Length, Verdict::Ambiguous(_)]), "{piece}: {seen:?}");
    }
}

#[test]
fn request_without_verdict_is_refused() {
    assert!(matches!(Verdicts::default().next(), Verdict::Ambiguous(_)));
}
