//! Reloads the configuration when a file changes. An invalid file is logged, and the last good configuration is kept. SIGHUP
//! reloads at once, even if no file changed, and finds CLIs that were installed since.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::mpsc;
use trunkline_engine::{Engine, Models};

use crate::config::{Config, ConfigError, ConfigFolder, Environment, FILES};
use crate::setup::secrets_of;
use crate::signals::ReloadRequests;

/// Editors write a file in several steps: changes within this time are one.
const SETTLE_TIME: Duration = Duration::from_millis(50);

/// Longest wait for changes to settle.
const MAX_SETTLE_TIME: Duration = Duration::from_secs(1);

/// Interval of polling the files: the watcher does not notice changes behind a symbolic link.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Watch on the configuration files.
pub(crate) struct ConfigWatch {
    config_folder: ConfigFolder,
    requests: ReloadRequests,
    changes: mpsc::Receiver<()>,
    /// The files when they were last read.
    stamps: Vec<Option<FileStamp>>,
    _watcher: Option<RecommendedWatcher>,
}

/// Identity of a file's content: its real path, modification time and size.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FileStamp {
    file: PathBuf,
    written: Option<SystemTime>,
    bytes: u64,
}

/// Reason to check the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReloadReason {
    /// A file may have changed.
    Changed,
    /// SIGHUP: reload even if nothing changed.
    Requested,
}

impl ConfigWatch {
    /// Starts watching. Without a folder there is nothing to watch, but SIGHUP still finds newly installed CLIs.
    pub(crate) fn start(config_folder: &ConfigFolder, requests: ReloadRequests) -> Self {
        let (sender, changes) = mpsc::channel(16);
        let watcher = config_folder.path().and_then(|folder| {
            let watcher = watcher(folder, sender).inspect_err(|error| {
                tracing::warn!(folder = %folder.display(), %error, "cannot watch the configuration; polling every 2 s");
            });
            watcher.ok()
        });
        Self {
            config_folder: config_folder.clone(),
            requests,
            changes,
            stamps: stamps_of(config_folder),
            _watcher: watcher,
        }
    }

    /// Gives the engine the new models after each change. `apply` applies everything else of a configuration first, or
    /// refuses the configuration. Never returns.
    pub(crate) async fn follow(
        mut self,
        environment: &Environment,
        engine: &Engine,
        apply: impl Fn(&Config) -> Result<(), ConfigError>,
    ) {
        loop {
            let mut reason = tokio::select! {
                Some(()) = self.changes.recv() => ReloadReason::Changed,
                () = tokio::time::sleep(POLL_INTERVAL) => ReloadReason::Changed,
                () = self.requests.next() => ReloadReason::Requested,
            };
            let settled = async {
                while tokio::time::timeout(SETTLE_TIME, self.changes.recv()).await.is_ok_and(|change| change.is_some())
                {
                }
            };
            tokio::select! {
                _ = tokio::time::timeout(MAX_SETTLE_TIME, settled) => {}
                () = self.requests.next() => reason = ReloadReason::Requested,
            }
            let now = stamps_of(&self.config_folder);
            if now == self.stamps && reason == ReloadReason::Changed {
                continue;
            }
            if let Some(gone) = emptied(&self.stamps, &now) {
                // Usually a program is about to write it.
                tracing::error!("configuration not reloaded, the last good one stays: {gone} is empty or gone");
                self.stamps = now;
                continue;
            }
            self.stamps = now;
            let loaded = Config::load(&self.config_folder, environment);
            match loaded.and_then(|config| apply(&config).map(|()| config)) {
                Ok(config) => {
                    for warning in &config.warnings {
                        tracing::warn!("{warning}");
                    }
                    engine.secrets().learn(secrets_of(environment, &config));
                    let changes = summary(&engine.models(), &config.models);
                    tracing::info!(models = config.models.names().len(), "configuration reloaded: {changes}");
                    engine.replace_models(config.models);
                }
                Err(error) => tracing::error!("configuration not reloaded, the last good one stays: {error}"),
            }
        }
    }
}

/// Names of what is different, for the log. Never contains values, which may be secret.
fn summary(before: &Models, after: &Models) -> String {
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
    if before.aliases() != after.aliases() {
        parts.push("aliases changed".to_owned());
    }
    if parts.is_empty() { "nothing changed".to_owned() } else { parts.join("; ") }
}

/// Every model and provider by name, with its full configuration for comparison.
fn described(models: &Models) -> BTreeMap<String, String> {
    let named = models.iter().chain(models.built_in()).map(|model| (model.name.clone(), format!("{model:?}")));
    let routed = models.router().providers.iter().map(|routed| (routed.name.clone(), format!("{routed:?}")));
    // A model takes precedence over a provider of the same name.
    routed.chain(named).collect()
}

fn stamps_of(config_folder: &ConfigFolder) -> Vec<Option<FileStamp>> {
    let Some(folder) = config_folder.path() else { return vec![None; FILES.len()] };
    let stamp = |name: &&str| {
        let file = fs::canonicalize(folder.join(name)).ok()?;
        let about = fs::metadata(&file).ok()?;
        Some(FileStamp { file, written: about.modified().ok(), bytes: about.len() })
    };
    FILES.iter().map(stamp).collect()
}

/// Name of a file that had content and is now empty or gone.
fn emptied(before: &[Option<FileStamp>], now: &[Option<FileStamp>]) -> Option<&'static str> {
    let has_content = |stamp: &Option<FileStamp>| stamp.as_ref().is_some_and(|stamp| stamp.bytes > 0);
    let lost = before.iter().zip(now).position(|(before, now)| has_content(before) && !has_content(now))?;
    Some(FILES[lost])
}

/// Watches the folder rather than the files: an editor replaces a file, and the watch would stay with the old one.
fn watcher(folder: &Path, sender: mpsc::Sender<()>) -> notify::Result<RecommendedWatcher> {
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        let Ok(event) = event else { return };
        let ours = |path: &PathBuf| path.file_name().is_some_and(|name| FILES.iter().any(|file| name == *file));
        let changed = !matches!(event.kind, EventKind::Access(_));
        if changed && event.paths.iter().any(ours) {
            // A full channel means that a reload is due already.
            let _ = sender.try_send(());
        }
    })?;
    watcher.watch(folder, RecursiveMode::NonRecursive)?;
    Ok(watcher)
}
