//! Menu bar and keyboard shortcuts.
//!
//! WebKit handles the editing shortcuts in the page, and GTK in our own fields. For those the menu only displays the
//! keys.

use gtk::gdk::ModifierType;
use gtk::gdk::keys::{Key, constants as key};
use gtk::prelude::*;
use gtk::{AccelFlags, AccelGroup, AccelLabel, Menu, MenuBar, MenuItem, SeparatorMenuItem};
use tao::event_loop::EventLoopProxy;

use crate::app::AppEvent;

/// Command of a menu entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MenuAction {
    Reload,
    ChangePort,
    OpenInBrowser,
    Quit,
    /// Editing command, by its WebKit name.
    Edit(&'static str),
    ZoomIn,
    ZoomOut,
    ZoomReset,
    FullScreen,
    About,
}

const NONE: ModifierType = ModifierType::empty();
const CTRL: ModifierType = ModifierType::CONTROL_MASK;

/// Label, action and shortcuts of a menu entry. The first shortcut is displayed.
type MenuEntry = (&'static str, MenuAction, &'static [(Key, ModifierType)]);

const MENUS: [(&str, &[&[MenuEntry]]); 4] = [
    (
        "_File",
        &[
            &[
                ("_Reload", MenuAction::Reload, &[(key::r, CTRL), (key::F5, NONE)]),
                ("Open in _Browser", MenuAction::OpenInBrowser, &[]),
                ("Change _Port…", MenuAction::ChangePort, &[]),
            ],
            &[("_Quit", MenuAction::Quit, &[(key::q, CTRL), (key::w, CTRL)])],
        ],
    ),
    (
        "_Edit",
        &[
            &[
                ("_Undo", MenuAction::Edit("Undo"), &[(key::z, CTRL)]),
                ("_Redo", MenuAction::Edit("Redo"), &[(key::z, CTRL.union(ModifierType::SHIFT_MASK))]),
            ],
            &[
                ("Cu_t", MenuAction::Edit("Cut"), &[(key::x, CTRL)]),
                ("_Copy", MenuAction::Edit("Copy"), &[(key::c, CTRL)]),
                ("_Paste", MenuAction::Edit("Paste"), &[(key::v, CTRL)]),
                ("Select _All", MenuAction::Edit("SelectAll"), &[(key::a, CTRL)]),
            ],
        ],
    ),
    (
        "_View",
        &[
            &[
                ("Zoom _In", MenuAction::ZoomIn, &[(key::plus, CTRL), (key::equal, CTRL), (key::KP_Add, CTRL)]),
                ("Zoom _Out", MenuAction::ZoomOut, &[(key::minus, CTRL), (key::KP_Subtract, CTRL)]),
                ("_Actual Size", MenuAction::ZoomReset, &[(key::_0, CTRL), (key::KP_0, CTRL)]),
            ],
            &[("_Full Screen", MenuAction::FullScreen, &[(key::F11, NONE)])],
        ],
    ),
    ("_Help", &[&[("_About Trunkline", MenuAction::About, &[])]]),
];

pub(crate) fn bar(window: &gtk::ApplicationWindow, events: &EventLoopProxy<AppEvent>) -> MenuBar {
    let (bar, keys) = (MenuBar::new(), AccelGroup::new());
    window.add_accel_group(&keys);
    for (name, groups) in MENUS {
        let (top, menu) = (MenuItem::with_mnemonic(name), Menu::new());
        for (number, group) in groups.iter().enumerate() {
            if number > 0 {
                menu.append(&SeparatorMenuItem::new());
            }
            group.iter().for_each(|entry| menu.append(&item(entry, &keys, events)));
        }
        top.set_submenu(Some(&menu));
        bar.append(&top);
    }
    bar
}

fn item((label, action, shortcuts): &MenuEntry, keys: &AccelGroup, events: &EventLoopProxy<AppEvent>) -> MenuItem {
    let item = MenuItem::with_mnemonic(label);
    if let MenuAction::Edit(_) = action {
        let shown = shortcuts.first().zip(item.child().and_downcast::<AccelLabel>());
        shown.into_iter().for_each(|((key, modifiers), label)| label.set_accel(**key, *modifiers));
    } else {
        for (key, modifiers) in *shortcuts {
            item.add_accelerator("activate", keys, **key, *modifiers, AccelFlags::VISIBLE);
        }
    }
    let (events, action) = (events.clone(), *action);
    item.connect_activate(move |_| drop(events.send_event(AppEvent::Menu(action))));
    item
}
