//! The chat page in WebKit, with no more powers than in a browser, and fewer where we have none to give.

use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;

use anyhow::{Context, Result};
use tao::event_loop::EventLoopProxy;
use webkit2gtk::WebViewExt;
use wry::{
    NewWindowResponse, PermissionResponse, WebContext, WebView, WebViewBuilder, WebViewBuilderExtUnix, WebViewExtUnix,
};

use crate::app::Said;
use crate::links::{Leads, leads};

pub(crate) struct Page {
    view: WebView,
    /// The gateway's; empty until there is one, and then nothing is home.
    origin: Rc<RefCell<String>>,
    _context: WebContext,
}

impl Page {
    /// Shows nothing yet. `store` is for cookies and what the page keeps.
    pub(crate) fn new(within: &gtk::Box, store: PathBuf, said: &EventLoopProxy<Said>) -> Result<Self> {
        let mut context = WebContext::new(Some(store));
        let origin = Rc::new(RefCell::new(String::new()));
        let away = |said: &EventLoopProxy<Said>| {
            let said = said.clone();
            move |url: String| drop(said.send_event(Said::Away(url)))
        };
        let (home, leave, leave_anew, titled) = (Rc::clone(&origin), away(said), away(said), said.clone());
        let view = WebViewBuilder::new_with_web_context(&mut context)
            .with_navigation_handler(move |url| match leads(&url, &home.borrow()) {
                Leads::Home => true,
                Leads::Away => {
                    leave(url);
                    false
                }
                Leads::Nowhere => false,
            })
            // There is one window. What wants another is looked at as any link is, and goes to the browser.
            .with_new_window_req_handler(move |url, _| {
                leave_anew(url);
                NewWindowResponse::Deny
            })
            .with_document_title_changed_handler(move |title| drop(titled.send_event(Said::Title(title))))
            // The page has nothing to save, and an agent's words must not fill a disk.
            .with_download_started_handler(|_, _| false)
            .with_permission_handler(|_| PermissionResponse::Deny)
            .with_devtools(false)
            .build_gtk(within)
            .context("WebKit cannot be used")?;
        let crashed = said.clone();
        view.webview().connect_web_process_terminated(move |_, _| drop(crashed.send_event(Said::Crashed)));
        Ok(Self { view, origin, _context: context })
    }

    /// Goes to the gateway at this origin, or loads it anew.
    pub(crate) fn show(&self, origin: &str) {
        origin.clone_into(&mut self.origin.borrow_mut());
        let _unless_broken = self.view.load_url(&format!("{origin}/"));
        let _it_may = self.view.focus();
    }

    pub(crate) fn origin(&self) -> String {
        self.origin.borrow().clone()
    }

    /// One of WebKit's editing commands, for what has the focus in the page.
    pub(crate) fn edit(&self, command: &str) {
        self.view.webview().execute_editing_command(command);
    }

    pub(crate) fn zoom(&self, percent: u16) {
        let _unless_broken = self.view.zoom(f64::from(percent) / 100.0);
    }
}
