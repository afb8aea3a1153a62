//! The chat page in a WebKit view that has no more privileges than a browser tab: no downloads, permissions or new
//! windows.

use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;

use anyhow::{Context, Result};
use tao::event_loop::EventLoopProxy;
use webkit2gtk::WebViewExt;
use wry::{
    NewWindowResponse, PermissionResponse, WebContext, WebView, WebViewBuilder, WebViewBuilderExtUnix, WebViewExtUnix,
};

use crate::app::AppEvent;
use crate::links::{LinkTarget, link_target};

pub(crate) struct ChatPage {
    view: WebView,
    /// Origin of the gateway; empty until there is one.
    origin: Rc<RefCell<String>>,
    _context: WebContext,
}

impl ChatPage {
    /// Creates an empty view inside `parent`. `data` is the folder for cookies and the page's local storage.
    pub(crate) fn new(parent: &gtk::Box, data: PathBuf, events: &EventLoopProxy<AppEvent>) -> Result<Self> {
        let mut context = WebContext::new(Some(data));
        let origin = Rc::new(RefCell::new(String::new()));
        let open_link = |events: &EventLoopProxy<AppEvent>| {
            let events = events.clone();
            move |url: String| drop(events.send_event(AppEvent::Link(url)))
        };
        let (gateway, on_link, on_new_window) = (Rc::clone(&origin), open_link(events), open_link(events));
        let titles = events.clone();
        let view = WebViewBuilder::new_with_web_context(&mut context)
            .with_navigation_handler(move |url| match link_target(&url, &gateway.borrow()) {
                LinkTarget::Gateway => true,
                LinkTarget::External => {
                    on_link(url);
                    false
                }
                LinkTarget::Blocked => false,
            })
            // There is only one window. A link that asks for a new one is classified like any other and opens in the
            // browser.
            .with_new_window_req_handler(move |url, _| {
                on_new_window(url);
                NewWindowResponse::Deny
            })
            .with_document_title_changed_handler(move |title| drop(titles.send_event(AppEvent::Title(title))))
            // The page offers no downloads, and content written by an agent must not fill the disk.
            .with_download_started_handler(|_, _| false)
            .with_permission_handler(|_| PermissionResponse::Deny)
            .with_devtools(false)
            .build_gtk(parent)
            .context("cannot create the WebKit view")?;
        let crashes = events.clone();
        view.webview().connect_web_process_terminated(move |_, _| drop(crashes.send_event(AppEvent::PageCrashed)));
        Ok(Self { view, origin, _context: context })
    }

    /// Loads or reloads the page of the gateway at this origin.
    pub(crate) fn show(&self, origin: &str) {
        origin.clone_into(&mut self.origin.borrow_mut());
        // These fail only if the WebKit process is gone, which is reported as `AppEvent::PageCrashed`.
        let _ = self.view.load_url(&format!("{origin}/"));
        let _ = self.view.focus();
    }

    pub(crate) fn origin(&self) -> String {
        self.origin.borrow().clone()
    }

    /// Runs a WebKit editing command on the focused element of the page.
    pub(crate) fn edit(&self, command: &str) {
        self.view.webview().execute_editing_command(command);
    }

    pub(crate) fn zoom(&self, percent: u16) {
        let _ = self.view.zoom(f64::from(percent) / 100.0);
    }
}
