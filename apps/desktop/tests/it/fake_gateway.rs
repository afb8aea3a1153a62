//! A fake gateway that serves a page of the test instead of the chat page, for example a hostile one.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// Serves one page and records the path of every request.
pub(crate) struct FakeGateway(Arc<Mutex<Vec<String>>>);

impl FakeGateway {
    pub(crate) fn new(port: u16, page: &'static str) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let recorded = Arc::clone(&requests);
        thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let recorded = Arc::clone(&recorded);
                thread::spawn(move || respond(socket, page, &recorded));
            }
        });
        Self(requests)
    }

    /// Returns the paths of all requests so far.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

fn respond(mut socket: TcpStream, page: &str, recorded: &Mutex<Vec<String>>) -> Option<()> {
    let mut lines = BufReader::new(socket.try_clone().ok()?).lines();
    let path = lines.next()?.ok()?.split(' ').nth(1)?.to_owned();
    while !lines.next()?.ok()?.is_empty() {}
    let (kind, body) = match path.as_str() {
        "/health" => ("application/json", r#"{"status":"ok","version":"0.1.0","models":1,"waiting":0}"#),
        "/" => ("text/html; charset=utf-8", page),
        "/file" => ("application/octet-stream\r\ncontent-disposition: attachment; filename=evil", "evil"),
        _ => ("text/plain", ""),
    };
    recorded.lock().unwrap().push(path);
    let length = body.len();
    let head =
        format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
    socket.write_all((head + body).as_bytes()).ok()
}
