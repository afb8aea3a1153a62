//! Files that people send along: fetched, kept below the state folder, and told to the agent.

use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use reqwest::{Client, Url};
use trunkline_core::turn::Image;

use crate::incoming::Incoming;
use crate::wire::Attachment;

/// The largest file, and the largest picture that is shown rather than told of.
const LARGEST: u64 = 25 * 1024 * 1024;
const LARGEST_IMAGE: usize = 8 * 1024 * 1024;

/// How many files of one message.
const MOST: usize = 10;

/// Where they are, below the state folder.
const FOLDER: &str = "discord";

/// How long they are kept.
const KEPT: Duration = Duration::from_hours(30 * 24);

const TIMEOUT: Duration = Duration::from_secs(60);

/// Where Discord keeps what people upload.
const HOSTS: [&str; 2] = ["cdn.discordapp.com", "media.discordapp.net"];

pub(crate) struct Files {
    http: Client,
    folder: PathBuf,
    /// Whoever stands in for Discord.
    api: Option<Url>,
}

/// What an agent is given of a message's files.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Given {
    pub(crate) images: Vec<Image>,
    /// To be added to the prompt.
    pub(crate) told: String,
}

impl Files {
    pub(crate) fn new(http: Client, state: &Path, api: Option<&str>) -> Self {
        Self { http, folder: state.join(FOLDER), api: api.and_then(|url| url.parse().ok()) }
    }

    /// Fetches the files of a message. One that cannot be had is told of as that.
    pub(crate) async fn fetch(&self, incoming: &Incoming, shows_images: bool) -> Given {
        let mut given = Given::default();
        let folder = self.folder.join(incoming.channel.to_string()).join(incoming.id.to_string());
        for (index, attachment) in incoming.attachments.iter().enumerate() {
            let name = safe_name(&attachment.filename);
            if index >= MOST {
                given.tell(&name, "not fetched: too many files");
                continue;
            }
            match self.one(attachment, &folder.join(format!("{}-{name}", index + 1))).await {
                Ok((_, bytes)) if shows_images && image(&bytes).is_some() => given.images.extend(image(&bytes)),
                Ok((path, _)) => given.tell(&name, &path.display().to_string()),
                Err(why) => given.tell(&name, &format!("not fetched: {why}")),
            }
        }
        given
    }

    async fn one(&self, attachment: &Attachment, path: &Path) -> Result<(PathBuf, Vec<u8>), String> {
        let url: Url = attachment.url.parse().map_err(|_not_one| "no address".to_owned())?;
        if !self.trusts(&url) {
            return Err("not from Discord".to_owned());
        }
        if attachment.size > LARGEST {
            return Err(format!("larger than {} MiB", LARGEST / 1024 / 1024));
        }
        let failed = |error: reqwest::Error| error.without_url().to_string();
        let request = self.http.get(url).timeout(TIMEOUT);
        let mut response = request.send().await.and_then(reqwest::Response::error_for_status).map_err(failed)?;
        let mut bytes = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(failed)? {
            if (bytes.len() + piece.len()) as u64 > LARGEST {
                return Err(format!("larger than {} MiB", LARGEST / 1024 / 1024));
            }
            bytes.extend_from_slice(&piece);
        }
        let written = write(path, &bytes).await;
        written.map(|()| (path.to_owned(), bytes)).map_err(|error| format!("cannot be kept: {error}"))
    }

    /// Only Discord's own hosts: an address is data that a stranger may have written.
    fn trusts(&self, url: &Url) -> bool {
        if let Some(api) = &self.api {
            return url.origin() == api.origin();
        }
        url.scheme() == "https" && url.host_str().is_some_and(|host| HOSTS.contains(&host))
    }

    /// Removes what is older than a month.
    pub(crate) async fn sweep(&self) {
        let folder = self.folder.clone();
        // A folder that is not there is swept.
        let _swept = tokio::task::spawn_blocking(move || sweep(&folder, SystemTime::now(), KEPT)).await;
    }
}

/// Removes the files that people sent longer ago than that.
pub fn forget_files(state: &Path, age: Duration) -> io::Result<()> {
    match sweep(&state.join(FOLDER), SystemTime::now(), age) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        swept => swept,
    }
}

impl Given {
    fn tell(&mut self, name: &str, what: &str) {
        if self.told.is_empty() {
            self.told.push_str("Attached files:");
        }
        self.told.push_str(&format!("\n- {name}: {what}"));
    }
}

async fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    tokio::fs::write(path, bytes).await
}

fn sweep(folder: &Path, now: SystemTime, kept: Duration) -> io::Result<()> {
    for channel in std::fs::read_dir(folder)?.flatten() {
        for message in std::fs::read_dir(channel.path())?.flatten() {
            let changed = message.metadata()?.modified()?;
            if now.duration_since(changed).is_ok_and(|age| age >= kept) {
                std::fs::remove_dir_all(message.path())?;
            }
        }
    }
    Ok(())
}

/// A name that is a file's and nothing else: no folder, no option, nothing hidden.
fn safe_name(name: &str) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_') { c } else { '_' };
    let name: String = name.chars().map(safe).collect();
    let name = name.trim_start_matches(['.', '-']);
    let from = name.len().saturating_sub(80);
    if name.is_empty() { "file".to_owned() } else { name[from..].to_owned() }
}

/// A picture, known by its first bytes: a name proves nothing.
fn image(bytes: &[u8]) -> Option<Image> {
    let extension = match bytes {
        [0x89, b'P', b'N', b'G', ..] => "png",
        [0xff, 0xd8, 0xff, ..] => "jpeg",
        [b'G', b'I', b'F', b'8', ..] => "gif",
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => "webp",
        _ => return None,
    };
    (bytes.len() <= LARGEST_IMAGE).then(|| Image { extension, bytes: bytes.to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_safe() {
        for (name, safe) in [
            ("notes.txt", "notes.txt"),
            ("../../.ssh/authorized_keys", "_.._.ssh_authorized_keys"),
            ("--help", "help"),
            (".bashrc", "bashrc"),
            ("a b;$(c).md", "a_b___c_.md"),
            ("übung.pdf", "_bung.pdf"),
            ("...", "file"),
        ] {
            assert_eq!(safe_name(name), safe, "{name}");
        }
        assert!(safe_name(&format!("{}.png", "x".repeat(300))).ends_with("x.png"));
    }

    #[test]
    fn only_discords_own_hosts_are_asked() {
        let files = |api| Files::new(crate::rest::client(true).unwrap(), Path::new("/nowhere"), api);
        let trusts = |files: &Files, url: &str| files.trusts(&url.parse().unwrap());
        let real = files(None);
        assert!(trusts(&real, "https://cdn.discordapp.com/attachments/1/2/a.png?ex=1"));
        for url in ["http://cdn.discordapp.com/a", "https://evil.example/a", "https://cdn.discordapp.com.evil.example/"]
        {
            assert!(!trusts(&real, url), "{url}");
        }
        let fake = files(Some("http://127.0.0.1:8080"));
        assert!(trusts(&fake, "http://127.0.0.1:8080/a") && !trusts(&fake, "http://127.0.0.1:8081/a"));
    }

    #[test]
    fn what_is_old_goes() {
        let folder = tempfile::tempdir().unwrap();
        let message = folder.path().join("20/100");
        std::fs::create_dir_all(&message).unwrap();
        sweep(folder.path(), SystemTime::now(), KEPT).unwrap();
        assert!(message.exists());
        sweep(folder.path(), SystemTime::now() + KEPT + Duration::from_secs(60), KEPT).unwrap();
        assert!(!message.exists());
    }
}
