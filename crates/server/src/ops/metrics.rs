//! Metrics in Prometheus' text format, on a port of their own: the API's port serves only the API.

use std::convert::Infallible;
use std::fmt::Write;
use std::time::Duration;

use axum::body::Body;
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use trunkline_engine::{Metrics, WarmStats};

use crate::connection::accept;
use crate::door::Door;

/// Scrapes that may be connected at once.
const MAX_CONNECTIONS: usize = 16;

/// Timeout for reading a request's head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum duration of a connection.
const MAX_CONNECTION_TIME: Duration = Duration::from_secs(300);

const CONTENT_TYPE_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Answers every scrape. Runs until it is dropped, and its connections with it.
pub async fn serve_metrics<D: Door + Clone>(listener: TcpListener, door: D) {
    let mut connections = JoinSet::new();
    accept(&listener, &mut connections, MAX_CONNECTIONS, |socket, _| watched(socket, door.clone())).await;
}

async fn watched<D: Door>(socket: TcpStream, door: D) {
    let answer = service_fn(move |request| {
        let response = respond(&request, &door);
        async move { Ok::<_, Infallible>(response) }
    });
    let mut server = http1::Builder::new();
    let connection = server.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    // A scraper that disconnects or stays too long has its answer.
    let _ = timeout(MAX_CONNECTION_TIME, connection.serve_connection(TokioIo::new(socket), answer)).await;
}

fn respond<D: Door>(request: &Request<Incoming>, door: &D) -> Response<Body> {
    let (status, text) = match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/metrics") => (StatusCode::OK, text(&door.metrics())),
        (_, "/metrics") => (StatusCode::METHOD_NOT_ALLOWED, "GET it\n".to_owned()),
        _ => (StatusCode::NOT_FOUND, "there is only /metrics here\n".to_owned()),
    };
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static(CONTENT_TYPE_TEXT));
    response
}

/// Reads one figure of a provider's warm processes.
type Of = fn(&WarmStats) -> Option<f64>;

/// Metrics of warm processes: name, whether it is a counter, description.
const WARM: [(&str, bool, &str, Of); 11] = [
    ("hits_total", true, "Turns that found a process ready.", |of| Some(of.hits as f64)),
    ("resumed_total", true, "Turns that went on in the process of their session.", |of| Some(of.resumed as f64)),
    ("misses_total", true, "Turns that could have used a process and found none.", |of| Some(of.misses as f64)),
    ("lost_total", true, "Turns whose process died before it had said anything.", |of| Some(of.lost as f64)),
    ("boots_total", true, "Processes that came up.", |of| Some(of.boots as f64)),
    ("failed_boots_total", true, "Processes that did not come up.", |of| Some(of.failed_boots as f64)),
    ("boot_seconds_mean", false, "How long a process takes to come up.", |of| seconds(of.mean_boot_ms)),
    ("boot_seconds_last", false, "How long the last one took.", |of| seconds(of.last_boot_ms)),
    ("ready", false, "Processes that wait for a turn.", |of| Some(of.ready as f64)),
    ("held", false, "Processes that hold a session.", |of| Some(of.held as f64)),
    ("resident_bytes", false, "Memory of both.", |of| Some((of.resident_mib << 20) as f64)),
];

fn seconds(millis: Option<u64>) -> Option<f64> {
    millis.map(|millis| millis as f64 / 1e3)
}

fn text(metrics: &Metrics) -> String {
    let mut page = MetricsText::default();
    page.about("info", false, "The version that runs.");
    page.sample("info", &[("version", env!("CARGO_PKG_VERSION"))], 1.0);
    page.about("runs", false, "Runs that are not over, those that wait among them.");
    page.sample("runs", &[], metrics.runs as f64);
    page.about("waiting", false, "Runs that wait to be started.");
    page.sample("waiting", &[], metrics.waiting as f64);
    page.about("turns_total", true, "Turns that are over, by what came of them.");
    for turns in &metrics.turns {
        page.sample("turns_total", &[("provider", &turns.provider), ("outcome", turns.outcome)], turns.count as f64);
    }
    page.about("turn_seconds_total", true, "How long they took together.");
    for turns in &metrics.turns {
        let labels = [("provider", turns.provider.as_str()), ("outcome", turns.outcome)];
        page.sample("turn_seconds_total", &labels, turns.took.as_secs_f64());
    }
    page.about("records_lost_total", true, "Writes to the run log that failed.");
    page.sample("records_lost_total", &[], metrics.records_lost as f64);
    if let Some((open, limit)) = metrics.open_files {
        page.about("open_files", false, "Files and sockets that the gateway has open.");
        page.sample("open_files", &[], open as f64);
        page.about("open_files_limit", false, "How many it may open.");
        page.sample("open_files_limit", &[], limit as f64);
    }
    for (name, grows, what, of) in WARM {
        let name = format!("warm_{name}");
        page.about(&name, grows, what);
        for (provider, figures) in &metrics.warm {
            if let Some(figure) = of(figures) {
                page.sample(&name, &[("provider", provider)], figure);
            }
        }
    }
    page.0
}

#[derive(Default)]
struct MetricsText(String);

impl MetricsText {
    fn about(&mut self, name: &str, grows: bool, what: &str) {
        let kind = if grows { "counter" } else { "gauge" };
        // Writing to a string cannot fail.
        let _ = write!(self.0, "# HELP trunkline_{name} {what}\n# TYPE trunkline_{name} {kind}\n").is_ok();
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        let labels: Vec<String> = labels.iter().map(|(label, text)| format!("{label}=\"{}\"", escaped(text))).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _ = writeln!(self.0, "trunkline_{name}{labels} {value}").is_ok();
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}

#[cfg(test)]
mod tests {
    use trunkline_engine::Turns;

    use super::*;

    #[test]
    fn metrics_are_in_the_text_format_of_prometheus() {
        let took = Duration::from_millis(1500);
        let turns = vec![Turns { provider: "a\"b\\c".into(), outcome: "ok", count: 2, took }];
        let figures = WarmStats { hits: 3, mean_boot_ms: Some(250), resident_mib: 1, ..WarmStats::default() };
        let warm = [("claude".to_owned(), figures)].into();
        let page = text(&Metrics { runs: 4, waiting: 1, turns, warm, records_lost: 0, open_files: Some((30, 1024)) });
        for line in [
            "# TYPE trunkline_runs gauge",
            "trunkline_runs 4",
            "trunkline_open_files 30",
            "trunkline_open_files_limit 1024",
            "# TYPE trunkline_turns_total counter",
            r#"trunkline_turns_total{provider="a\"b\\c",outcome="ok"} 2"#,
            r#"trunkline_turn_seconds_total{provider="a\"b\\c",outcome="ok"} 1.5"#,
            r#"trunkline_warm_hits_total{provider="claude"} 3"#,
            r#"trunkline_warm_boot_seconds_mean{provider="claude"} 0.25"#,
            r#"trunkline_warm_resident_bytes{provider="claude"} 1048576"#,
        ] {
            assert!(page.lines().any(|said| said == line), "{line}\n{page}");
        }
        assert!(!page.contains("boot_seconds_last{"), "what is not known is not said");
    }
}
