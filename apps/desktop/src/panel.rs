//! What is seen while there is no page: that a gateway is awaited, or why there is none, and what can be done.

use std::time::Duration;

use gtk::prelude::*;
use gtk::{Align, Orientation};
use tao::event_loop::EventLoopProxy;

use crate::app::Said;
use crate::gateway::free_port;
use crate::menu::Action;

pub(crate) struct Panel {
    pub(crate) root: gtk::Box,
    spinner: gtk::Spinner,
    headline: gtk::Label,
    line: gtk::Label,
    details: gtk::TextView,
    frame: gtk::ScrolledWindow,
    choices: gtk::Box,
    port: gtk::SpinButton,
}

impl Panel {
    pub(crate) fn new(said: &EventLoopProxy<Said>) -> Self {
        let root = gtk::Box::new(Orientation::Vertical, 12);
        root.set_margin(32);
        root.set_valign(Align::Center);
        let (spinner, headline, line) = (gtk::Spinner::new(), label(true), label(false));
        let details = gtk::TextView::builder().editable(false).cursor_visible(false).monospace(true).build();
        details.set_wrap_mode(gtk::WrapMode::WordChar);
        let frame = gtk::ScrolledWindow::builder().shadow_type(gtk::ShadowType::In).min_content_height(220).build();
        frame.add(&details);
        let choices = gtk::Box::new(Orientation::Horizontal, 8);
        choices.set_halign(Align::Center);
        let again = gtk::Button::with_mnemonic("_Try again");
        let elsewhere = gtk::Button::with_mnemonic("_Use this port");
        let port = gtk::SpinButton::with_range(1.0, 65535.0, 1.0);
        port.set_tooltip_text(Some("Port of the gateway; remembered"));
        let separator = gtk::Separator::new(Orientation::Vertical);
        choices.add(&again);
        choices.add(&separator);
        choices.add(&port);
        choices.add(&elsewhere);
        root.add(&spinner);
        root.add(&headline);
        root.add(&line);
        root.add(&frame);
        root.add(&choices);
        let retry = said.clone();
        again.connect_clicked(move |_| drop(retry.send_event(Said::Chosen(Action::Reload))));
        let choose = {
            let (said, port) = (said.clone(), port.clone());
            move || drop(u16::try_from(port.value_as_int()).map(|port| said.send_event(Said::UsePort(port))))
        };
        let chosen = choose.clone();
        elsewhere.connect_clicked(move |_| chosen());
        port.connect_activate(move |port| {
            port.update();
            choose();
        });
        Self { root, spinner, headline, line, details, frame, choices, port }
    }

    /// A gateway is awaited, for so long now; the last that was heard of it.
    pub(crate) fn wait(&self, waited: Duration, heard: &str) {
        self.spinner.show();
        self.spinner.start();
        let seconds = waited.as_secs();
        let headline = "Waiting for the gateway";
        self.headline.set_text(&if seconds > 0 { format!("{headline} · {seconds} s") } else { headline.to_owned() });
        self.line.set_text(heard);
        self.frame.hide();
        self.choices.hide();
    }

    /// Something is wrong, and why; what the gateway said last, and another port to try than this one.
    pub(crate) fn trouble(&self, what: &str, why: &str, said: &str, port: u16) {
        self.spinner.stop();
        self.spinner.hide();
        self.headline.set_text(what);
        self.line.set_text(why);
        if let Some(text) = self.details.buffer() {
            text.set_text(said);
        }
        self.frame.set_visible(!said.is_empty());
        self.ask_port(free_port().unwrap_or(port));
    }

    /// Offers to use another port.
    pub(crate) fn choose(&self, port: u16) {
        self.spinner.stop();
        self.spinner.hide();
        self.headline.set_text("Port of the gateway");
        self.line.set_text("One that runs on this port is used; else one is started, and ends with this window.");
        self.frame.hide();
        self.ask_port(port);
        self.port.grab_focus();
    }

    fn ask_port(&self, port: u16) {
        self.choices.show();
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
