//! Desktop notifications for answers that finish while the window is not focused.
//!
//! The page reports its progress in its title, as it does in a browser tab. The title is its only channel to the
//! window.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use gtk::gio::{self, DBusCallFlags, DBusConnection, DBusSignalFlags};
use gtk::glib::variant::ToVariant;
use gtk::glib::{self, VariantTy};

const BUS_NAME: &str = "org.freedesktop.Notifications";
const OBJECT: &str = "/org/freedesktop/Notifications";

/// Shortest answer that is worth a notification: after less time the user is still at the window.
const MIN_ANSWER_TIME: Duration = Duration::from_secs(10);

const MAX_TEXT_CHARS: usize = 120;

/// Prefixes of the titles that the page sets (crates/server/src/page/index.html).
const WORKING: &str = "⋯ ";
const ANSWERED: &str = "✓ ";
const FAILED: &str = "✕ ";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DesktopNotification {
    pub(crate) summary: &'static str,
    pub(crate) body: String,
}

/// Follows the page title to learn when an answer starts and ends.
#[derive(Debug, Default)]
pub(crate) struct TitleTracker {
    /// Start of the answer in progress.
    since: Option<Instant>,
}

impl TitleTracker {
    pub(crate) fn is_working(&self) -> bool {
        self.since.is_some()
    }

    /// Takes the next title. Returns a notification if a long answer has ended while the window was not focused.
    pub(crate) fn update(&mut self, title: &str, now: Instant, focused: bool) -> Option<DesktopNotification> {
        if title.starts_with(WORKING) {
            self.since.get_or_insert(now);
            return None;
        }
        let since = self.since.take()?;
        let (summary, question) =
            title.strip_prefix(ANSWERED).map(|question| ("Answered", question)).or_else(|| {
                let question = title.strip_prefix(FAILED)?;
                Some(("The answer failed", question))
            })?;
        let question = question.strip_suffix(" – Trunkline").unwrap_or(question);
        let is_due = !focused && now.duration_since(since) >= MIN_ANSWER_TIME;
        is_due.then(|| DesktopNotification { summary, body: printable(question) })
    }
}

/// Makes text of the page safe for a title or a notification: removes control characters and limits its length.
pub(crate) fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(MAX_TEXT_CHARS).collect()
}

/// Client of the desktop's notification service on D-Bus.
pub(crate) struct Notifier {
    bus: DBusConnection,
    /// Id of the notification that is shown, which the next one replaces; 0 for none.
    shown: Rc<RefCell<u32>>,
}

impl Notifier {
    /// Connects to the session bus; `None` if there is none. `clicked` is called when the user clicks a notification.
    pub(crate) fn new(clicked: impl Fn() + 'static) -> Option<Self> {
        let bus = gio::bus_get_sync(gio::BusType::Session, gio::Cancellable::NONE).ok()?;
        let shown = Rc::new(RefCell::new(0));
        let own = Rc::clone(&shown);
        let on_signal = move |_: &DBusConnection, _: &str, _: &str, _: &str, _: &str, args: &glib::Variant| {
            if args.try_child_value(0).and_then(|id| id.get::<u32>()).is_some_and(|id| id != 0 && id == *own.borrow()) {
                clicked();
            }
        };
        let flags = DBusSignalFlags::NONE;
        let (name, signal) = (Some(BUS_NAME), Some("ActionInvoked"));
        bus.signal_subscribe(name, name, signal, Some(OBJECT), None, flags, on_signal);
        Some(Self { bus, shown })
    }

    pub(crate) fn show(&self, notification: &DesktopNotification) {
        let hints = glib::VariantDict::new(None);
        hints.insert("desktop-entry", "trunkline-desktop");
        let actions = ["default", "Show"].map(str::to_owned).to_vec();
        // Some notification daemons parse the body as markup.
        let body = glib::markup_escape_text(&notification.body).to_string();
        let request = glib::Variant::tuple_from_iter([
            "Trunkline".to_variant(),
            self.shown.borrow().to_variant(),
            "trunkline".to_variant(),
            notification.summary.to_variant(),
            body.to_variant(),
            actions.to_variant(),
            hints.end(),
            (-1_i32).to_variant(),
        ]);
        let shown = Rc::clone(&self.shown);
        let on_reply = move |reply: Result<glib::Variant, glib::Error>| {
            if let Some(id) = reply.ok().and_then(|reply| reply.try_child_value(0)).and_then(|id| id.get::<u32>()) {
                *shown.borrow_mut() = id;
            }
        };
        let reply = VariantTy::new("(u)").ok();
        let (flags, timeout_ms, cancellable) = (DBusCallFlags::NONE, 5000, gio::Cancellable::NONE);
        let (name, request) = (Some(BUS_NAME), Some(&request));
        self.bus.call(name, OBJECT, BUS_NAME, "Notify", request, reply, flags, timeout_ms, cancellable, on_reply);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds titles with their times in seconds and the focus; returns the result for the last one.
    fn after(titles: &[(&str, u64, bool)]) -> Option<DesktopNotification> {
        let (mut tracker, start) = (TitleTracker::default(), Instant::now());
        let update = |(title, at, focused): &(&str, u64, bool)| {
            tracker.update(title, start + Duration::from_secs(*at), *focused)
        };
        let results = titles.iter().map(update);
        results.last().flatten()
    }

    #[test]
    fn notifies_only_of_long_answers_when_window_is_not_focused() {
        let shown = |summary, body: &str| Some(DesktopNotification { summary, body: body.to_owned() });
        let working = ("⋯ fix it – Trunkline", 0, true);
        for (title, at, focused, expected) in [
            ("✓ fix it – Trunkline", 30, false, shown("Answered", "fix it")),
            ("✕ fix it – Trunkline", 30, false, shown("The answer failed", "fix it")),
            ("✓ fix it – Trunkline", 30, true, None),
            ("✓ fix it – Trunkline", 3, false, None),
            // Stopped by the user, or reloaded.
            ("Trunkline", 30, false, None),
        ] {
            assert_eq!(after(&[working, (title, at, focused)]), expected, "{title} {at} {focused}");
        }
        assert_eq!(after(&[("✓ fix it – Trunkline", 30, false)]), None, "no answer was in progress");
        let again = [working, ("⋯ fix it – Trunkline", 25, false), ("✓ fix it – Trunkline", 30, false)];
        assert!(after(&again).is_some(), "the answer started with the first title");
    }

    #[test]
    fn text_of_the_page_is_sanitised_and_truncated() {
        let notification =
            after(&[("⋯ x", 0, false), (&format!("✓ a\u{1b}\n{}", "b".repeat(999)), 60, false)]).unwrap();
        assert_eq!(notification.body, format!("a{}", "b".repeat(119)));
    }
}
