//! Reloading: a changed file becomes the new configuration, a broken one is said to be broken and changes nothing. Files
//! are watched; SIGHUP asks for the same at once, whether a file changed or not, and finds CLIs that were installed since.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::mpsc;
use trunkline_engine::{Engine, Models};

use crate::config::{Config, FILES, Place, Surroundings};
use crate::setup::{ReloadRequests, secrets_of};

/// Editors write a file in several steps: changes this close together are one.
const SETTLE: Duration = Duration::from_millis(50);

/// How long one may go on changing before it is read as it is.
const UNSETTLED: Duration = Duration::from_secs(1);

/// How often the files are looked at without a word from the watcher, which does not see what is behind a link.
const LOOK: Duration = Duration::from_secs(2);

/// The configuration, watched from here on.
pub(crate) struct Changes {
    place: Place,
    asked: ReloadRequests,
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

/// Why the configuration is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reason {
    Changed,
    /// By SIGHUP: also if nothing changed.
    Asked,
}

impl Changes {
    /// Without a folder there is nothing to watch, but SIGHUP still finds CLIs that were installed since.
    pub(crate) fn of(place: &Place, asked: ReloadRequests) -> Self {
        let (sender, heard) = mpsc::channel(16);
        let watcher = place.folder().and_then(|folder| {
            let watcher = watcher(folder, sender).inspect_err(|error| {
                tracing::warn!(folder = %folder.display(), %error, "cannot watch the configuration; looked at every 2 s");
            });
            watcher.ok()
        });
        Self { place: place.clone(), asked, heard, seen: look(place), _watcher: watcher }
    }

    /// Gives the engine the models of each change. Never ends by itself.
    pub(crate) async fn follow(mut self, around: &Surroundings, engine: &Engine) {
        loop {
            let mut reason = tokio::select! {
                Some(()) = self.heard.recv() => Reason::Changed,
                () = tokio::time::sleep(LOOK) => Reason::Changed,
                () = self.asked.next() => Reason::Asked,
            };
            let settled = async {
                while tokio::time::timeout(SETTLE, self.heard.recv()).await.is_ok_and(|change| change.is_some()) {}
            };
            tokio::select! {
                _ = tokio::time::timeout(UNSETTLED, settled) => {}
                () = self.asked.next() => reason = Reason::Asked,
            }
            let now = look(&self.place);
            if now == self.seen && reason == Reason::Changed {
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
                    let changes = changes(&engine.models(), &config.models);
                    tracing::info!(models = config.models.names().len(), "configuration reloaded: {changes}");
                    engine.replace_models(config.models);
                }
                Err(error) => tracing::error!("configuration not reloaded, the last good one stays: {error}"),
            }
        }
    }
}

/// What is different, by name: for the log, so without any value.
fn changes(before: &Models, after: &Models) -> String {
    let (old, new) = (described(before), described(after));
    let missing_in = |some: &BTreeMap<String, String>, others: &BTreeMap<String, String>| -> Vec<String> {
        some.keys().filter(|name| !others.contains_key(*name)).cloned().collect()
    };
    let (added, removed) = (missing_in(&new, &old), missing_in(&old, &new));
    let changed = new.iter().filter(|(name, model)| old.get(*name).is_some_and(|known| known != *model));
    let changed: Vec<String> = changed.map(|(name, _)| name.clone()).collect();
    let mut parts: Vec<String> = [("added", added), ("removed", removed), ("changed", changed)]
        .into_iter()
        .filter(|(_, names)| !names.is_empty())
        .map(|(what, names)| format!("{what} {}", names.join(", ")))
        .collect();
    if before.policy() != after.policy() {
        parts.push("routing changed".to_owned());
    }
    if parts.is_empty() { "nothing changed".to_owned() } else { parts.join("; ") }
}

/// Every name with all that stands behind it. Names of the router that are made of others are left out.
fn described(models: &Models) -> BTreeMap<String, String> {
    let named = models.iter().chain(models.built_in()).map(|model| (model.name.clone(), format!("{model:?}")));
    let routed = models.router().providers.iter().map(|routed| (routed.name.clone(), format!("{routed:?}")));
    // A model of the file wins over a provider of the same name.
    routed.chain(named).collect()
}

fn look(place: &Place) -> Vec<Option<Seen>> {
    let Some(folder) = place.folder() else { return vec![None; FILES.len()] };
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
