//! Panel shown instead of the page: progress while waiting for a gateway, errors, and the choice of a port.

use std::time::Duration;

use gtk::prelude::*;
use gtk::{Align, Orientation};
use tao::event_loop::EventLoopProxy;

use crate::app::AppEvent;
use crate::gateway::free_port;
use crate::menu::MenuAction;

pub(crate) struct StatusPanel {
    pub(crate) root: gtk::Box,
    spinner: gtk::Spinner,
    headline: gtk::Label,
    line: gtk::Label,
    details: gtk::TextView,
    /// Scrollable frame around `details`.
    frame: gtk::ScrolledWindow,
    buttons: gtk::Box,
    port: gtk::SpinButton,
}

impl StatusPanel {
    pub(crate) fn new(events: &EventLoopProxy<AppEvent>) -> Self {
        let root = gtk::Box::new(Orientation::Vertical, 12);
        root.set_margin(32);
        root.set_valign(Align::Center);
        let (spinner, headline, line) = (gtk::Spinner::new(), label(true), label(false));
        let details = gtk::TextView::builder().editable(false).cursor_visible(false).monospace(true).build();
        details.set_wrap_mode(gtk::WrapMode::WordChar);
        let frame = gtk::ScrolledWindow::builder().shadow_type(gtk::ShadowType::In).min_content_height(220).build();
        frame.add(&details);
        let buttons = gtk::Box::new(Orientation::Horizontal, 8);
        buttons.set_halign(Align::Center);
        let retry = gtk::Button::with_mnemonic("_Try again");
        let use_port = gtk::Button::with_mnemonic("_Use this port");
        let port = gtk::SpinButton::with_range(1.0, 65535.0, 1.0);
        port.set_tooltip_text(Some("Port of the gateway. The choice is saved."));
        let separator = gtk::Separator::new(Orientation::Vertical);
        buttons.add(&retry);
        buttons.add(&separator);
        buttons.add(&port);
        buttons.add(&use_port);
        root.add(&spinner);
        root.add(&headline);
        root.add(&line);
        root.add(&frame);
        root.add(&buttons);
        let retries = events.clone();
        retry.connect_clicked(move |_| drop(retries.send_event(AppEvent::Menu(MenuAction::Reload))));
        let send_port = {
            let (events, port) = (events.clone(), port.clone());
            move || drop(u16::try_from(port.value_as_int()).map(|port| events.send_event(AppEvent::UsePort(port))))
        };
        let on_click = send_port.clone();
        use_port.connect_clicked(move |_| on_click());
        port.connect_activate(move |port| {
            port.update();
            send_port();
        });
        Self { root, spinner, headline, line, details, frame, buttons, port }
    }

    /// Shows how long we have waited for the gateway, and the last line of its log.
    pub(crate) fn show_waiting(&self, waited: Duration, log_line: &str) {
        self.spinner.show();
        self.spinner.start();
        let seconds = waited.as_secs();
        let headline = "Waiting for the gateway";
        self.headline.set_text(&if seconds > 0 { format!("{headline} · {seconds} s") } else { headline.to_owned() });
        self.line.set_text(log_line);
        self.frame.hide();
        self.buttons.hide();
    }

    /// Shows an error with its reason and the gateway's log, and offers a free port instead of `port`.
    pub(crate) fn show_error(&self, headline: &str, reason: &str, log: &str, port: u16) {
        self.spinner.stop();
        self.spinner.hide();
        self.headline.set_text(headline);
        self.line.set_text(reason);
        if let Some(text) = self.details.buffer() {
            text.set_text(log);
        }
        self.frame.set_visible(!log.is_empty());
        self.offer_port(free_port().unwrap_or(port));
    }

    /// Lets the user choose another port.
    pub(crate) fn show_port_choice(&self, port: u16) {
        self.spinner.stop();
        self.spinner.hide();
        self.headline.set_text("Port of the gateway");
        self.line
            .set_text("A gateway on this port is used as it is. If there is none, one is started for this window.");
        self.frame.hide();
        self.offer_port(port);
        self.port.grab_focus();
    }

    fn offer_port(&self, port: u16) {
        self.buttons.show();
        self.port.set_value(f64::from(port));
    }
}

fn label(large: bool) -> gtk::Label {
    let label = gtk::Label::builder().wrap(true).justify(gtk::Justification::Center).selectable(true).build();
    label.set_max_width_chars(80);
    label.set_can_focus(false);
    if large {
        let attributes = gtk::pango::AttrList::new();
        attributes.insert(gtk::pango::AttrFloat::new_scale(1.4));
        label.set_attributes(Some(&attributes));
    }
    label
}
