//! A private git directory for work on an agent's files.
//!
//! The directory that the repository keeps for a worktree can be written by the agent: its HEAD, its index, its own
//! configuration, and the file that says where the repository is. A room has none of these from there. Its index is a copy
//! that was made before the agent started, so that no flag or forged entry hides a change; it names the repository itself.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use trunkline_core::failure::{Category, Failure};

use super::Worktrees;
use super::folder::Worktree;
use crate::runs::gateway_process::GatewayProcess;
use crate::worktree::git::{Call, Tree};

/// Removed when it is dropped.
pub(super) struct Room {
    pub(super) path: PathBuf,
}

impl Room {
    fn new(rooms: &Path) -> io::Result<Self> {
        let owner = GatewayProcess::this_process().name();
        fs::create_dir_all(rooms)?;
        let room = Self { path: rooms.canonicalize()?.join(format!("{owner}.{}", uuid::Uuid::now_v7())) };
        // With a folder `objects` of its own, git-lfs would take it for a repository and keep large files here.
        fs::create_dir_all(room.new_objects())?;
        Ok(room)
    }

    /// A store for objects that go with the room.
    pub(super) fn new_objects(&self) -> PathBuf {
        self.path.join("new-objects")
    }

    pub(super) fn index(&self) -> PathBuf {
        self.path.join("index")
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

impl Worktrees {
    /// A room for a worktree, with the index from before the agent started if there is one.
    pub(super) async fn room(&self, worktree: &Worktree) -> Result<Room, Failure> {
        let refuse = |error: io::Error| Failure::new(Category::Server, format!("no room for git: {error}"));
        let room = Room::new(&self.rooms).map_err(refuse)?;
        let common = worktree.common.as_os_str().as_encoded_bytes();
        fs::write(room.path.join("HEAD"), format!("{}\n", worktree.base)).map_err(refuse)?;
        fs::write(room.path.join("commondir"), [common, b"\n"].concat()).map_err(refuse)?;
        worktree.link_keys_into(&room.path);
        if self.ledger.copy_index_to(worktree, &room.index()).is_err() {
            self.in_room(&room, worktree).run(&["read-tree", &worktree.base]).await?;
        }
        Ok(room)
    }

    /// A call on the worktree's files with the room as git directory. It may write the room alone.
    pub(super) fn in_room(&self, room: &Room, worktree: &Worktree) -> Call<'_> {
        let tree = Tree { files: &worktree.path, git_dir: &room.path };
        self.git.on(tree).writing([room.path.clone()])
    }

    /// Removes rooms of gateways that died.
    pub(super) fn sweep_rooms(&self) {
        let dead = |name: &str| {
            let owner = name.split_once('.').and_then(|(owner, _)| GatewayProcess::from_name(owner));
            owner.is_some_and(|owner| !owner.lives())
        };
        let folders = fs::read_dir(&self.rooms).into_iter().flatten().flatten();
        for folder in folders.filter(|folder| folder.file_name().to_str().is_some_and(dead)) {
            let _ = fs::remove_dir_all(folder.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_removed_when_it_is_dropped() {
        let rooms = tempfile::tempdir().unwrap();
        let room = Room::new(rooms.path()).unwrap();
        fs::write(room.new_objects().join("one"), "").unwrap();
        drop(room);
        assert_eq!(fs::read_dir(rooms.path()).unwrap().count(), 0);
    }
}
