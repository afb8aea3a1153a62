//! A word to whoever looks elsewhere when a long answer has come.
//!
//! The page says in its title what it does, as it does in a browser's tab. That is all that it can tell us.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use gtk::gio::{self, DBusCallFlags, DBusConnection, DBusSignalFlags};
use gtk::glib::variant::ToVariant;
use gtk::glib::{self, VariantTy};

const BUS_NAME: &str = "org.freedesktop.Notifications";
const OBJECT: &str = "/org/freedesktop/Notifications";

/// Whoever waits for less is still there.
const LONG: Duration = Duration::from_secs(10);

const LONGEST: usize = 120;

/// How titles begin; the page's own words (crates/server/src/page/index.html).
const WORKING: &str = "⋯ ";
const ANSWERED: &str = "✓ ";
const FAILED: &str = "✕ ";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Notice {
    pub(crate) summary: &'static str,
    pub(crate) body: String,
}

/// What the title has said so far.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    since: Option<Instant>,
}

impl Watch {
    pub(crate) fn is_working(&self) -> bool {
        self.since.is_some()
    }

    /// The next title, and whether somebody looks at the window; what is to be said.
    pub(crate) fn title(&mut self, title: &str, now: Instant, looks: bool) -> Option<Notice> {
        if title.starts_with(WORKING) {
            self.since.get_or_insert(now);
            return None;
        }
        let since = self.since.take()?;
        let (summary, about) = title.strip_prefix(ANSWERED).map(|about| ("Answered", about)).or_else(|| {
            let about = title.strip_prefix(FAILED)?;
            Some(("There is no answer", about))
        })?;
        let about = about.strip_suffix(" – Trunkline").unwrap_or(about);
        (!looks && now.duration_since(since) >= LONG).then(|| Notice { summary, body: plain(about) })
    }
}

/// A page's words, fit for a title or a notification.
pub(crate) fn plain(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(LONGEST).collect()
}

/// The desktop's notifications; nothing happens where it has none.
pub(crate) struct Notices {
    bus: DBusConnection,
    /// The one that is shown, to be replaced by the next.
    shown: Rc<RefCell<u32>>,
}

impl Notices {
    /// `clicked` is called when somebody wants to see what a notification was about.
    pub(crate) fn new(clicked: impl Fn() + 'static) -> Option<Self> {
        let bus = gio::bus_get_sync(gio::BusType::Session, gio::Cancellable::NONE).ok()?;
        let shown = Rc::new(RefCell::new(0));
        let ours = Rc::clone(&shown);
        let heard = move |_: &DBusConnection, _: &str, _: &str, _: &str, _: &str, what: &glib::Variant| {
            if what.try_child_value(0).and_then(|id| id.get::<u32>()).is_some_and(|id| id != 0 && id == *ours.borrow())
            {
                clicked();
            }
        };
        let flags = DBusSignalFlags::NONE;
        bus.signal_subscribe(Some(BUS_NAME), Some(BUS_NAME), Some("ActionInvoked"), Some(OBJECT), None, flags, heard);
        Some(Self { bus, shown })
    }

    pub(crate) fn show(&self, notice: &Notice) {
        let hints = glib::VariantDict::new(None);
        hints.insert("desktop-entry", "trunkline-desktop");
        let actions = ["default", "Show"].map(str::to_owned).to_vec();
        // Some daemons read the body as markup.
        let body = glib::markup_escape_text(&notice.body).to_string();
        let asked = glib::Variant::tuple_from_iter([
            "Trunkline".to_variant(),
            self.shown.borrow().to_variant(),
            "trunkline".to_variant(),
            notice.summary.to_variant(),
            body.to_variant(),
            actions.to_variant(),
            hints.end(),
            (-1_i32).to_variant(),
        ]);
        let shown = Rc::clone(&self.shown);
        let answered = move |reply: Result<glib::Variant, glib::Error>| {
            if let Some(id) = reply.ok().and_then(|reply| reply.try_child_value(0)).and_then(|id| id.get::<u32>()) {
                *shown.borrow_mut() = id;
            }
        };
        let reply = VariantTy::new("(u)").ok();
        let (flags, limit) = (DBusCallFlags::NONE, 5000);
        let nobody = gio::Cancellable::NONE;
        self.bus.call(Some(BUS_NAME), OBJECT, BUS_NAME, "Notify", Some(&asked), reply, flags, limit, nobody, answered);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(titles: &[(&str, u64, bool)]) -> Option<Notice> {
        let (mut watch, start) = (Watch::default(), Instant::now());
        let notices =
            titles.iter().map(|(title, at, looks)| watch.title(title, start + Duration::from_secs(*at), *looks));
        notices.last().flatten()
    }

    #[test]
    fn only_a_long_answer_that_nobody_awaits_is_told() {
        let told = |summary, body: &str| Some(Notice { summary, body: body.to_owned() });
        let working = ("⋯ mend it – Trunkline", 0, true);
        for (title, at, looks, expected) in [
            ("✓ mend it – Trunkline", 30, false, told("Answered", "mend it")),
            ("✕ mend it – Trunkline", 30, false, told("There is no answer", "mend it")),
            ("✓ mend it – Trunkline", 30, true, None),
            ("✓ mend it – Trunkline", 3, false, None),
            // Stopped by its user, or reloaded.
            ("Trunkline", 30, false, None),
        ] {
            assert_eq!(after(&[working, (title, at, looks)]), expected, "{title} {at} {looks}");
        }
        assert_eq!(after(&[("✓ mend it – Trunkline", 30, false)]), None, "nothing was going on");
        let again = [working, ("⋯ mend it – Trunkline", 25, false), ("✓ mend it – Trunkline", 30, false)];
        assert!(after(&again).is_some(), "it has worked since the first");
    }

    #[test]
    fn a_page_cannot_say_much() {
        let notice = after(&[("⋯ x", 0, false), (&format!("✓ a\u{1b}\n{}", "b".repeat(999)), 60, false)]).unwrap();
        assert_eq!(notice.body, format!("a{}", "b".repeat(119)));
    }
}
