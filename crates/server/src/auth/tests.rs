use super::*;

const LOOPBACK: &str = "127.0.0.1";
const ELSEWHERE: &str = "192.0.2.7";

/// The status with which a request is refused; 200 if it is not.
fn status(config: &ServerConfig, dialled: &str, target: &str, headers: &[(&str, &str)]) -> u16 {
    status_of("GET", config, dialled, target, headers)
}

fn status_of(method: &str, config: &ServerConfig, dialled: &str, target: &str, headers: &[(&str, &str)]) -> u16 {
    let mut request = Request::builder().method(method).uri(target);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let peer = Peer { from: ELSEWHERE.parse().unwrap(), dialled: dialled.parse().unwrap() };
    let request = request.body(()).unwrap();
    let page = cors::allowed_page(config, &request);
    admit(config, peer, page.as_ref(), &request).err().map_or(200, |error| error.status)
}

#[test]
fn page_of_an_allowed_origin_needs_a_key() {
    let page = "http://localhost:5173";
    let origins = AllowedOrigins::new(vec![AllowedOrigin::parse(page).unwrap()]);
    let config = ServerConfig { keys: Keys::new(["right"]), origins: origins.clone(), ..ServerConfig::default() };
    let (right, wrong) = (("authorization", "Bearer right"), ("authorization", "Bearer wrong"));
    let site = ("sec-fetch-site", "same-site");
    let asks = ("access-control-request-method", "POST");
    for (method, target, headers, expected) in [
        ("GET", "/v1/models", &[("origin", page), site, right][..], 200),
        ("GET", "/v1/models", &[("origin", page), site, wrong], 401),
        ("GET", "/v1/models", &[("origin", page), site], 401),
        ("GET", "/health", &[("origin", page), site], 401),
        ("OPTIONS", "/v1/models", &[("origin", page), site, asks], 200),
        ("OPTIONS", "/v1/models", &[("origin", page), site], 401),
        ("OPTIONS", "/v1/models", &[("origin", "http://localhost:5174"), site, asks], 403),
        ("OPTIONS", "/chat", &[("origin", page), site, asks], 403),
        ("GET", "/v1/models", &[("origin", "http://localhost:5174"), site, right], 403),
        ("GET", "/v1/models", &[("origin", "null"), site, right], 403),
        ("GET", "/v1/models", &[("origin", page), ("origin", "http://evil.example"), right], 403),
        // An image or a link: the page cannot read the answer, and the browser does not ask.
        ("GET", "/v1/models", &[site, right], 403),
        ("POST", "/chat", &[("origin", page), site, right], 403),
        ("GET", "/", &[("origin", page), site, right], 403),
        ("POST", "/chat", &[("origin", "http://localhost:8765"), ("sec-fetch-site", "same-origin"), right], 200),
    ] {
        let headers = [&[("host", "localhost:8765")], headers].concat();
        assert_eq!(status_of(method, &config, LOOPBACK, target, &headers), expected, "{method} {target} {headers:?}");
    }
    let rebound = [("host", "evil.example"), ("origin", page), right];
    assert_eq!(status(&config, LOOPBACK, "/v1/models", &rebound), 403, "an allowed origin does not allow a host");
    let foreign = [("host", "192.0.2.7"), ("origin", "http://evil.example"), asks];
    assert_eq!(status_of("OPTIONS", &config, ELSEWHERE, "/v1/models", &foreign), 403, "on every address");
    let without_keys = ServerConfig { origins, ..ServerConfig::default() };
    let headers = [("host", "localhost:8765"), ("origin", page), right];
    assert_eq!(status(&without_keys, LOOPBACK, "/v1/models", &headers), 401, "whatever the start has checked");
}

#[test]
fn unknown_hosts_are_refused() {
    let config = ServerConfig { hosts: vec!["gate.example".into()], ..ServerConfig::default() };
    for (dialled, host, expected) in [
        (LOOPBACK, "localhost", 200),
        (LOOPBACK, "LOCALHOST:8765", 200),
        (LOOPBACK, "127.0.0.1:8765", 200),
        (LOOPBACK, "127.0.0.2", 200),
        ("::1", "[::1]:8765", 200),
        ("::1", "[::1]", 200),
        ("::ffff:127.0.0.1", "127.0.0.1", 200),
        (LOOPBACK, "gate.example:443", 200),
        (LOOPBACK, "evil.example", 403),
        (LOOPBACK, "localhost.evil.example", 403),
        (LOOPBACK, "evil.example:80@localhost", 403),
        (LOOPBACK, "192.0.2.7", 403),
        (LOOPBACK, "", 403),
        (ELSEWHERE, "192.0.2.7:8765", 200),
        (ELSEWHERE, "evil.example", 403),
    ] {
        assert_eq!(status(&config, dialled, "/v1/models", &[("host", host)]), expected, "{dialled} {host}");
    }
    assert_eq!(status(&config, LOOPBACK, "/v1/models", &[]), 403);
    assert_eq!(status(&config, LOOPBACK, "/v1/models", &[("host", "localhost"), ("host", "evil.example")]), 403);
    assert_eq!(status(&config, LOOPBACK, "http://evil.example/health", &[("host", "localhost")]), 403);
}

#[test]
fn requests_of_other_web_pages_are_refused() {
    let config = ServerConfig::default();
    for (header, value, expected) in [
        ("origin", "http://localhost:8765", 200),
        ("origin", "http://evil.example", 403),
        ("origin", "http://localhost:3000", 403),
        ("origin", "null", 403),
        ("origin", "http://localhost:8765.evil.example", 403),
        ("sec-fetch-site", "cross-site", 403),
        ("sec-fetch-site", "same-site", 403),
        ("sec-fetch-site", "something-new", 403),
        ("sec-fetch-site", "Same-Origin", 200),
        ("sec-fetch-site", "none", 200),
    ] {
        let headers = [("host", "localhost:8765"), (header, value)];
        assert_eq!(status(&config, LOOPBACK, "/v1/models", &headers), expected, "{header}: {value}");
    }
    let sibling = [("host", "localhost:8765"), ("sec-fetch-site", "same-site")];
    assert_eq!(status(&config, LOOPBACK, "/", &sibling), 200, "a link to the page");
    let config = ServerConfig { hosts: vec!["gate.example".into()], ..ServerConfig::default() };
    for (target, header, value, expected) in [
        ("/v1/models", "origin", "http://evil.example", 200),
        ("/chat", "origin", "http://evil.example", 403),
        ("/chat/", "origin", "null", 403),
        ("/clear", "sec-fetch-site", "cross-site", 403),
        ("/stop", "origin", "https://gate.example:444", 403),
        ("/chat", "origin", "https://gate.example", 200),
    ] {
        let headers = [("host", "gate.example"), (header, value)];
        assert_eq!(status(&config, ELSEWHERE, target, &headers), expected, "{target} {header}: {value}");
    }
}

#[test]
fn case_21_request_is_admitted_with_a_valid_key() {
    let mut keys = Keys::new(["first-key", " second-key\n", ""]);
    keys.add_digest(blake3::hash(b"third-key").to_hex().as_str()).unwrap();
    let config = ServerConfig { keys, ..ServerConfig::default() };
    for (target, header, value, expected) in [
        ("/v1/models", "authorization", "Bearer first-key", 200),
        ("/v1/models", "authorization", "bearer second-key", 200),
        ("/v1/models", "authorization", "BEARER  third-key", 200),
        ("/v1/models", "x-api-key", "first-key", 200),
        ("/v1/models", "authorization", "Bearer first-keys", 401),
        ("/v1/models", "authorization", "Bearer ", 401),
        ("/v1/models", "authorization", "Bearer", 401),
        ("/v1/models", "authorization", "Basic first-key", 401),
        ("/v1/models", "authorization", "first-key", 401),
        ("/v1/models", "x-other", "first-key", 401),
        ("/v1/models?api_key=first-key", "x-other", "", 401),
        ("/v1/models?a=b&KEY=x", "authorization", "Bearer first-key", 401),
        ("/v1/models?a=b", "authorization", "Bearer first-key", 200),
        ("/health", "x-other", "", 200),
        ("/", "x-other", "", 200),
        ("/chat", "x-other", "", 401),
        ("/clear", "authorization", "Bearer first-keys", 401),
        ("/chat", "authorization", "Bearer first-key", 200),
        ("/nowhere", "x-other", "", 401),
    ] {
        let headers = [("host", "localhost"), (header, value)];
        assert_eq!(status(&config, LOOPBACK, target, &headers), expected, "{target} {header}: {value}");
    }
}

#[test]
fn digests_are_validated_and_never_shown() {
    assert!(Keys::default().add_digest("abc").is_err());
    assert_eq!(format!("{:?}", Keys::new(["secret"])), "Keys(1)");
    assert!(Keys::new(["", "  "]).is_empty());
}

#[test]
fn case_24_keys_are_required_except_on_loopback() {
    for (address, keyed, allowed) in [
        ("127.0.0.1:0", false, true),
        ("[::1]:0", false, true),
        ("0.0.0.0:0", false, false),
        ("[::]:0", false, false),
        ("192.0.2.7:80", false, false),
        ("0.0.0.0:0", true, true),
    ] {
        let keys = if keyed { Keys::new(["k"]) } else { Keys::default() };
        assert_eq!(check_bind(address.parse().unwrap(), &keys).is_ok(), allowed, "{address}");
    }
}

#[test]
fn client_is_identified_by_its_key() {
    let owner = |keys: &[&str], key: &str| {
        let config = ServerConfig { keys: Keys::new(keys), ..ServerConfig::default() };
        let request = Request::builder().uri("/v1/models").header("host", "localhost").header("x-api-key", key);
        let peer = Peer { from: LOOPBACK.parse().unwrap(), dialled: LOOPBACK.parse().unwrap() };
        admit(&config, peer, None, &request.body(()).unwrap()).unwrap()
    };
    let keys = ["key-of-ann", "key-of-ben"];
    let (ann, ben) = (owner(&keys, keys[0]), owner(&keys, keys[1]));
    assert_ne!(ann, ben);
    assert_eq!(ann, owner(&keys[..1], keys[0]), "whatever other keys there are");
    assert!(!ann.is_local() && !ann.as_str().contains("ann"), "{ann:?}");
    assert!(owner(&[], "anything").is_local());
}

#[test]
fn costly_get_is_refused_when_a_page_can_have_caused_it() {
    for (headers, accepted) in [
        (&[][..], true),
        (&[("user-agent", "curl/8.5.0")], true),
        (&[("sec-fetch-site", "same-origin"), ("user-agent", "Mozilla/5.0")], true),
        (&[("sec-fetch-site", "none"), ("user-agent", "Mozilla/5.0")], true),
        (&[("sec-fetch-site", "same-site")], false),
        (&[("sec-fetch-site", "cross-site")], false),
        (&[("sec-fetch-site", "none"), ("sec-purpose", "prefetch")], false),
        // A browser that does not send Sec-Fetch-Site.
        (&[("user-agent", "Mozilla/5.0 (Macintosh)")], false),
    ] {
        let mut map = HeaderMap::new();
        headers.iter().for_each(|(name, value)| drop(map.insert(*name, value.parse().unwrap())));
        assert_eq!(refuse_unintended(&map).is_ok(), accepted, "{headers:?}");
    }
}

#[test]
fn error_for_an_unknown_host_names_the_option_that_allows_it() {
    let message = |host: Option<&str>| unknown_host(host).message;
    assert!(message(Some("gate.lan:8765")).ends_with("--host gate.lan"));
    for odd in [None, Some(""), Some("<script>"), Some("a b")] {
        assert!(message(odd).ends_with("--host NAME"), "{odd:?}");
    }
}
