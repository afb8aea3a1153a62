//! State that is saved from one start to the next: position, size and zoom of the window, and the port.

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

pub(crate) const DEFAULT_SIZE: (i32, i32) = (900, 700);

/// Smallest size at which the page is usable.
pub(crate) const MIN_SIZE: (i32, i32) = (360, 300);

/// Part of a window that must be on a screen so that the user can find and move it, in logical pixels.
const MIN_VISIBLE_PIXELS: i32 = 80;

const ZOOM_STEPS: [u16; 13] = [30, 50, 67, 80, 90, 100, 110, 120, 133, 150, 170, 200, 300];

/// Rectangle of a screen in logical pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ScreenArea {
    pub(crate) x: i32,
    pub(crate) y: i32,
    pub(crate) width: i32,
    pub(crate) height: i32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SavedWindow {
    pub(crate) size: (i32, i32),
    /// None on the first start, and on desktops that do not report positions.
    pub(crate) position: Option<(i32, i32)>,
    pub(crate) maximized: bool,
    /// In percent.
    pub(crate) zoom: u16,
    /// Port chosen in the window.
    pub(crate) port: Option<u16>,
}

impl Default for SavedWindow {
    fn default() -> Self {
        Self { size: DEFAULT_SIZE, position: None, maximized: false, zoom: 100, port: None }
    }
}

impl SavedWindow {
    /// Reads the saved state. A file that is missing or broken gives the defaults: it is not worth an error.
    pub(crate) fn load(path: &Path) -> Self {
        let read = fs::read(path).ok().and_then(|bytes| serde_json::from_slice::<Self>(&bytes).ok());
        let mut saved = read.unwrap_or_default();
        saved.zoom = saved.zoom.clamp(ZOOM_STEPS[0], ZOOM_STEPS[ZOOM_STEPS.len() - 1]);
        saved.port = saved.port.filter(|port| *port > 0);
        saved
    }

    /// Writes the state atomically, by renaming a temporary file.
    pub(crate) fn save(&self, path: &Path) -> io::Result<()> {
        let new = path.with_extension("new");
        fs::write(&new, serde_json::to_vec_pretty(self)?)?;
        fs::rename(new, path)
    }

    /// Returns the position and size to open the window with. Screens may be gone or smaller than when the state was
    /// saved.
    pub(crate) fn fit(&self, screens: &[ScreenArea]) -> (Option<(i32, i32)>, (i32, i32)) {
        let (width, height) = (self.size.0.max(MIN_SIZE.0), self.size.1.max(MIN_SIZE.1));
        let visible_on = |screen: &&ScreenArea| {
            let overlap = |(start, length): (i32, i32), (screen_start, screen_length): (i32, i32)| {
                let end = start.saturating_add(length).min(screen_start.saturating_add(screen_length));
                end.saturating_sub(start.max(screen_start))
            };
            self.position.is_some_and(|(x, y)| {
                overlap((x, width), (screen.x, screen.width)) >= MIN_VISIBLE_PIXELS
                    // The title bar must be visible: the window is moved by it.
                    && (screen.y..screen.y.saturating_add(screen.height - MIN_VISIBLE_PIXELS)).contains(&y)
            })
        };
        let screen = screens.iter().find(visible_on);
        let room = screen.or(screens.first()).map_or((width, height), |screen| (screen.width, screen.height));
        let size = (width.min(room.0.max(MIN_SIZE.0)), height.min(room.1.max(MIN_SIZE.1)));
        (screen.and(self.position), size)
    }

    pub(crate) fn zoom_in(&mut self) {
        self.zoom = ZOOM_STEPS.into_iter().find(|zoom| *zoom > self.zoom).unwrap_or(self.zoom);
    }

    pub(crate) fn zoom_out(&mut self) {
        self.zoom = ZOOM_STEPS.into_iter().rev().find(|zoom| *zoom < self.zoom).unwrap_or(self.zoom);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCREEN: ScreenArea = ScreenArea { x: 0, y: 0, width: 1920, height: 1080 };
    const RIGHT: ScreenArea = ScreenArea { x: 1920, y: 0, width: 1280, height: 1024 };

    #[test]
    fn window_opens_within_reach_when_screens_have_changed() {
        let place =
            |position, size, screens: &[ScreenArea]| SavedWindow { position, size, ..Default::default() }.fit(screens);
        for (position, size, screens, expected) in [
            (None, DEFAULT_SIZE, &[SCREEN][..], (None, DEFAULT_SIZE)),
            (Some((100, 50)), (800, 600), &[SCREEN], (Some((100, 50)), (800, 600))),
            (Some((-700, 50)), (800, 600), &[SCREEN], (Some((-700, 50)), (800, 600))),
            (Some((-750, 50)), (800, 600), &[SCREEN], (None, (800, 600))),
            (Some((2000, 50)), (800, 600), &[SCREEN, RIGHT], (Some((2000, 50)), (800, 600))),
            (Some((2000, 50)), (800, 600), &[SCREEN], (None, (800, 600))),
            (Some((100, -300)), (800, 600), &[SCREEN], (None, (800, 600))),
            (Some((100, 1070)), (800, 600), &[SCREEN], (None, (800, 600))),
            (Some((2000, 0)), (4000, 3000), &[SCREEN, RIGHT], (Some((2000, 0)), (1280, 1024))),
            (Some((i32::MIN, i32::MAX)), (i32::MAX, i32::MIN), &[SCREEN], (None, (1920, 300))),
            (Some((5, 5)), (1, 1), &[], (None, MIN_SIZE)),
        ] {
            assert_eq!(place(position, size, screens), expected, "{position:?} {size:?}");
        }
    }

    #[test]
    fn loads_what_was_saved_and_defaults_when_file_is_broken() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("window.json");
        assert_eq!(SavedWindow::load(&path), SavedWindow::default());
        let saved = SavedWindow { size: (1, 2), position: Some((3, -4)), maximized: true, zoom: 120, port: Some(9000) };
        saved.save(&path).unwrap();
        assert_eq!(SavedWindow::load(&path), saved);
        fs::write(&path, r#"{"zoom":9999,"port":0}"#).unwrap();
        assert_eq!(SavedWindow::load(&path), SavedWindow { zoom: 300, ..SavedWindow::default() });
        fs::write(&path, r#"{"zoom":"#).unwrap();
        assert_eq!(SavedWindow::load(&path), SavedWindow::default());
    }

    #[test]
    fn zoom_moves_in_steps_and_stops_at_the_limits() {
        let mut saved = SavedWindow { zoom: 115, ..SavedWindow::default() };
        saved.zoom_in();
        assert_eq!(saved.zoom, 120);
        (0..20).for_each(|_| saved.zoom_in());
        assert_eq!(saved.zoom, 300);
        (0..20).for_each(|_| saved.zoom_out());
        assert_eq!(saved.zoom, 30);
    }
}
