//! Privileges of the page: a hostile page cannot escape, and external links open in the browser.

use std::fs;
use std::path::Path;

use crate::desktop::{ChildGuard, TestDesktop, until};
use crate::fake_gateway::FakeGateway;

/// A page that tries one forbidden thing after another and reports the results to its server.
const HOSTILE_PAGE: &str = r#"<!doctype html><title>Hostile</title><script>
const report = (name, value) => fetch('/report/' + name + '/' + encodeURIComponent(value));
const follow = url => { const a = document.createElement('a'); a.href = url; document.body.append(a); a.click() };
const pause = () => new Promise(resolve => setTimeout(resolve, 1100));
addEventListener('load', async () => {
  await report('ipc', typeof window.ipc);
  await report('handlers', Object.keys(window.webkit?.messageHandlers ?? {}).length);
  await report('permission', 'Notification' in window ? await Notification.requestPermission() : 'none');
  try { await fetch('file:///etc/passwd'); await report('file', 'read') } catch { await report('file', 'refused') }
  for (const url of ['file:///etc/passwd', 'data:text/html,x', 'ssh://example.org/x']) {
    follow(url);
    await pause();
  }
  follow('/file');
  await pause();
  follow('https://example.org/away?a=1&b=$(touch%20here)');
  await pause();
  follow('mailto:someone@example.org');
  await pause();
  await report('still', location.pathname);
  await report('end', 'reached');
});
</script><body>hostile"#;

#[test]
fn hostile_page_gets_no_privileges_and_external_links_open_in_browser() {
    let desktop = TestDesktop::new();
    let fake = FakeGateway::new(desktop.port, HOSTILE_PAGE);
    let window = desktop.open();
    until("the page has tried everything", || fake.requests().iter().any(|path| path == "/report/end/reached"));
    let reports: Vec<String> = fake.requests().into_iter().filter(|path| path.starts_with("/report/")).collect();
    let reported = |name: &str| reports.iter().find_map(|path| path.strip_prefix(&format!("/report/{name}/")));
    assert_eq!(reported("ipc"), Some("undefined"), "{reports:?}");
    assert_eq!(reported("handlers"), Some("0"), "{reports:?}");
    assert_eq!(reported("permission"), Some("denied"), "{reports:?}");
    assert_eq!(reported("file"), Some("refused"), "{reports:?}");
    assert_eq!(reported("still"), Some("%2F"), "the page was never left");
    let expected = ["1", "1", "https://example.org/away?a=1&b=$(touch%20here)", "mailto:someone@example.org"];
    until("both links were opened", || {
        let opened = desktop.opened();
        let mut opened: Vec<&str> = opened.lines().collect();
        opened.sort_unstable();
        opened == expected
    });
    assert!(fake.requests().iter().any(|path| path == "/file"), "{:?}", fake.requests());
    assert!(!saved(&desktop.path("home"), "evil"), "nothing was saved");
    assert_eq!(window.listed().title, "Hostile");
    assert_eq!(desktop.gateways(), [0; 0], "the fake gateway was used");
    window.signal("TERM");
    assert_eq!(window.wait_for_exit(), Some(0));
}

fn saved(folder: &Path, name: &str) -> bool {
    let mut entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.any(|entry| entry.file_name() == name || saved(&entry.path(), name))
}

/// A link like those of the chat page, as large as the window.
const LINK: &str = r#"<!doctype html><title>Link</title><a target="_blank" rel="noopener noreferrer"
href="https://example.org/new" style="position:fixed;inset:0">away</a>"#;

#[test]
fn link_opens_in_browser_when_it_asks_for_a_new_window() {
    let desktop = TestDesktop::new();
    let _fake = FakeGateway::new(desktop.port, LINK);
    let window = desktop.open();
    let listed = window.titled("Link");
    until("the link is opened", || {
        desktop.screen.click(&listed, (450, 400));
        !desktop.opened().is_empty()
    });
    assert!(desktop.opened().starts_with("1\nhttps://example.org/new\n"), "{}", desktop.opened());
    assert_eq!(desktop.screen.windows().len(), 1);
}

/// A page whose title reports a long answer.
const LONG_ANSWER_PAGE: &str = r#"<!doctype html><title>Trunkline</title><body>working<script>
document.title = '⋯ fix it – Trunkline';
setTimeout(() => { document.title = '✓ fix <it> – Trunkline'; fetch('/done') }, 15000);
</script>"#;

#[test]
fn long_answer_sends_a_notification_when_window_is_minimized() {
    let desktop = TestDesktop::new();
    let bus = format!("unix:path={}", desktop.path("run/bus").display());
    let mut daemon = desktop.command(Path::new("dbus-daemon"));
    daemon.args(["--session", "--nofork", "--nopidfile", "--address", &bus]);
    let _daemon = ChildGuard(daemon.spawn().unwrap());
    until("the bus is up", || desktop.path("run/bus").exists());
    let bus_log = fs::File::create(desktop.path("bus.log")).unwrap();
    let mut monitor = desktop.command(Path::new("dbus-monitor"));
    monitor.args(["--address", &bus, "interface='org.freedesktop.Notifications'"]).stdout(bus_log);
    let _monitor = ChildGuard(monitor.spawn().unwrap());
    let desktop = desktop.env("DBUS_SESSION_BUS_ADDRESS", bus);
    let bus_log = || fs::read_to_string(desktop.path("bus.log")).unwrap();
    until("the bus is monitored", || bus_log().contains("NameAcquired"));
    let fake = FakeGateway::new(desktop.port, LONG_ANSWER_PAGE);
    let window = desktop.open();
    let listed = window.titled("⋯ fix it");
    desktop.screen.xdotool(&["windowminimize", &listed.id]);
    until("the answer is done", || fake.requests().iter().any(|path| path == "/done"));
    until("a notification is sent", || bus_log().contains("member=Notify"));
    until("the notification names the question", || {
        bus_log().contains("string \"Answered\"") && bus_log().contains("fix &lt;it&gt;")
    });
}
