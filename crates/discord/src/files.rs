//! Attachments: downloaded, stored below the state folder, and listed in the prompt.

use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use reqwest::{Client, Url};
use trunkline_core::turn::Image;

use crate::incoming::IncomingMessage;
use crate::wire::Attachment;

/// Largest attachment that is downloaded.
const MAX_FILE_BYTES: u64 = 25 * 1024 * 1024;

/// Largest picture that is sent to the model as an image.
const MAX_IMAGE_BYTES: usize = 8 * 1024 * 1024;

/// Attachments of one message that are downloaded.
const MAX_FILES: usize = 10;

/// Folder of the attachments, below the state folder.
const FOLDER: &str = "discord";

/// Age after which attachments are deleted.
const MAX_AGE: Duration = Duration::from_hours(30 * 24);

const DOWNLOAD_TIMEOUT: Duration = Duration::from_secs(60);

/// Hosts of Discord's uploads.
const HOSTS: [&str; 2] = ["cdn.discordapp.com", "media.discordapp.net"];

/// Downloads and stores attachments.
pub(crate) struct Files {
    http: Client,
    folder: PathBuf,
    /// Base URL of a replacement of Discord.
    api: Option<Url>,
}

/// Attachments of a message, as the agent gets them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct FetchedFiles {
    pub(crate) images: Vec<Image>,
    /// List of files, to be added to the prompt.
    pub(crate) list: String,
}

impl Files {
    pub(crate) fn new(http: Client, state: &Path, api: Option<&str>) -> Self {
        Self { http, folder: state.join(FOLDER), api: api.and_then(|url| url.parse().ok()) }
    }

    /// Downloads the attachments of a message. A failure is noted in the list.
    pub(crate) async fn fetch(&self, incoming: &IncomingMessage, shows_images: bool) -> FetchedFiles {
        let mut fetched = FetchedFiles::default();
        let folder = self.folder.join(incoming.channel.to_string()).join(incoming.id.to_string());
        for (index, attachment) in incoming.attachments.iter().enumerate() {
            let name = safe_name(&attachment.filename);
            if index >= MAX_FILES {
                fetched.add(&name, "not fetched: too many files");
                continue;
            }
            match self.download(attachment, &folder.join(format!("{}-{name}", index + 1))).await {
                Ok((_, bytes)) if shows_images && image(&bytes).is_some() => fetched.images.extend(image(&bytes)),
                Ok((path, _)) => fetched.add(&name, &path.display().to_string()),
                Err(reason) => fetched.add(&name, &format!("not fetched: {reason}")),
            }
        }
        fetched
    }

    async fn download(&self, attachment: &Attachment, path: &Path) -> Result<(PathBuf, Vec<u8>), String> {
        let url: Url = attachment.url.parse().map_err(|_| "invalid URL".to_owned())?;
        if !self.trusts(&url) {
            return Err("not from Discord".to_owned());
        }
        if attachment.size > MAX_FILE_BYTES {
            return Err(format!("larger than {} MiB", MAX_FILE_BYTES / 1024 / 1024));
        }
        let failed = |error: reqwest::Error| error.without_url().to_string();
        let request = self.http.get(url).timeout(DOWNLOAD_TIMEOUT);
        let mut response = request.send().await.and_then(reqwest::Response::error_for_status).map_err(failed)?;
        let mut bytes = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(failed)? {
            if (bytes.len() + piece.len()) as u64 > MAX_FILE_BYTES {
                return Err(format!("larger than {} MiB", MAX_FILE_BYTES / 1024 / 1024));
            }
            bytes.extend_from_slice(&piece);
        }
        let written = write(path, &bytes).await;
        written.map(|()| (path.to_owned(), bytes)).map_err(|error| format!("cannot be saved: {error}"))
    }

    /// Whether a URL has one of Discord's own hosts. Users may have forged it.
    fn trusts(&self, url: &Url) -> bool {
        if let Some(api) = &self.api {
            return url.origin() == api.origin();
        }
        url.scheme() == "https" && url.host_str().is_some_and(|host| HOSTS.contains(&host))
    }

    /// Deletes attachments older than [`MAX_AGE`].
    pub(crate) async fn sweep(&self) {
        let folder = self.folder.clone();
        // The folder may not exist, and other errors are harmless.
        let _ = tokio::task::spawn_blocking(move || sweep(&folder, SystemTime::now(), MAX_AGE)).await;
    }
}

/// Deletes attachments that are older than `age`.
pub fn forget_files(state: &Path, age: Duration) -> io::Result<()> {
    match sweep(&state.join(FOLDER), SystemTime::now(), age) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        swept => swept,
    }
}

impl FetchedFiles {
    fn add(&mut self, name: &str, what: &str) {
        if self.list.is_empty() {
            self.list.push_str("Attached files:");
        }
        self.list.push_str(&format!("\n- {name}: {what}"));
    }
}

async fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    tokio::fs::write(path, bytes).await
}

fn sweep(folder: &Path, now: SystemTime, max_age: Duration) -> io::Result<()> {
    for channel in std::fs::read_dir(folder)?.flatten() {
        for message in std::fs::read_dir(channel.path())?.flatten() {
            let changed = message.metadata()?.modified()?;
            if now.duration_since(changed).is_ok_and(|age| age >= max_age) {
                std::fs::remove_dir_all(message.path())?;
            }
        }
    }
    Ok(())
}

/// Converts a name to a safe file name: no path, no leading dash or dot.
fn safe_name(name: &str) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_') { c } else { '_' };
    let name: String = name.chars().map(safe).collect();
    let name = name.trim_start_matches(['.', '-']);
    let from = name.len().saturating_sub(80);
    if name.is_empty() { "file".to_owned() } else { name[from..].to_owned() }
}

/// A picture, recognized by its first bytes: the name proves nothing.
fn image(bytes: &[u8]) -> Option<Image> {
    let extension = match bytes {
        [0x89, b'P', b'N', b'G', ..] => "png",
        [0xff, 0xd8, 0xff, ..] => "jpeg",
        [b'G', b'I', b'F', b'8', ..] => "gif",
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => "webp",
        _ => return None,
    };
    (bytes.len() <= MAX_IMAGE_BYTES).then(|| Image { extension, bytes: bytes.to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_are_sanitized() {
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
    fn downloads_only_from_discords_own_hosts() {
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
    fn sweep_deletes_only_old_attachments() {
        let folder = tempfile::tempdir().unwrap();
        let message = folder.path().join("20/100");
        std::fs::create_dir_all(&message).unwrap();
        sweep(folder.path(), SystemTime::now(), MAX_AGE).unwrap();
        assert!(message.exists());
        sweep(folder.path(), SystemTime::now() + MAX_AGE + Duration::from_secs(60), MAX_AGE).unwrap();
        assert!(!message.exists());
    }
}
