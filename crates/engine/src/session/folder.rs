//! Folders under their several names.

use std::path::Path;

/// Whether both name one folder, be it through links. One that is gone has no other name than its own.
#[must_use]
pub fn same_folder(one: &Path, other: &Path) -> bool {
    one == other || matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_folder_is_the_same_under_every_name() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        fs::create_dir_all(path("shop")).unwrap();
        fs::create_dir_all(path("conf")).unwrap();
        symlink("shop", path("link")).unwrap();
        for (one, other, same) in [
            ("shop", "shop/", true),
            ("shop", "link", true),
            ("shop", "conf/../shop", true),
            ("shop", "conf", false),
            ("gone", "gone", true),
            ("gone", "conf/../gone", false),
        ] {
            assert_eq!(same_folder(&path(one), &path(other)), same, "{one} and {other}");
        }
    }
}
