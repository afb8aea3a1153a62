//! What is remembered from one window to the next: where it was, how large, how far zoomed, and on which port.

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

pub(crate) const SIZE: (i32, i32) = (900, 700);

/// Below that the page is of no use.
pub(crate) const SMALLEST: (i32, i32) = (360, 300);

/// How much of a window must be on a screen for people to find and move it.
const GRIP: i32 = 80;

const ZOOMS: [u16; 13] = [30, 50, 67, 80, 90, 100, 110, 120, 133, 150, 170, 200, 300];

/// In logical pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Area {
    pub(crate) x: i32,
    pub(crate) y: i32,
    pub(crate) width: i32,
    pub(crate) height: i32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Memory {
    pub(crate) size: (i32, i32),
    /// None where the desktop does not say, and before the first time.
    pub(crate) position: Option<(i32, i32)>,
    pub(crate) maximized: bool,
    /// In percent.
    pub(crate) zoom: u16,
    /// One that was chosen in the window.
    pub(crate) port: Option<u16>,
}

impl Default for Memory {
    fn default() -> Self {
        Self { size: SIZE, position: None, maximized: false, zoom: 100, port: None }
    }
}

impl Memory {
    /// What cannot be read is forgotten: it is not worth a question.
    pub(crate) fn recall(path: &Path) -> Self {
        let read = fs::read(path).ok().and_then(|bytes| serde_json::from_slice::<Self>(&bytes).ok());
        let mut memory = read.unwrap_or_default();
        memory.zoom = memory.zoom.clamp(ZOOMS[0], ZOOMS[ZOOMS.len() - 1]);
        memory.port = memory.port.filter(|port| *port > 0);
        memory
    }

    /// Whole or not at all.
    pub(crate) fn keep(&self, path: &Path) -> io::Result<()> {
        let new = path.with_extension("new");
        fs::write(&new, serde_json::to_vec_pretty(self)?)?;
        fs::rename(new, path)
    }

    /// Where to put the window now: screens may have gone since, or become smaller.
    pub(crate) fn fit(&self, screens: &[Area]) -> (Option<(i32, i32)>, (i32, i32)) {
        let (width, height) = (self.size.0.max(SMALLEST.0), self.size.1.max(SMALLEST.1));
        let shown = |screen: &&Area| {
            let across = |(at, long): (i32, i32), (from, wide): (i32, i32)| {
                at.saturating_add(long).min(from.saturating_add(wide)).saturating_sub(at.max(from))
            };
            self.position.is_some_and(|(x, y)| {
                across((x, width), (screen.x, screen.width)) >= GRIP
                    // Its upper edge is what it is moved by.
                    && (screen.y..screen.y.saturating_add(screen.height - GRIP)).contains(&y)
            })
        };
        let home = screens.iter().find(shown);
        let room = home.or(screens.first()).map_or((width, height), |screen| (screen.width, screen.height));
        let size = (width.min(room.0.max(SMALLEST.0)), height.min(room.1.max(SMALLEST.1)));
        (home.and(self.position), size)
    }

    pub(crate) fn zoom_in(&mut self) {
        self.zoom = ZOOMS.into_iter().find(|zoom| *zoom > self.zoom).unwrap_or(self.zoom);
    }

    pub(crate) fn zoom_out(&mut self) {
        self.zoom = ZOOMS.into_iter().rev().find(|zoom| *zoom < self.zoom).unwrap_or(self.zoom);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCREEN: Area = Area { x: 0, y: 0, width: 1920, height: 1080 };
    const RIGHT: Area = Area { x: 1920, y: 0, width: 1280, height: 1024 };

    #[test]
    fn a_window_is_always_to_be_found() {
        let place = |position, size, screens: &[Area]| Memory { position, size, ..Memory::default() }.fit(screens);
        for (position, size, screens, expected) in [
            (None, SIZE, &[SCREEN][..], (None, SIZE)),
            (Some((100, 50)), (800, 600), &[SCREEN], (Some((100, 50)), (800, 600))),
            (Some((-700, 50)), (800, 600), &[SCREEN], (Some((-700, 50)), (800, 600))),
            (Some((-750, 50)), (800, 600), &[SCREEN], (None, (800, 600))),
            (Some((2000, 50)), (800, 600), &[SCREEN, RIGHT], (Some((2000, 50)), (800, 600))),
            (Some((2000, 50)), (800, 600), &[SCREEN], (None, (800, 600))),
            (Some((100, -300)), (800, 600), &[SCREEN], (None, (800, 600))),
            (Some((100, 1070)), (800, 600), &[SCREEN], (None, (800, 600))),
            (Some((2000, 0)), (4000, 3000), &[SCREEN, RIGHT], (Some((2000, 0)), (1280, 1024))),
            (Some((i32::MIN, i32::MAX)), (i32::MAX, i32::MIN), &[SCREEN], (None, (1920, 300))),
            (Some((5, 5)), (1, 1), &[], (None, SMALLEST)),
        ] {
            assert_eq!(place(position, size, screens), expected, "{position:?} {size:?}");
        }
    }

    #[test]
    fn what_is_kept_is_recalled_and_what_is_broken_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("window.json");
        assert_eq!(Memory::recall(&path), Memory::default());
        let memory = Memory { size: (1, 2), position: Some((3, -4)), maximized: true, zoom: 120, port: Some(9000) };
        memory.keep(&path).unwrap();
        assert_eq!(Memory::recall(&path), memory);
        fs::write(&path, r#"{"zoom":9999,"port":0}"#).unwrap();
        assert_eq!(Memory::recall(&path), Memory { zoom: 300, ..Memory::default() });
        fs::write(&path, r#"{"zoom":"#).unwrap();
        assert_eq!(Memory::recall(&path), Memory::default());
    }

    #[test]
    fn zoom_goes_in_steps_and_ends_somewhere() {
        let mut memory = Memory { zoom: 115, ..Memory::default() };
        memory.zoom_in();
        assert_eq!(memory.zoom, 120);
        (0..20).for_each(|_| memory.zoom_in());
        assert_eq!(memory.zoom, 300);
        (0..20).for_each(|_| memory.zoom_out());
        assert_eq!(memory.zoom, 30);
    }
}
