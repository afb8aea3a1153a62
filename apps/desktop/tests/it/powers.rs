//! What a page can and cannot do, whatever it tries.

use std::fs;
use std::path::Path;

use crate::standin::StandIn;
use crate::world::{Company, World, until};

/// Tries one thing after the other, and reports to its server.
const PRYING: &str = r#"<!doctype html><title>Prying</title><script>
const report = (name, value) => fetch('/report/' + name + '/' + encodeURIComponent(value));
const leave = url => { const a = document.createElement('a'); a.href = url; document.body.append(a); a.click() };
const rest = () => new Promise(resolve => setTimeout(resolve, 1100));
addEventListener('load', async () => {
  await report('ipc', typeof window.ipc);
  await report('handlers', Object.keys(window.webkit?.messageHandlers ?? {}).length);
  await report('permission', 'Notification' in window ? await Notification.requestPermission() : 'none');
  try { await fetch('file:///etc/passwd'); await report('file', 'read') } catch { await report('file', 'refused') }
  for (const url of ['file:///etc/passwd', 'data:text/html,x', 'ssh://example.org/x']) {
    leave(url);
    await rest();
  }
  leave('/file');
  await rest();
  leave('https://example.org/away?a=1&b=$(touch%20here)');
  await rest();
  leave('mailto:someone@example.org');
  await rest();
  await report('still', location.pathname);
  await report('end', 'reached');
});
</script><body>prying"#;

#[test]
fn a_page_has_no_powers_and_what_leads_away_opens_elsewhere() {
    let world = World::new();
    let stand_in = StandIn::new(world.port, PRYING);
    let window = world.open();
    until("it has tried everything", || stand_in.asked().iter().any(|path| path == "/report/end/reached"));
    let reports: Vec<String> = stand_in.asked().into_iter().filter(|path| path.starts_with("/report/")).collect();
    let reported = |name: &str| reports.iter().find_map(|path| path.strip_prefix(&format!("/report/{name}/")));
    assert_eq!(reported("ipc"), Some("undefined"), "{reports:?}");
    assert_eq!(reported("handlers"), Some("0"), "{reports:?}");
    assert_eq!(reported("permission"), Some("denied"), "{reports:?}");
    assert_eq!(reported("file"), Some("refused"), "{reports:?}");
    assert_eq!(reported("still"), Some("%2F"), "it never left");
    let away = ["1", "1", "https://example.org/away?a=1&b=$(touch%20here)", "mailto:someone@example.org"];
    until("both were opened", || {
        let opened = world.opened();
        let mut opened: Vec<&str> = opened.lines().collect();
        opened.sort_unstable();
        opened == away
    });
    assert!(stand_in.asked().iter().any(|path| path == "/file"), "{:?}", stand_in.asked());
    assert!(!saved(&world.path("home"), "evil"), "nothing was saved");
    assert_eq!(window.listed().title, "Prying");
    assert_eq!(world.gateways(), [0; 0], "what answers was used");
    window.signal("TERM");
    assert_eq!(window.ended(), Some(0));
}

fn saved(folder: &Path, name: &str) -> bool {
    let mut entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.any(|entry| entry.file_name() == name || saved(&entry.path(), name))
}

/// A link as the chat page has them, as large as the window.
const LINK: &str = r#"<!doctype html><title>Link</title><a target="_blank" rel="noopener noreferrer"
href="https://example.org/new" style="position:fixed;inset:0">away</a>"#;

#[test]
fn a_link_that_wants_a_new_window_opens_in_the_browser() {
    let world = World::new();
    let _stand_in = StandIn::new(world.port, LINK);
    let window = world.open();
    let listed = window.titled("Link");
    until("it is opened", || {
        world.screen.click(&listed, (450, 400));
        !world.opened().is_empty()
    });
    assert!(world.opened().starts_with("1\nhttps://example.org/new\n"), "{}", world.opened());
    assert_eq!(world.screen.windows().len(), 1);
}

/// A long answer that nobody looks at.
const WORKING: &str = r#"<!doctype html><title>Trunkline</title><body>working<script>
document.title = '⋯ mend it – Trunkline';
setTimeout(() => { document.title = '✓ mend <it> – Trunkline'; fetch('/done') }, 15000);
</script>"#;

#[test]
fn the_end_of_a_long_answer_is_told_to_whoever_looks_elsewhere() {
    let world = World::new();
    let bus = format!("unix:path={}", world.path("run/bus").display());
    let mut daemon = world.command(Path::new("dbus-daemon"));
    daemon.args(["--session", "--nofork", "--nopidfile", "--address", &bus]);
    let _daemon = Company(daemon.spawn().unwrap());
    until("there is a bus", || world.path("run/bus").exists());
    let heard = fs::File::create(world.path("heard")).unwrap();
    let mut monitor = world.command(Path::new("dbus-monitor"));
    monitor.args(["--address", &bus, "interface='org.freedesktop.Notifications'"]).stdout(heard);
    let _monitor = Company(monitor.spawn().unwrap());
    let world = world.env("DBUS_SESSION_BUS_ADDRESS", bus);
    let heard = || fs::read_to_string(world.path("heard")).unwrap();
    until("the bus is watched", || heard().contains("NameAcquired"));
    let stand_in = StandIn::new(world.port, WORKING);
    let window = world.open();
    let listed = window.titled("⋯ mend it");
    world.screen.xdotool(&["windowminimize", &listed.id]);
    until("it is done", || stand_in.asked().iter().any(|path| path == "/done"));
    until("it is told", || heard().contains("member=Notify"));
    until("it is told about what", || heard().contains("string \"Answered\"") && heard().contains("mend &lt;it&gt;"));
}
