//! The menu, and the keys that stand for it.
//!
//! WebKit knows the keys of editing by itself, in the page, and GTK in our own fields: for these the menu only shows them.

use gtk::gdk::ModifierType;
use gtk::gdk::keys::{Key, constants as key};
use gtk::prelude::*;
use gtk::{AccelFlags, AccelGroup, AccelLabel, Menu, MenuBar, MenuItem, SeparatorMenuItem};
use tao::event_loop::EventLoopProxy;

use crate::app::Said;

/// What can be chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Reload,
    ChangePort,
    OpenInBrowser,
    Quit,
    /// By WebKit's name of it.
    Edit(&'static str),
    ZoomIn,
    ZoomOut,
    ZoomReset,
    FullScreen,
    About,
}

const NONE: ModifierType = ModifierType::empty();
const CTRL: ModifierType = ModifierType::CONTROL_MASK;

/// An entry: its words, what it does, and its keys, of which the first is shown.
type Entry = (&'static str, Action, &'static [(Key, ModifierType)]);

const MENUS: [(&str, &[&[Entry]]); 4] = [
    (
        "_File",
        &[
            &[
                ("_Reload", Action::Reload, &[(key::r, CTRL), (key::F5, NONE)]),
                ("Open in _Browser", Action::OpenInBrowser, &[]),
                ("Change _Port…", Action::ChangePort, &[]),
            ],
            &[("_Quit", Action::Quit, &[(key::q, CTRL), (key::w, CTRL)])],
        ],
    ),
    (
        "_Edit",
        &[
            &[
                ("_Undo", Action::Edit("Undo"), &[(key::z, CTRL)]),
                ("_Redo", Action::Edit("Redo"), &[(key::z, CTRL.union(ModifierType::SHIFT_MASK))]),
            ],
            &[
                ("Cu_t", Action::Edit("Cut"), &[(key::x, CTRL)]),
                ("_Copy", Action::Edit("Copy"), &[(key::c, CTRL)]),
                ("_Paste", Action::Edit("Paste"), &[(key::v, CTRL)]),
                ("Select _All", Action::Edit("SelectAll"), &[(key::a, CTRL)]),
            ],
        ],
    ),
    (
        "_View",
        &[
            &[
                ("Zoom _In", Action::ZoomIn, &[(key::plus, CTRL), (key::equal, CTRL), (key::KP_Add, CTRL)]),
                ("Zoom _Out", Action::ZoomOut, &[(key::minus, CTRL), (key::KP_Subtract, CTRL)]),
                ("_Actual Size", Action::ZoomReset, &[(key::_0, CTRL), (key::KP_0, CTRL)]),
            ],
            &[("_Full Screen", Action::FullScreen, &[(key::F11, NONE)])],
        ],
    ),
    ("_Help", &[&[("_About Trunkline", Action::About, &[])]]),
];

pub(crate) fn bar(window: &gtk::ApplicationWindow, said: &EventLoopProxy<Said>) -> MenuBar {
    let (bar, keys) = (MenuBar::new(), AccelGroup::new());
    window.add_accel_group(&keys);
    for (name, groups) in MENUS {
        let (top, menu) = (MenuItem::with_mnemonic(name), Menu::new());
        for (number, group) in groups.iter().enumerate() {
            if number > 0 {
                menu.append(&SeparatorMenuItem::new());
            }
            group.iter().for_each(|entry| menu.append(&item(entry, &keys, said)));
        }
        top.set_submenu(Some(&menu));
        bar.append(&top);
    }
    bar
}

fn item((words, action, shortcuts): &Entry, keys: &AccelGroup, said: &EventLoopProxy<Said>) -> MenuItem {
    let item = MenuItem::with_mnemonic(words);
    if let Action::Edit(_) = action {
        let shown = shortcuts.first().zip(item.child().and_downcast::<AccelLabel>());
        shown.into_iter().for_each(|((key, with), label)| label.set_accel(**key, *with));
    } else {
        for (key, with) in *shortcuts {
            item.add_accelerator("activate", keys, **key, *with, AccelFlags::VISIBLE);
        }
    }
    let (said, action) = (said.clone(), *action);
    item.connect_activate(move |_| drop(said.send_event(Said::Chosen(action))));
    item
}
