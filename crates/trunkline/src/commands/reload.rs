//! Reloading: a changed file becomes the new models, a broken one is said to be broken and changes nothing.

use std::path::Path;
use std::time::Duration;

use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::mpsc;
use trunkline_engine::Engine;

use crate::config::{Config, FILES, Place, Surroundings};

/// Editors write a file in several steps: changes this close together are one.
const SETTLE: Duration = Duration::from_millis(50);

/// The configuration's folder, watched from here on.
pub(crate) struct Changes {
    place: Place,
    heard: mpsc::Receiver<()>,
    _watcher: RecommendedWatcher,
}

impl Changes {
    /// `None` when there is nothing to watch, or no way to.
    pub(crate) fn of(place: &Place) -> Option<Self> {
        let folder = place.folder()?;
        let (sender, heard) = mpsc::channel(16);
        match watcher(folder, sender) {
            Ok(watcher) => Some(Self { place: place.clone(), heard, _watcher: watcher }),
            Err(error) => {
                tracing::warn!(folder = %folder.display(), %error, "cannot watch the configuration; a change needs a restart");
                None
            }
        }
    }

    /// Gives the engine the models of each change. Ends with the watcher.
    pub(crate) async fn follow(mut self, around: &Surroundings, engine: &Engine) {
        while self.heard.recv().await.is_some() {
            while tokio::time::timeout(SETTLE, self.heard.recv()).await.is_ok_and(|change| change.is_some()) {}
            match Config::load(&self.place, around) {
                Ok(config) => {
                    for warning in &config.warnings {
                        tracing::warn!("{warning}");
                    }
                    tracing::info!(models = config.models.names().len(), "configuration reloaded");
                    engine.replace_models(config.models);
                }
                Err(error) => tracing::error!("configuration not reloaded, the last good one stays: {error}"),
            }
        }
    }
}

/// The folder rather than the files: an editor replaces a file, and the watch would stay with the old one.
fn watcher(folder: &Path, sender: mpsc::Sender<()>) -> notify::Result<RecommendedWatcher> {
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        let Ok(event) = event else { return };
        let ours =
            |path: &std::path::PathBuf| path.file_name().is_some_and(|name| FILES.iter().any(|file| name == *file));
        let changed = !matches!(event.kind, EventKind::Access(_));
        if changed && event.paths.iter().any(ours) {
            // A full channel already means that there is something to reload.
            let _already_known = sender.try_send(());
        }
    })?;
    watcher.watch(folder, RecursiveMode::NonRecursive)?;
    Ok(watcher)
}
