//! The package that `cargo xtask desktop --bundle` makes: what is in it, and that it runs from where it is put.

use crate::world::{World, command, variable};

#[test]
fn what_is_packed_is_whole_and_runs() {
    let package = variable("DESKTOP_PACKAGE").expect("DESKTOP_PACKAGE names the .deb: run cargo xtask desktop --test");
    let said = |program: &str, args: &[&str]| {
        let output = command(program).args(args).arg(&package).output().unwrap();
        assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let about = said("dpkg-deb", &["--info"]);
    for field in ["Package: trunkline", "Version: ", "libgtk-3-0", "libwebkit2gtk-4.1-0", "libc6", "xdg-utils"] {
        assert!(about.contains(field), "{field} is not in\n{about}");
    }
    let contents = said("dpkg-deb", &["--contents"]);
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
    let world = World::new();
    let installed = world.path("installed");
    let unpacked = command("dpkg-deb").arg("--extract").arg(&package).arg(&installed).status().unwrap();
    assert!(unpacked.success());
    // It finds the gateway beside itself, and the gateway finds it.
    let port = world.port.to_string();
    let window = world.open_as(&installed.join("usr/bin/trunkline"), &["desktop", "--port", &port]);
    window.ask(world.port, "how are you");
    world.screen.press(&["ctrl+q"]);
    assert_eq!(window.ended(), Some(0));
    world.nothing_is_left();
}
