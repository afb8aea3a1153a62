//! Spare worktrees: made before anybody asks, so that a turn does not wait for the checkout.
//!
//! A spare is a worktree like any other, without a run. A turn that finds one looks whether it is as it was left, has it
//! brought to its own commit, and gives it its name: all that costs less than writing the files. What is wrong with a spare
//! costs the turn nothing but that: it makes a worktree of its own.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio_util::sync::CancellationToken;
use trunkline_core::failure::{Category, Failure};

use super::Worktrees;
use super::folder::Worktree;
use super::ledger::{Entry, Standing};
use super::look::look;
use super::repository_state::{Ground, Rules};
use super::saving::{After, Finished};
use super::shelf::Spare;

/// What must be free on the disk of worktrees for one to be made that nobody asked for; half of a small one.
const ROOM: u64 = 2 << 30;

/// The same in files, where a disk has so many and no more.
const ROOM_FOR_FILES: u64 = 200_000;

impl Worktrees {
    /// From now on worktrees are made before they are asked for, this many at most.
    pub(crate) fn keep_spares(&self, most: usize) {
        let _it_was_said_before = self.spares.most.set(most);
    }

    /// What models wanted from the start is wanted no more: others take their place.
    pub(crate) fn unfix_spares(&self) {
        self.spares.shelf().unfix();
    }

    /// No more spares; those there are go.
    pub(crate) fn retire_spares(&self) {
        self.spares.closing.cancel();
    }

    /// A worktree of where the repository stands, for whoever comes.
    pub(super) async fn prepare(&self, repo: &Path) -> Result<Spare, Failure> {
        let base = self.check_base()?;
        self.check_room()?;
        let (ground, rules) = self.ground_and_rules(repo).await?;
        let tree = Worktree::spare(&base, repo, &ground);
        self.ledger.write(&Entry::of(&tree, Standing::Unmade))?;
        match self.fill(&tree, rules).await {
            Ok(looks) => Ok(Spare { tree, rules, looks, standing: Standing::Spare }),
            Err(failure) => {
                self.discard(&tree, Standing::Unmade).await;
                Err(failure)
            }
        }
    }

    async fn fill(&self, tree: &Worktree, rules: Rules) -> Result<blake3::Hash, Failure> {
        self.register(tree).await?;
        let checkout = async {
            self.check_out(tree).await?;
            // Git distrusts what it knows of a file that is not older than its index by a second, and reads it anew each
            // time. Who comes to use the worktree is spared that.
            tokio::time::sleep(until_the_next_second()).await;
            let _only_slower = self.in_tree(tree).run(&["update-index", "-q", "--refresh"]).await;
            self.ledger.keep_index(tree, &tree.registration.join("index"));
            self.check_room()?;
            Ok(())
        };
        let no_more = || Err(Failure::new(Category::Cancelled, "the gateway is about to end"));
        self.spares.closing.run_until_cancelled(checkout).await.unwrap_or_else(no_more)?;
        let (_, now) = self.ground_and_rules(&tree.repo).await?;
        if now != rules {
            return Err(Failure::new(Category::Configuration, "git's settings changed meanwhile"));
        }
        let looks = self.look_at(tree).await?;
        self.ledger.write(&Entry::of(tree, Standing::Spare))?;
        Ok(looks)
    }

    pub(super) async fn ground_and_rules(&self, repo: &Path) -> Result<(Ground, Rules), Failure> {
        let (ground, settings) = tokio::join!(self.ground(repo), self.settings(repo));
        let ground = ground?;
        let rules = self.rules(&ground, &settings?);
        Ok((ground, rules))
    }

    async fn look_at(&self, tree: &Worktree) -> Result<blake3::Hash, Failure> {
        let (path, registration) = (tree.path.clone(), tree.registration.clone());
        let looked = tokio::task::spawn_blocking(move || look(&path, &registration)).await;
        looked.map_err(io::Error::other).and_then(|looks| looks).map_err(|error| unfit(&error.to_string()))
    }

    /// Makes a spare that fits into this worktree; false if there is none.
    pub(super) async fn take(
        &self,
        worktree: &mut Worktree,
        ground: &Ground,
        rules: &Rules,
        cancelled: &CancellationToken,
    ) -> bool {
        while !cancelled.is_cancelled() {
            let slot = self.spares.shelf().pop(&ground.own, rules, &worktree.base);
            let Some(mut slot) = slot else { return false };
            let taken = cancelled.run_until_cancelled(self.hand_over(&mut slot.spare, worktree)).await;
            match taken.unwrap_or_else(|| Err(unfit("its turn was cancelled"))) {
                Ok(()) => return true,
                Err(failure) => {
                    tracing::info!(path = %slot.spare.tree.path.display(), %failure, "a spare worktree is not used");
                    slot.give_back();
                }
            }
        }
        false
    }

    async fn hand_over(&self, spare: &mut Spare, worktree: &mut Worktree) -> Result<(), Failure> {
        self.bring_to(spare, &worktree.base).await?;
        let registration = std::mem::replace(&mut worktree.registration, spare.tree.registration.clone());
        // Whenever we are killed, one of the two entries finds it, and neither takes it for work.
        let moved = self.ledger.write(&Entry::of(worktree, Standing::Unmade)).and_then(|()| {
            fs::rename(&spare.tree.path, &worktree.path).map_err(|error| unfit(&error.to_string()))?;
            worktree.sign_registration().inspect_err(|_| {
                let _where_it_was = fs::rename(&worktree.path, &spare.tree.path);
            })
        });
        match moved {
            Ok(()) => {
                self.ledger.move_index(&spare.tree.path, &worktree.path);
                self.ledger.forget(&spare.tree.run);
            }
            Err(_) => worktree.registration = registration,
        }
        moved
    }

    /// Brings a spare to a commit, if it is as it was left.
    pub(super) async fn bring_to(&self, spare: &mut Spare, commit: &str) -> Result<(), Failure> {
        let (there, repo) = (spare.tree.base == commit, &spare.tree.repo);
        let differ =
            async { if there { Ok(false) } else { self.attributes_differ(repo, &spare.tree.base, commit).await } };
        let (looks, differ) = tokio::try_join!(self.look_at(&spare.tree), differ)?;
        if looks != spare.looks {
            return Err(unfit("somebody has changed something in it"));
        }
        if differ {
            return Err(unfit("its files were written by other attributes"));
        }
        if there {
            return Ok(());
        }
        spare.standing = Standing::Unmade;
        self.ledger.write(&Entry::of(&spare.tree, Standing::Unmade))?;
        // Unlike `reset`, this asks the disk only for the files that are not the same in both.
        self.in_tree(&spare.tree).run(&["read-tree", "-m", "-u", &spare.tree.base, commit]).await?;
        self.in_tree(&spare.tree).run(&["update-ref", "--no-deref", "HEAD", commit]).await?;
        self.ledger.keep_index(&spare.tree, &spare.tree.registration.join("index"));
        commit.clone_into(&mut spare.tree.base);
        Ok(())
    }

    /// Follows the repository, where that has gone on.
    pub(super) async fn catch_up(&self, mut spare: Spare) -> Result<Spare, (Spare, Failure)> {
        let caught_up = async {
            let (ground, rules) = self.ground_and_rules(&spare.tree.repo).await?;
            if rules != spare.rules {
                return Err(unfit("git's settings have changed"));
            }
            self.bring_to(&mut spare, &ground.head).await?;
            spare.looks = self.look_at(&spare.tree).await?;
            self.ledger.write(&Entry::of(&spare.tree, Standing::Spare))?;
            spare.standing = Standing::Spare;
            Ok(())
        };
        match caught_up.await {
            Ok(()) => Ok(spare),
            Err(failure) => Err((spare, failure)),
        }
    }

    /// Takes a spare down. If somebody has changed something in it, that is kept like any work.
    pub(super) async fn dispose(&self, spare: Spare) {
        let Spare { tree, standing, .. } = spare;
        if standing == Standing::Unmade {
            return self.discard(&tree, standing).await;
        }
        let stopping = self.spares.closing.cancelled();
        let Finished { receipt, gone, .. } = self.finish(&tree, After::default(), stopping).await;
        if let Some(branch) = receipt.branch {
            tracing::warn!(branch, "a spare worktree was changed; its changes are kept on a branch");
        }
        self.delete(gone).await;
    }

    fn check_room(&self) -> Result<(), Failure> {
        let Ok(disk) = rustix::fs::statvfs(&self.base) else { return Ok(()) };
        let room = ROOM.min(disk.f_blocks.saturating_mul(disk.f_frsize) / 2);
        let room_for_files = ROOM_FOR_FILES.min(disk.f_files / 2);
        if disk.f_bavail.saturating_mul(disk.f_frsize) >= room && disk.f_favail >= room_for_files {
            return Ok(());
        }
        Err(Failure::new(Category::Configuration, format!("little room on the disk of {}", self.base.display())))
    }
}

impl Worktree {
    fn spare(base: &Path, repo: &Path, ground: &Ground) -> Self {
        let run = format!("spare-{}", uuid::Uuid::now_v7());
        let path: PathBuf = base.join(&run);
        Self {
            cwd: path.clone(),
            registration: Self::usual_registration(&ground.common, &path),
            path,
            run,
            repo: repo.to_owned(),
            common: ground.common.clone(),
            base: ground.head.clone(),
            session: None,
        }
    }
}

fn unfit(why: &str) -> Failure {
    Failure::new(Category::Configuration, why)
}

fn until_the_next_second() -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Duration::from_millis(1020) - Duration::from_millis(now.subsec_millis().into())
}
