//! The Debian package built by `cargo xtask desktop --bundle`: its contents, and that the installed program runs.

use crate::desktop::{TestDesktop, command, variable};

#[test]
fn package_has_the_expected_files_and_runs_when_extracted() {
    let package =
        variable("DESKTOP_PACKAGE").expect("DESKTOP_PACKAGE is not set to the .deb: run cargo xtask desktop --test");
    let output_of = |program: &str, args: &[&str]| {
        let output = command(program).args(args).arg(&package).output().unwrap();
        assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let info = output_of("dpkg-deb", &["--info"]);
    for field in ["Package: trunkline", "Version: ", "libgtk-3-0", "libwebkit2gtk-4.1-0", "libc6", "xdg-utils"] {
        assert!(info.contains(field), "{field} is not in\n{info}");
    }
    let contents = output_of("dpkg-deb", &["--contents"]);
    let listed = contents.lines().filter(|line| !line.ends_with('/')).map(|line| {
        let mut words = line.split_whitespace();
        (words.next().unwrap(), words.next().unwrap(), words.next_back().unwrap())
    });
    let expected = [
        ("-rwxr-xr-x", "root/root", "./usr/bin/trunkline"),
        ("-rwxr-xr-x", "root/root", "./usr/bin/trunkline-desktop"),
        ("-rw-r--r--", "root/root", "./usr/share/applications/trunkline-desktop.desktop"),
        ("-rw-r--r--", "root/root", "./usr/share/doc/trunkline/copyright"),
        ("-rw-r--r--", "root/root", "./usr/share/icons/hicolor/128x128/apps/trunkline.png"),
        ("-rw-r--r--", "root/root", "./usr/share/icons/hicolor/scalable/apps/trunkline.svg"),
    ];
    let mut listed: Vec<_> = listed.collect();
    listed.sort_by_key(|(_, _, path)| *path);
    assert_eq!(listed, expected);
    let desktop = TestDesktop::new();
    let installed = desktop.path("installed");
    let unpacked = command("dpkg-deb").arg("--extract").arg(&package).arg(&installed).status().unwrap();
    assert!(unpacked.success());
    // `trunkline desktop` finds the window binary in its own folder, and the window finds the gateway binary there.
    let port = desktop.port.to_string();
    let window = desktop.open_as(&installed.join("usr/bin/trunkline"), &["desktop", "--port", &port]);
    window.ask(desktop.port, "how are you");
    desktop.screen.press(&["ctrl+q"]);
    assert_eq!(window.wait_for_exit(), Some(0));
    desktop.wait_for_no_processes();
}
