//! Reloading: a changed file becomes the new configuration, a broken one is said to be broken and changes nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::mpsc;
use trunkline_engine::Engine;

use crate::config::{Config, FILES, Place, Surroundings};
use crate::setup::secrets_of;

/// Editors write a file in several steps: changes this close together are one.
const SETTLE: Duration = Duration::from_millis(50);

/// How long one may go on changing before it is read as it is.
const UNSETTLED: Duration = Duration::from_secs(1);

/// How often the files are looked at without a word from the watcher, which does not see what is behind a link.
const LOOK: Duration = Duration::from_secs(2);

/// The configuration's folder, watched from here on.
pub(crate) struct Changes {
    place: Place,
    heard: mpsc::Receiver<()>,
    /// The files as they were read last.
    seen: Vec<Option<Seen>>,
    _watcher: Option<RecommendedWatcher>,
}

/// A file as it was: which one, when it was written, how much.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    file: PathBuf,
    written: Option<SystemTime>,
    bytes: u64,
}

impl Changes {
    /// `None` when there is nothing to watch.
    pub(crate) fn of(place: &Place) -> Option<Self> {
        let folder = place.folder()?;
        let (sender, heard) = mpsc::channel(16);
        let watcher = watcher(folder, sender).inspect_err(|error| {
            tracing::warn!(folder = %folder.display(), %error, "cannot watch the configuration; looked at every 2 s");
        });
        Some(Self { place: place.clone(), heard, seen: look(folder), _watcher: watcher.ok() })
    }

    /// Gives the engine the models of each change. Never ends by itself.
    pub(crate) async fn follow(mut self, around: &Surroundings, engine: &Engine) {
        let Some(folder) = self.place.folder().cloned() else { return };
        loop {
            tokio::select! {
                Some(()) = self.heard.recv() => {}
                () = tokio::time::sleep(LOOK) => {}
            }
            let settled = async {
                while tokio::time::timeout(SETTLE, self.heard.recv()).await.is_ok_and(|change| change.is_some()) {}
            };
            let _or_not = tokio::time::timeout(UNSETTLED, settled).await;
            let now = look(&folder);
            if now == self.seen {
                continue;
            }
            if let Some(gone) = emptied(&self.seen, &now) {
                // Mostly somebody is about to write it.
                tracing::error!("configuration not reloaded, the last good one stays: {gone} is empty or gone");
                self.seen = now;
                continue;
            }
            self.seen = now;
            match Config::load(&self.place, around) {
                Ok(config) => {
                    for warning in &config.warnings {
                        tracing::warn!("{warning}");
                    }
                    engine.secrets().learn(secrets_of(around, &config));
                    tracing::info!(models = config.models.names().len(), "configuration reloaded");
                    engine.replace_models(config.models);
                }
                Err(error) => tracing::error!("configuration not reloaded, the last good one stays: {error}"),
            }
        }
    }
}

fn look(folder: &Path) -> Vec<Option<Seen>> {
    let seen = |name: &&str| {
        let file = fs::canonicalize(folder.join(name)).ok()?;
        let about = fs::metadata(&file).ok()?;
        Some(Seen { file, written: about.modified().ok(), bytes: about.len() })
    };
    FILES.iter().map(seen).collect()
}

/// A file that had something in it and has nothing now.
fn emptied(before: &[Option<Seen>], now: &[Option<Seen>]) -> Option<&'static str> {
    let something = |seen: &Option<Seen>| seen.as_ref().is_some_and(|seen| seen.bytes > 0);
    let lost = before.iter().zip(now).position(|(before, now)| something(before) && !something(now))?;
    Some(FILES[lost])
}

/// The folder rather than the files: an editor replaces a file, and the watch would stay with the old one.
fn watcher(folder: &Path, sender: mpsc::Sender<()>) -> notify::Result<RecommendedWatcher> {
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        let Ok(event) = event else { return };
        let ours = |path: &PathBuf| path.file_name().is_some_and(|name| FILES.iter().any(|file| name == *file));
        let changed = !matches!(event.kind, EventKind::Access(_));
        if changed && event.paths.iter().any(ours) {
            // A full channel already means that there is something to reload.
            let _already_known = sender.try_send(());
        }
    })?;
    watcher.watch(folder, RecursiveMode::NonRecursive)?;
    Ok(watcher)
}
