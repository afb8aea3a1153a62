//! The main window: menu bar, page, and the panel that is shown while there is no page.

use anyhow::{Context, Result};
use gtk::gdk_pixbuf::PixbufLoader;
use gtk::prelude::*;
use tao::dpi::{LogicalPosition, LogicalSize};
use tao::event_loop::{EventLoop, EventLoopProxy};
use tao::platform::unix::WindowExtUnix;
use tao::window::{Fullscreen, UserAttentionType, Window, WindowBuilder};

use crate::app::AppEvent;
use crate::chat_page::ChatPage;
use crate::menu;
use crate::panel::StatusPanel;
use crate::paths::DesktopPaths;
use crate::saved_window::{MIN_SIZE, SavedWindow, ScreenArea};

const ICON: &[u8] = include_bytes!("../assets/trunkline.png");

pub(crate) struct View {
    window: Window,
    pub(crate) page: ChatPage,
    pub(crate) panel: StatusPanel,
    stack: gtk::Stack,
}

impl View {
    pub(crate) fn open(
        event_loop: &EventLoop<AppEvent>,
        events: &EventLoopProxy<AppEvent>,
        paths: &DesktopPaths,
        saved: &SavedWindow,
    ) -> Result<Self> {
        let (position, size) = saved.fit(&screens());
        let mut builder = WindowBuilder::new()
            .with_title("Trunkline")
            .with_inner_size(LogicalSize::new(size.0, size.1))
            .with_min_inner_size(LogicalSize::new(MIN_SIZE.0, MIN_SIZE.1))
            .with_maximized(saved.maximized);
        if let Some((x, y)) = position {
            builder = builder.with_position(LogicalPosition::new(x, y));
        }
        let window = builder.build(event_loop).context("cannot open a window")?;
        let gtk_window = window.gtk_window();
        gtk_window.set_icon(icon().as_ref());
        let rows = window.default_vbox().context("the window has no content area")?;
        let (bar, stack) = (menu::bar(gtk_window, events), gtk::Stack::new());
        let (panel, frame) = (StatusPanel::new(events), gtk::Box::new(gtk::Orientation::Vertical, 0));
        let page = ChatPage::new(&frame, paths.page_data(), events)?;
        page.zoom(saved.zoom);
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

    pub(crate) fn set_title(&self, title: &str) {
        self.window.set_title(title);
    }

    pub(crate) fn is_focused(&self) -> bool {
        self.window.is_focused()
    }

    /// Highlights the window in the task bar. Works also where there is no notification service.
    pub(crate) fn request_attention(&self) {
        self.window.request_user_attention(Some(UserAttentionType::Informational));
    }

    /// Brings the window to the front. The activation token proves to the desktop that the user asked for it.
    pub(crate) fn raise(&self, token: Option<&str>) {
        let window = self.window.gtk_window();
        if let Some(token) = token {
            window.set_startup_id(token);
        }
        window.deiconify();
        window.present();
    }

    pub(crate) fn toggle_full_screen(&self) {
        let mode = self.window.fullscreen().is_none().then_some(Fullscreen::Borderless(None));
        self.window.set_fullscreen(mode);
    }

    /// Records position and size of the window. A full-screen or maximized window keeps the values from before.
    pub(crate) fn record_geometry(&self, saved: &mut SavedWindow) {
        if self.window.fullscreen().is_some() {
            return;
        }
        saved.maximized = self.window.is_maximized();
        if !saved.maximized {
            let window = self.window.gtk_window();
            saved.size = window.size();
            // Wayland does not tell windows their position; GTK then reports (0, 0).
            saved.position = (!window.display().backend().is_wayland()).then(|| window.position());
        }
    }

    /// Asks whether to quit while an answer is being written. Calls `yes` if the user agrees.
    pub(crate) fn confirm_quit(&self, yes: impl Fn() + 'static) {
        let text = "An answer is being written.";
        let (flags, kind) = (gtk::DialogFlags::MODAL, gtk::MessageType::Question);
        let parent = Some(self.window.gtk_window());
        let dialog = gtk::MessageDialog::new(parent, flags, kind, gtk::ButtonsType::None, text);
        dialog.set_secondary_text(Some("Closing this window stops the gateway and interrupts the answer."));
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

    pub(crate) fn show_about(&self) {
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

    /// Hides the window at once; the remaining cleanup happens out of sight.
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

/// Returns the usable area of each screen, without bars and docks.
fn screens() -> Vec<ScreenArea> {
    let Some(display) = gtk::gdk::Display::default() else { return Vec::new() };
    let screens = (0..display.n_monitors()).filter_map(|number| display.monitor(number));
    let areas = screens.map(|screen| screen.workarea());
    areas.map(|area| ScreenArea { x: area.x(), y: area.y(), width: area.width(), height: area.height() }).collect()
}
