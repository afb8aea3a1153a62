//! Controller: handles every event and connects the window with the gateway.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use tao::event::{Event, WindowEvent};
use tao::event_loop::{ControlFlow, EventLoop, EventLoopProxy};

use crate::gateway::{self, GatewayEvent, SpawnedGateway};
use crate::instance::ShowRequest;
use crate::links::{self, LinkTarget, LinkThrottle, link_target};
use crate::log_stderr;
use crate::menu::MenuAction;
use crate::notifications::{Notifier, TitleTracker, printable};
use crate::paths::DesktopPaths;
use crate::saved_window::SavedWindow;
use crate::view::View;
use crate::wake_timer::WakeTimer;

const DEFAULT_PORT: u16 = 8765;

/// Time for a gateway that we started to listen.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(60);

/// Delay between a change of the window and its write to disk: a window that is being dragged changes all the time.
const SAVE_DELAY: Duration = Duration::from_secs(1);

const NO_GATEWAY: &str = "The gateway is not available";

/// Lines of the gateway's log that are kept, and shown when it fails.
const MAX_LOG_LINES: usize = 60;

/// Events that other threads and widgets send to the event loop.
#[derive(Debug)]
pub(crate) enum AppEvent {
    /// Event of the connection attempt with this number.
    Gateway(u32, GatewayEvent),
    /// Show the window: another instance was started, or a notification was clicked.
    Raise(Option<ShowRequest>),
    Menu(MenuAction),
    UsePort(u16),
    /// The page changed its title.
    Title(String),
    /// The page tries to navigate outside the gateway, or to open a new window.
    Link(String),
    /// The WebKit process of the page has ended.
    PageCrashed,
    /// Quit without asking.
    Quit,
}

/// Content of the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ViewState {
    /// Waiting for a gateway since this time.
    Waiting(Instant),
    Page,
    /// The panel shows an error or the choice of a port.
    Panel,
}

pub(crate) struct DesktopApp {
    view: View,
    events: EventLoopProxy<AppEvent>,
    paths: DesktopPaths,
    saved: SavedWindow,
    port: u16,
    state: ViewState,
    /// Number of the latest connection attempt; the threads of earlier attempts see that they are outdated.
    attempt: Arc<AtomicU32>,
    /// Whether the latest attempt is still running.
    pending: bool,
    /// The gateway that we started, and the number of its attempt.
    gateway: Option<(u32, SpawnedGateway)>,
    log: VecDeque<String>,
    throttle: LinkThrottle,
    titles: TitleTracker,
    notifier: Option<Notifier>,
    /// Time of the first change to `saved` that is not on disk.
    unsaved: Option<Instant>,
    timer: WakeTimer,
    quitting: bool,
}

impl DesktopApp {
    pub(crate) fn open(
        event_loop: &EventLoop<AppEvent>,
        events: EventLoopProxy<AppEvent>,
        paths: DesktopPaths,
        saved: SavedWindow,
        port: Option<u16>,
    ) -> Result<Self> {
        let view = View::open(event_loop, &events, &paths, &saved)?;
        let clicked = events.clone();
        let notifier = Notifier::new(move || drop(clicked.send_event(AppEvent::Raise(None))));
        let mut app = Self {
            view,
            events,
            paths,
            port: port.or(saved.port).unwrap_or(DEFAULT_PORT),
            saved,
            state: ViewState::Panel,
            attempt: Arc::default(),
            pending: false,
            gateway: None,
            log: VecDeque::new(),
            throttle: LinkThrottle::default(),
            titles: TitleTracker::default(),
            notifier,
            unsaved: None,
            timer: WakeTimer::default(),
            quitting: false,
        };
        app.show_waiting();
        app.connect();
        Ok(app)
    }

    /// Handles one event. Returns what the event loop waits for next.
    pub(crate) fn on(&mut self, event: Event<'_, AppEvent>) -> ControlFlow {
        if let Event::UserEvent(event) = event {
            self.on_app_event(event);
        } else if let Event::WindowEvent { event, .. } = event {
            if let WindowEvent::CloseRequested = event {
                self.ask_to_quit();
            } else if let WindowEvent::Resized(_) | WindowEvent::Moved(_) = event {
                self.change(View::record_geometry);
            }
        }
        self.tick()
    }

    /// Saves the window and stops the gateway that we started. Called after the last event.
    pub(crate) fn close(mut self) {
        self.view.record_geometry(&mut self.saved);
        self.save();
        self.view.hide();
        if let Some((_, gateway)) = self.gateway.take() {
            gateway.stop();
        }
    }

    fn on_app_event(&mut self, event: AppEvent) {
        match event {
            AppEvent::Gateway(attempt, event) => self.on_gateway_event(attempt, event),
            AppEvent::Raise(request) => self.raise(request),
            AppEvent::Menu(action) => self.on_menu(action),
            AppEvent::UsePort(port) => self.use_port(port),
            AppEvent::Title(title) => self.on_title(&title),
            AppEvent::Link(url) => self.on_link(&url),
            AppEvent::PageCrashed => {
                self.show_error("The page has crashed", "Messages that reached the gateway are not lost.");
            }
            AppEvent::Quit => self.quitting = true,
        }
    }

    fn raise(&self, request: Option<ShowRequest>) {
        // While quitting, no acknowledgement is sent: the other instance then waits for our end and opens its own
        // window.
        if self.quitting {
            return;
        }
        self.view.raise(request.as_ref().and_then(|request| request.token.as_deref()));
        request.into_iter().for_each(ShowRequest::acknowledge);
    }

    fn on_gateway_event(&mut self, attempt: u32, event: GatewayEvent) {
        let latest = attempt == self.attempt.load(Ordering::Relaxed);
        let is_current = self.gateway.as_ref().is_some_and(|(number, _)| *number == attempt);
        match event {
            GatewayEvent::Log(line) => {
                self.log.push_back(line);
                self.log.drain(..self.log.len().saturating_sub(MAX_LOG_LINES));
            }
            GatewayEvent::Started(gateway) if latest => {
                self.log.clear();
                if let Some((_, earlier)) = self.gateway.replace((attempt, gateway)) {
                    earlier.stop_in_background();
                }
                // Restart the startup timeout: the attempt may have waited for another gateway to stop.
                self.show_waiting();
            }
            GatewayEvent::Ready(origin) if latest => {
                self.pending = false;
                self.state = ViewState::Page;
                self.view.page.show(&origin);
                self.view.show_page();
            }
            GatewayEvent::Failed(reason) if latest => {
                self.pending = false;
                let exit = self.gateway.take_if(|_| is_current).map(|(_, gateway)| gateway.wait());
                let exit = exit.map(|exit| format!(": it exited {exit}")).unwrap_or_default();
                self.show_error(NO_GATEWAY, &format!("{reason}{exit}"));
            }
            GatewayEvent::Exited if is_current => {
                let exit = self.gateway.take().map(|(_, gateway)| gateway.wait()).unwrap_or_default();
                self.show_error(NO_GATEWAY, &format!("The gateway has exited {exit}."));
            }
            // The remaining events belong to outdated attempts.
            GatewayEvent::Started(gateway) => gateway.stop_in_background(),
            GatewayEvent::Ready(_) | GatewayEvent::Failed(_) | GatewayEvent::Exited => {}
        }
    }

    fn on_menu(&mut self, action: MenuAction) {
        match action {
            MenuAction::Reload => {
                if self.state == ViewState::Panel {
                    self.show_waiting();
                }
                // The page is reloaded once a gateway responds; if the gateway is gone, another one is started. While
                // one is starting it does not respond yet, and a second one would conflict with it.
                if !self.pending {
                    self.connect();
                }
            }
            MenuAction::ChangePort => {
                self.state = ViewState::Panel;
                self.view.panel.show_port_choice(self.port);
                self.view.show_panel();
            }
            MenuAction::OpenInBrowser => self.open_in_browser(),
            MenuAction::Quit => self.ask_to_quit(),
            MenuAction::Edit(command) => self.view.page.edit(command),
            MenuAction::ZoomIn => self.zoom(SavedWindow::zoom_in),
            MenuAction::ZoomOut => self.zoom(SavedWindow::zoom_out),
            MenuAction::ZoomReset => self.zoom(|saved| saved.zoom = 100),
            MenuAction::FullScreen => self.view.toggle_full_screen(),
            MenuAction::About => self.view.show_about(),
        }
    }

    fn zoom(&mut self, change: impl Fn(&mut SavedWindow)) {
        self.change(|_, saved| change(saved));
        self.view.page.zoom(self.saved.zoom);
    }

    fn use_port(&mut self, port: u16) {
        let changed = port != self.port;
        if changed && let Some((_, gateway)) = self.gateway.take() {
            gateway.stop_in_background();
        }
        self.port = port;
        self.saved.port = Some(port);
        self.save();
        self.show_waiting();
        if changed || !self.pending {
            self.connect();
        }
    }

    fn on_title(&mut self, title: &str) {
        // Titles of a hidden page are outdated; the page sets its title again when it is loaded.
        if self.state != ViewState::Page {
            return;
        }
        let notification = self.titles.update(title, Instant::now(), self.view.is_focused());
        let title = printable(title);
        self.view.set_title(if title.is_empty() { "Trunkline" } else { &title });
        if let Some(notification) = notification {
            self.view.request_attention();
            self.notifier.iter().for_each(|notifier| notifier.show(&notification));
        }
    }

    /// Opens a link in the browser. Links that ask for a new window arrive here too, even those of the gateway itself.
    fn on_link(&mut self, url: &str) {
        match link_target(url, &self.view.page.origin()) {
            LinkTarget::Gateway | LinkTarget::External if self.throttle.allows(Instant::now()) => self.browse(url),
            LinkTarget::Gateway | LinkTarget::External | LinkTarget::Blocked => {}
        }
    }

    fn open_in_browser(&self) {
        let origin = self.view.page.origin();
        // Empty until a gateway has responded.
        if !origin.is_empty() {
            self.browse(&format!("{origin}/"));
        }
    }

    fn browse(&self, url: &str) {
        if let Err(error) = links::open(url) {
            log_stderr(&error);
        }
    }

    /// Finds or starts a gateway.
    fn connect(&mut self) {
        self.pending = true;
        let (attempt, events) = (self.next_attempt(), self.events.clone());
        let send = move |event| drop(events.send_event(AppEvent::Gateway(attempt, event)));
        let latest = Arc::clone(&self.attempt);
        let is_latest = move || latest.load(Ordering::Relaxed) == attempt;
        gateway::connect(&self.paths, self.port, is_latest, send);
    }

    /// Invalidates all earlier attempts and returns the number of the new one.
    fn next_attempt(&self) -> u32 {
        self.attempt.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn show_waiting(&mut self) {
        self.state = ViewState::Waiting(Instant::now());
        self.view.set_title("Trunkline");
        self.view.show_panel();
    }

    fn show_error(&mut self, headline: &str, reason: &str) {
        self.state = ViewState::Panel;
        self.titles = TitleTracker::default();
        self.view.set_title(&format!("{headline} – Trunkline"));
        let log = self.log.iter().map(String::as_str).collect::<Vec<_>>().join("\n");
        self.view.panel.show_error(headline, reason, &log, self.port);
        self.view.show_panel();
    }

    fn tick(&mut self) -> ControlFlow {
        if self.quitting {
            return ControlFlow::Exit;
        }
        if self.unsaved.is_some_and(|since| since.elapsed() >= SAVE_DELAY) {
            self.save();
        }
        let save = self.unsaved.map(|since| since + SAVE_DELAY);
        let next = save.into_iter().chain(self.update_waiting()).min();
        next.map_or(ControlFlow::Wait, |at| {
            self.timer.set(at);
            ControlFlow::WaitUntil(at)
        })
    }

    /// Shows how long we have waited for a gateway, and stops it after [`STARTUP_TIMEOUT`]. Returns the time of the
    /// next update.
    fn update_waiting(&mut self) -> Option<Instant> {
        let ViewState::Waiting(since) = self.state else { return None };
        let waited = since.elapsed();
        if waited >= STARTUP_TIMEOUT
            && let Some((_, gateway)) = self.gateway.take()
        {
            gateway.kill();
            self.next_attempt();
            self.pending = false;
            let reason = format!("It did not start to listen within {} s.", STARTUP_TIMEOUT.as_secs());
            self.show_error(NO_GATEWAY, &reason);
            return None;
        }
        self.view.panel.show_waiting(waited, self.log.back().map_or("", String::as_str));
        Some(since + Duration::from_secs(waited.as_secs() + 1))
    }

    fn ask_to_quit(&mut self) {
        if self.titles.is_working() && self.gateway.is_some() {
            let events = self.events.clone();
            self.view.confirm_quit(move || drop(events.send_event(AppEvent::Quit)));
        } else {
            self.quitting = true;
        }
    }

    /// Changes the saved state. It is written to disk after [`SAVE_DELAY`].
    fn change(&mut self, change: impl Fn(&View, &mut SavedWindow)) {
        let before = self.saved.clone();
        change(&self.view, &mut self.saved);
        if self.saved != before {
            self.unsaved.get_or_insert_with(Instant::now);
        }
    }

    fn save(&mut self) {
        self.unsaved = None;
        let path = self.paths.saved_window();
        if let Err(error) = self.saved.save(&path) {
            log_stderr(&format!("cannot save the window state: {}: {error}", path.display()));
        }
    }
}
