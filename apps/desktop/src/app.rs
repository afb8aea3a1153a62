//! What happens when: the one place that knows the window and the gateway.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use tao::event::{Event, WindowEvent};
use tao::event_loop::{ControlFlow, EventLoop, EventLoopProxy};

use crate::alarm::Alarm;
use crate::gateway::{self, News, Server};
use crate::instance::Caller;
use crate::links::{self, Leads, Pace, leads};
use crate::memory::Memory;
use crate::menu::Action;
use crate::notice::{Notices, Watch, plain};
use crate::places::Places;
use crate::tell;
use crate::view::View;

const PORT: u16 = 8765;

/// A gateway that has not begun to listen by then will not.
const STARTUP: Duration = Duration::from_secs(60);

/// A window that is being moved is somewhere else in a moment.
const SETTLES: Duration = Duration::from_secs(1);

const NO_GATEWAY: &str = "There is no gateway";

/// Lines of a gateway that are shown when it fails.
const LAST_WORDS: usize = 60;

/// What others have to tell the window.
#[derive(Debug)]
pub(crate) enum Said {
    /// Of the attempt with this number.
    Gateway(u32, News),
    /// Somebody wants to see it: who has started another, or clicked on a notification.
    Raise(Option<Caller>),
    Chosen(Action),
    UsePort(u16),
    /// The page's.
    Title(String),
    /// The page leads there, and it is not the gateway's.
    Away(String),
    /// WebKit's process of the page is gone.
    Crashed,
    /// Without a question.
    Quit,
}

/// What is seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown {
    Waiting(Instant),
    Page,
    Trouble,
}

pub(crate) struct App {
    view: View,
    said: EventLoopProxy<Said>,
    places: Places,
    memory: Memory,
    port: u16,
    shown: Shown,
    /// The number of the latest; the threads of earlier ones see that they are not.
    attempt: Arc<AtomicU32>,
    /// Whether its outcome is open.
    pending: bool,
    /// The gateway that we started, and in which attempt.
    server: Option<(u32, Server)>,
    log: VecDeque<String>,
    pace: Pace,
    watch: Watch,
    notices: Option<Notices>,
    /// Since when there is something to remember that is not on disk.
    unsaved: Option<Instant>,
    alarm: Alarm,
    quits: bool,
}

impl App {
    pub(crate) fn open(
        event_loop: &EventLoop<Said>,
        said: EventLoopProxy<Said>,
        places: Places,
        memory: Memory,
        port: Option<u16>,
    ) -> Result<Self> {
        let view = View::open(event_loop, &said, &places, &memory)?;
        let clicked = said.clone();
        let notices = Notices::new(move || drop(clicked.send_event(Said::Raise(None))));
        let mut app = Self {
            view,
            said,
            places,
            port: port.or(memory.port).unwrap_or(PORT),
            memory,
            shown: Shown::Trouble,
            attempt: Arc::default(),
            pending: false,
            server: None,
            log: VecDeque::new(),
            pace: Pace::default(),
            watch: Watch::default(),
            notices,
            unsaved: None,
            alarm: Alarm::default(),
            quits: false,
        };
        app.wait();
        app.connect();
        Ok(app)
    }

    /// Takes one event; what to wait for next.
    pub(crate) fn on(&mut self, event: Event<'_, Said>) -> ControlFlow {
        if let Event::UserEvent(said) = event {
            self.hear(said);
        } else if let Event::WindowEvent { event, .. } = event {
            if let WindowEvent::CloseRequested = event {
                self.ask_to_quit();
            } else if let WindowEvent::Resized(_) | WindowEvent::Moved(_) = event {
                self.change(View::note);
            }
        }
        self.tick()
    }

    /// After the last event: nothing of ours is left.
    pub(crate) fn close(mut self) {
        self.view.note(&mut self.memory);
        self.keep();
        self.view.hide();
        if let Some((_, server)) = self.server.take() {
            server.end();
        }
    }

    fn hear(&mut self, said: Said) {
        match said {
            Said::Gateway(attempt, news) => self.learn(attempt, news),
            Said::Raise(caller) => self.raise(caller),
            Said::Chosen(action) => self.act(action),
            Said::UsePort(port) => self.use_port(port),
            Said::Title(title) => self.titled(&title),
            Said::Away(url) => self.leave(&url),
            Said::Crashed => self.trouble("The page has crashed", "Nothing that the gateway heard is lost."),
            Said::Quit => self.quits = true,
        }
    }

    fn raise(&self, caller: Option<Caller>) {
        // Whoever calls a window that is going hears nothing, and comes after it.
        if self.quits {
            return;
        }
        self.view.raise(caller.as_ref().and_then(|caller| caller.token.as_deref()));
        caller.into_iter().for_each(Caller::answer);
    }

    fn learn(&mut self, attempt: u32, news: News) {
        let latest = attempt == self.attempt.load(Ordering::Relaxed);
        let of_server = self.server.as_ref().is_some_and(|(number, _)| *number == attempt);
        match news {
            News::Log(line) => {
                self.log.push_back(line);
                self.log.drain(..self.log.len().saturating_sub(LAST_WORDS));
            }
            News::Started(server) if latest => {
                self.log.clear();
                if let Some((_, earlier)) = self.server.replace((attempt, server)) {
                    earlier.retire();
                }
                // Its time counts from here: another may have had to end first.
                self.wait();
            }
            News::Ready(origin) if latest => {
                self.pending = false;
                self.shown = Shown::Page;
                self.view.page.show(&origin);
                self.view.show_page();
            }
            News::Failed(why) if latest => {
                self.pending = false;
                let ended = self.server.take_if(|_| of_server).map(|(_, server)| server.ended());
                let how = ended.map(|how| format!(": it ended {how}")).unwrap_or_default();
                self.trouble(NO_GATEWAY, &format!("{why}{how}"));
            }
            News::Ended if of_server => {
                let how = self.server.take().map(|(_, server)| server.ended()).unwrap_or_default();
                self.trouble(NO_GATEWAY, &format!("The gateway has ended {how}."));
            }
            // Of an attempt that nobody waits for any more.
            News::Started(server) => server.retire(),
            News::Ready(_) | News::Failed(_) | News::Ended => {}
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Reload => {
                if self.shown == Shown::Trouble {
                    self.wait();
                }
                // The page is loaded anew once a gateway answers; if it is gone, another is started. One that is being
                // started does not answer yet, and a second one would get into its way.
                if !self.pending {
                    self.connect();
                }
            }
            Action::ChangePort => {
                self.shown = Shown::Trouble;
                self.view.panel.choose(self.port);
                self.view.show_panel();
            }
            Action::OpenInBrowser => self.open_in_browser(),
            Action::Quit => self.ask_to_quit(),
            Action::Edit(command) => self.view.page.edit(command),
            Action::ZoomIn => self.zoom(Memory::zoom_in),
            Action::ZoomOut => self.zoom(Memory::zoom_out),
            Action::ZoomReset => self.zoom(|memory| memory.zoom = 100),
            Action::FullScreen => self.view.toggle_full_screen(),
            Action::About => self.view.about(),
        }
    }

    fn zoom(&mut self, change: impl Fn(&mut Memory)) {
        self.change(|_, memory| change(memory));
        self.view.page.zoom(self.memory.zoom);
    }

    fn use_port(&mut self, port: u16) {
        let other = port != self.port;
        if other && let Some((_, server)) = self.server.take() {
            server.retire();
        }
        self.port = port;
        self.memory.port = Some(port);
        self.keep();
        self.wait();
        if other || !self.pending {
            self.connect();
        }
    }

    fn titled(&mut self, title: &str) {
        // A page that is not seen has nothing to say any more; it says all of it again when it is loaded.
        if self.shown != Shown::Page {
            return;
        }
        let notice = self.watch.title(title, Instant::now(), self.view.is_looked_at());
        let title = plain(title);
        self.view.title(if title.is_empty() { "Trunkline" } else { &title });
        if let Some(notice) = notice {
            self.view.want_attention();
            self.notices.iter().for_each(|notices| notices.show(&notice));
        }
    }

    /// New windows come here, too, wherever they lead.
    fn leave(&mut self, url: &str) {
        match leads(url, &self.view.page.origin()) {
            Leads::Home | Leads::Away if self.pace.allows(Instant::now()) => self.browse(url),
            Leads::Home | Leads::Away | Leads::Nowhere => {}
        }
    }

    fn open_in_browser(&self) {
        let origin = self.view.page.origin();
        // Before there was a gateway there is nothing to open.
        if !origin.is_empty() {
            self.browse(&format!("{origin}/"));
        }
    }

    fn browse(&self, url: &str) {
        if let Err(why) = links::open(url) {
            tell(&why);
        }
    }

    /// Looks for a gateway, or starts one.
    fn connect(&mut self) {
        self.pending = true;
        let (attempt, said) = (self.next_attempt(), self.said.clone());
        let tell = move |news| drop(said.send_event(Said::Gateway(attempt, news)));
        let latest = Arc::clone(&self.attempt);
        let wanted = move || latest.load(Ordering::Relaxed) == attempt;
        gateway::connect(&self.places, self.port, wanted, tell);
    }

    /// Nothing that was attempted before matters from here on.
    fn next_attempt(&self) -> u32 {
        self.attempt.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn wait(&mut self) {
        self.shown = Shown::Waiting(Instant::now());
        self.view.title("Trunkline");
        self.view.show_panel();
    }

    fn trouble(&mut self, what: &str, why: &str) {
        self.shown = Shown::Trouble;
        self.watch = Watch::default();
        self.view.title(&format!("{what} – Trunkline"));
        let last_words = self.log.iter().map(String::as_str).collect::<Vec<_>>().join("\n");
        self.view.panel.trouble(what, why, &last_words, self.port);
        self.view.show_panel();
    }

    fn tick(&mut self) -> ControlFlow {
        if self.quits {
            return ControlFlow::Exit;
        }
        if self.unsaved.is_some_and(|since| since.elapsed() >= SETTLES) {
            self.keep();
        }
        let save = self.unsaved.map(|since| since + SETTLES);
        let next = save.into_iter().chain(self.watch_the_wait()).min();
        next.map_or(ControlFlow::Wait, |at| {
            self.alarm.set(at);
            ControlFlow::WaitUntil(at)
        })
    }

    /// Shows how long a gateway is awaited; when to look again.
    fn watch_the_wait(&mut self) -> Option<Instant> {
        let Shown::Waiting(since) = self.shown else { return None };
        let waited = since.elapsed();
        if waited >= STARTUP
            && let Some((_, server)) = self.server.take()
        {
            server.kill();
            self.next_attempt();
            self.pending = false;
            let why = format!("It has not begun to listen within {} s.", STARTUP.as_secs());
            self.trouble(NO_GATEWAY, &why);
            return None;
        }
        self.view.panel.wait(waited, self.log.back().map_or("", String::as_str));
        Some(since + Duration::from_secs(waited.as_secs() + 1))
    }

    fn ask_to_quit(&mut self) {
        if self.watch.is_working() && self.server.is_some() {
            let said = self.said.clone();
            self.view.confirm_quit(move || drop(said.send_event(Said::Quit)));
        } else {
            self.quits = true;
        }
    }

    /// Changes what is remembered. It is kept when it has settled.
    fn change(&mut self, change: impl Fn(&View, &mut Memory)) {
        let before = self.memory.clone();
        change(&self.view, &mut self.memory);
        if self.memory != before {
            self.unsaved.get_or_insert_with(Instant::now);
        }
    }

    fn keep(&mut self) {
        self.unsaved = None;
        if let Err(error) = self.memory.keep(&self.places.memory()) {
            tell(&format!("the window is not remembered: {}: {error}", self.places.memory().display()));
        }
    }
}
