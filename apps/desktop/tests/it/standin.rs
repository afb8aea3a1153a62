//! A stand-in for the gateway whose page is not ours: it tries what ours never would.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// Answers with this page, and notes what is asked for.
pub(crate) struct StandIn(Arc<Mutex<Vec<String>>>);

impl StandIn {
    pub(crate) fn new(port: u16, page: &'static str) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&asked);
        thread::spawn(move || {
            for caller in listener.incoming().flatten() {
                let noted = Arc::clone(&noted);
                thread::spawn(move || answer(caller, page, &noted));
            }
        });
        Self(asked)
    }

    /// The paths that were asked for so far.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

fn answer(caller: TcpStream, page: &str, noted: &Mutex<Vec<String>>) -> Option<()> {
    let mut lines = BufReader::new(caller.try_clone().ok()?).lines();
    let path = lines.next()?.ok()?.split(' ').nth(1)?.to_owned();
    while !lines.next()?.ok()?.is_empty() {}
    let (kind, body) = match path.as_str() {
        "/health" => ("application/json", r#"{"status":"ok","version":"0.1.0","models":1,"waiting":0}"#),
        "/" => ("text/html; charset=utf-8", page),
        "/file" => ("application/octet-stream\r\ncontent-disposition: attachment; filename=evil", "evil"),
        _ => ("text/plain", ""),
    };
    noted.lock().unwrap().push(path);
    let length = body.len();
    let head =
        format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
    let mut caller = caller;
    caller.write_all((head + body).as_bytes()).ok()
}
