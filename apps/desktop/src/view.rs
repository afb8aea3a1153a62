//! The window: menu, page, and the panel that stands in for the page.

use anyhow::{Context, Result};
use gtk::gdk_pixbuf::PixbufLoader;
use gtk::prelude::*;
use tao::dpi::{LogicalPosition, LogicalSize};
use tao::event_loop::{EventLoop, EventLoopProxy};
use tao::platform::unix::WindowExtUnix;
use tao::window::{Fullscreen, UserAttentionType, Window, WindowBuilder};

use crate::app::Said;
use crate::memory::{Area, Memory, SMALLEST};
use crate::menu;
use crate::page::Page;
use crate::panel::Panel;
use crate::places::Places;

const ICON: &[u8] = include_bytes!("../assets/trunkline.png");

pub(crate) struct View {
    window: Window,
    pub(crate) page: Page,
    pub(crate) panel: Panel,
    stack: gtk::Stack,
}

impl View {
    pub(crate) fn open(
        event_loop: &EventLoop<Said>,
        said: &EventLoopProxy<Said>,
        places: &Places,
        memory: &Memory,
    ) -> Result<Self> {
        let (position, size) = memory.fit(&screens());
        let mut builder = WindowBuilder::new()
            .with_title("Trunkline")
            .with_inner_size(LogicalSize::new(size.0, size.1))
            .with_min_inner_size(LogicalSize::new(SMALLEST.0, SMALLEST.1))
            .with_maximized(memory.maximized);
        if let Some((x, y)) = position {
            builder = builder.with_position(LogicalPosition::new(x, y));
        }
        let window = builder.build(event_loop).context("cannot open a window")?;
        let gtk_window = window.gtk_window();
        gtk_window.set_icon(icon().as_ref());
        let rows = window.default_vbox().context("the window has no room")?;
        let (bar, stack) = (menu::bar(gtk_window, said), gtk::Stack::new());
        let (panel, frame) = (Panel::new(said), gtk::Box::new(gtk::Orientation::Vertical, 0));
        let page = Page::new(&frame, places.web(), said)?;
        page.zoom(memory.zoom);
        stack.add_named(&panel.root, "panel");
        stack.add_named(&frame, "page");
        rows.pack_start(&bar, false, false, 0);
        rows.pack_start(&stack, true, true, 0);
        rows.show_all();
        Ok(Self { window, page, panel, stack })
    }

    pub(crate) fn show_page(&self) {
        self.stack.set_visible_child_name("page");
    }

    pub(crate) fn show_panel(&self) {
        self.stack.set_visible_child_name("panel");
    }

    pub(crate) fn title(&self, title: &str) {
        self.window.set_title(title);
    }

    pub(crate) fn is_looked_at(&self) -> bool {
        self.window.is_focused()
    }

    /// In the task bar, where notifications may not be.
    pub(crate) fn want_attention(&self) {
        self.window.request_user_attention(Some(UserAttentionType::Informational));
    }

    /// Brings the window to the front, with the leave of whoever gave us the token.
    pub(crate) fn raise(&self, token: Option<&str>) {
        let window = self.window.gtk_window();
        if let Some(token) = token {
            window.set_startup_id(token);
        }
        window.deiconify();
        window.present();
    }

    pub(crate) fn toggle_full_screen(&self) {
        let whole = self.window.fullscreen().is_none().then_some(Fullscreen::Borderless(None));
        self.window.set_fullscreen(whole);
    }

    /// Notes where the window is, unless it is as large as can be.
    pub(crate) fn note(&self, memory: &mut Memory) {
        if self.window.fullscreen().is_some() {
            return;
        }
        memory.maximized = self.window.is_maximized();
        if !memory.maximized {
            let window = self.window.gtk_window();
            memory.size = window.size();
            // Wayland tells no window where it is, and GTK says the corner.
            memory.position = (!window.display().backend().is_wayland()).then(|| window.position());
        }
    }

    /// Asks before an answer is cut short; `yes` is called if it may be.
    pub(crate) fn confirm_quit(&self, yes: impl Fn() + 'static) {
        let text = "An answer is being written.";
        let (flags, kind) = (gtk::DialogFlags::MODAL, gtk::MessageType::Question);
        let parent = Some(self.window.gtk_window());
        let dialog = gtk::MessageDialog::new(parent, flags, kind, gtk::ButtonsType::None, text);
        dialog.set_secondary_text(Some("The gateway ends with this window, and the answer with it."));
        dialog.add_button("_Keep open", gtk::ResponseType::Cancel);
        dialog.add_button("_Quit", gtk::ResponseType::Accept);
        dialog.set_default_response(gtk::ResponseType::Cancel);
        dialog.connect_response(move |dialog, response| {
            if response == gtk::ResponseType::Accept {
                yes();
            }
            dialog.close();
        });
        dialog.show_all();
    }

    pub(crate) fn about(&self) {
        let about = gtk::AboutDialog::new();
        about.set_transient_for(Some(self.window.gtk_window()));
        about.set_program_name("Trunkline");
        about.set_version(Some(env!("CARGO_PKG_VERSION")));
        about.set_comments(Some("Every coding-agent CLI on one line"));
        about.set_license_type(gtk::License::MitX11);
        about.set_logo(icon().as_ref());
        about.connect_response(|about, _| about.close());
        about.show();
    }

    /// Gone at once: what is left to do needs nobody to look on.
    pub(crate) fn hide(&self) {
        self.window.gtk_window().hide();
        while gtk::events_pending() {
            gtk::main_iteration();
        }
    }
}

fn icon() -> Option<gtk::gdk_pixbuf::Pixbuf> {
    let loader = PixbufLoader::new();
    loader.write(ICON).ok()?;
    loader.close().ok()?;
    loader.pixbuf()
}

/// What there is of screens, without bars and docks.
fn screens() -> Vec<Area> {
    let Some(display) = gtk::gdk::Display::default() else { return Vec::new() };
    let screens = (0..display.n_monitors()).filter_map(|number| display.monitor(number));
    let areas = screens.map(|screen| screen.workarea());
    areas.map(|area| Area { x: area.x(), y: area.y(), width: area.width(), height: area.height() }).collect()
}
