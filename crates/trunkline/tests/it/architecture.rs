//! ARCHITECTURE.md against the code: the drawings of crates and rooms are what the `use` lines say, and imports form no large
//! cycle. `TRUNKLINE_UPDATE_DOCS=1` rewrites the drawings.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Largest import cycle that is allowed inside a crate, in files.
const MAX_CYCLE_FILES: usize = 3;

/// Crates whose rooms (top-level modules) are drawn.
const DRAWN_CRATES: [&str; 3] = ["core", "engine", "server"];

/// Path of a module below its crate's root: `["runs", "log"]`; empty for the root.
type ModulePath = Vec<String>;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn crate_names() -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(root().join("crates"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// The modules of a crate with their source, without comments and without test code.
struct Modules(BTreeMap<ModulePath, String>);

impl Modules {
    fn of_crate(name: &str) -> Self {
        let source = root().join("crates").join(name).join("src");
        let mut modules = BTreeMap::new();
        let mut folders = vec![source.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|extension| extension == "rs") {
                    let module = path.strip_prefix(&source).unwrap().with_extension("");
                    let mut module: ModulePath = module.iter().map(|part| part.to_str().unwrap().to_owned()).collect();
                    let is_test =
                        |part: &String| part == "tests" || part.ends_with("_tests") || part.starts_with("test_");
                    if module.iter().any(is_test) {
                        continue;
                    }
                    if module.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
                        module.pop();
                    }
                    modules.insert(module, code(&fs::read_to_string(&path).unwrap()));
                }
            }
        }
        Self(modules)
    }

    /// Modules of this crate that each module imports, by `use` lines and by paths in the code.
    fn imports(&self) -> BTreeMap<&ModulePath, BTreeSet<ModulePath>> {
        let imports_of = |module: &ModulePath, text: &str| {
            let uses = use_paths(text).into_iter().filter(|(public, _)| !public).map(|(_, path)| path);
            let found = uses.chain(inline_paths(text, &self.children(module)));
            found.filter_map(|path| self.resolve(module, &path, 0)).filter(|target| target != module).collect()
        };
        self.0.iter().map(|(module, text)| (module, imports_of(module, text))).collect()
    }

    fn children(&self, module: &ModulePath) -> Vec<&str> {
        let is_child = |path: &&ModulePath| path.len() == module.len() + 1 && path.starts_with(module);
        self.0.keys().filter(is_child).filter_map(|path| path.last()).map(String::as_str).collect()
    }

    /// The module that defines the item of a path. Follows re-exports.
    fn resolve(&self, from: &ModulePath, path: &str, depth: usize) -> Option<ModulePath> {
        let mut parts = path.split("::").peekable();
        let mut module = from.clone();
        match *parts.peek()? {
            "crate" => {
                parts.next();
                module.clear();
            }
            "self" => drop(parts.next()),
            "super" => {
                while parts.next_if_eq(&"super").is_some() {
                    module.pop();
                }
            }
            child => {
                module.push(child.to_owned());
                self.0.get(&module)?;
                parts.next();
            }
        }
        while let Some(part) = parts.peek() {
            module.push((*part).to_owned());
            if !self.0.contains_key(&module) {
                module.pop();
                break;
            }
            parts.next();
        }
        let text = self.0.get(&module)?;
        let Some(item) = parts.next().filter(|_| depth < 4) else { return Some(module) };
        let exported =
            use_paths(text).into_iter().find(|(public, path)| *public && path.ends_with(&format!("::{item}")));
        match exported {
            Some((_, path)) => self.resolve(&module, &path, depth + 1).or(Some(module)),
            None => Some(module),
        }
    }
}

/// Source without comments, and without the test module at the end of the file.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// Paths of all `use` declarations, one for each item, and whether the declaration is public.
fn use_paths(text: &str) -> Vec<(bool, String)> {
    let mut paths = Vec::new();
    for statement in text.split(';') {
        let statement: Vec<&str> = statement.split_whitespace().collect();
        let Some(at) = statement.iter().rposition(|word| *word == "use") else { continue };
        let public = at > 0 && statement[at - 1].starts_with("pub");
        let tree = statement[at + 1..].join(" ");
        paths.extend(expand(&tree).into_iter().map(|path| (public, path)));
    }
    paths
}

/// `a::{b, c::d as e}` as `a::b`, `a::c::d`.
fn expand(tree: &str) -> Vec<String> {
    let tree = tree.trim();
    let Some((prefix, rest)) = tree.split_once('{') else {
        return vec![tree.split(" as ").next().unwrap_or_default().replace(' ', "")];
    };
    let (mut parts, mut depth) = (vec![String::new()], 0_usize);
    for letter in rest.strip_suffix('}').unwrap_or(rest).chars() {
        match letter {
            ',' if depth == 0 => parts.push(String::new()),
            _ => {
                depth = match letter {
                    '{' => depth + 1,
                    '}' => depth.saturating_sub(1),
                    _ => depth,
                };
                parts.last_mut().unwrap().push(letter);
            }
        }
    }
    let parts = parts.iter().filter(|part| !part.trim().is_empty());
    parts.flat_map(|part| expand(part)).map(|part| format!("{}{part}", prefix.replace(' ', ""))).collect()
}

/// Paths in the code itself that begin at the crate, at the parent or at a child module.
fn inline_paths(text: &str, children: &[&str]) -> Vec<String> {
    let is_path = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == ':';
    // A declaration ends its chunk, so only the code before it remains.
    let code = text.split(';').map(|chunk| chunk.split("use ").next().unwrap_or_default());
    let words = code.flat_map(|chunk| chunk.split(|letter: char| !is_path(letter))).filter(|word| word.contains("::"));
    let begins = |word: &&str| {
        let first = word.split("::").next().unwrap_or_default();
        ["crate", "super", "self"].contains(&first) || children.contains(&first)
    };
    words.filter(begins).map(|word| word.trim_end_matches(':').to_owned()).collect()
}

/// Groups of modules that import each other, directly or through others.
fn cycles(imports: &BTreeMap<&ModulePath, BTreeSet<ModulePath>>) -> Vec<BTreeSet<ModulePath>> {
    let reaches = |start: &ModulePath| {
        let (mut reached, mut open) = (BTreeSet::new(), vec![start.clone()]);
        while let Some(module) = open.pop() {
            for next in imports.get(&module).into_iter().flatten() {
                if reached.insert(next.clone()) {
                    open.push(next.clone());
                }
            }
        }
        reached
    };
    let reached: BTreeMap<&ModulePath, BTreeSet<ModulePath>> =
        imports.keys().map(|module| (*module, reaches(module))).collect();
    let group = |module: &ModulePath| -> BTreeSet<ModulePath> {
        reached[module].iter().filter(|other| reached[*other].contains(module)).cloned().collect()
    };
    let groups: BTreeSet<BTreeSet<ModulePath>> = imports.keys().map(|module| group(module)).collect();
    groups.into_iter().filter(|group| group.len() > 1).collect()
}

/// One line for each name, with the names it imports.
fn drawing(edges: &BTreeMap<String, BTreeSet<String>>) -> String {
    let width = edges.keys().map(String::len).max().unwrap_or_default();
    let line = |(name, uses): (&String, &BTreeSet<String>)| {
        let uses: Vec<&str> = uses.iter().map(String::as_str).collect();
        let line = format!("{name:width$} → {}", if uses.is_empty() { "–".to_owned() } else { uses.join(" ") });
        line + "\n"
    };
    edges.iter().map(line).collect()
}

fn crates_drawn() -> String {
    let names = crate_names();
    let uses = |name: &String| {
        let texts = Modules::of_crate(name).0.into_values().collect::<Vec<_>>().join("\n");
        let used = names.iter().filter(|other| *other != name && texts.contains(&format!("trunkline_{other}")));
        used.cloned().collect()
    };
    drawing(&names.iter().map(|name| (name.clone(), uses(name))).collect())
}

fn rooms_drawn(name: &str) -> String {
    let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let modules = Modules::of_crate(name);
    for (module, targets) in modules.imports() {
        let Some(room) = module.first() else { continue };
        let uses = edges.entry(room.clone()).or_default();
        uses.extend(targets.iter().filter_map(|target| target.first()).filter(|target| *target != room).cloned());
    }
    drawing(&edges)
}

/// Replaces, or compares, the block after the marker of this name.
fn check_block(document: &mut String, name: &str, drawn: &str) {
    let marker = format!("<!-- drawn: {name} -->\n```text\n");
    let start =
        document.find(&marker).unwrap_or_else(|| panic!("ARCHITECTURE.md has no block {marker:?}")) + marker.len();
    let end = start + document[start..].find("```").unwrap();
    if update() {
        document.replace_range(start..end, drawn);
    }
    let end = start + document[start..].find("```").unwrap();
    assert_eq!(&document[start..end], drawn, "{name}: run this test with TRUNKLINE_UPDATE_DOCS=1 to redraw it");
}

#[expect(clippy::disallowed_methods, reason = "asked for by the person who runs the test")]
fn update() -> bool {
    std::env::var_os("TRUNKLINE_UPDATE_DOCS").is_some()
}

#[test]
fn drawings_match_the_imports() {
    let path = root().join("ARCHITECTURE.md");
    let mut document = fs::read_to_string(&path).unwrap();
    check_block(&mut document, "crates", &crates_drawn());
    for name in DRAWN_CRATES {
        check_block(&mut document, &format!("rooms of {name}"), &rooms_drawn(name));
    }
    if update() {
        fs::write(path, document).unwrap();
    }
}

#[test]
fn types_in_the_glossary_exist() {
    let document = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let terms = document.split("## Terms").nth(1).unwrap().split("\n## ").next().unwrap();
    let code: String = crate_names().iter().flat_map(|name| Modules::of_crate(name).0.into_values()).collect();
    let words: BTreeSet<&str> = code.split(|letter: char| !letter.is_alphanumeric() && letter != '_').collect();
    let named = terms.split('`').skip(1).step_by(2).filter_map(|path| path.rsplit("::").next());
    let types: Vec<&str> = named.filter(|name| name.starts_with(char::is_uppercase)).collect();
    assert!(types.len() > 15, "{types:?}");
    let missing: Vec<&&str> = types.iter().filter(|name| !words.contains(*name)).collect();
    assert!(missing.is_empty(), "ARCHITECTURE.md names {missing:?}");
}

#[test]
fn imports_form_no_large_cycle_inside_a_crate() {
    for name in crate_names() {
        let modules = Modules::of_crate(&name);
        let cycles = cycles(&modules.imports());
        let large: Vec<_> = cycles.iter().filter(|cycle| cycle.len() > MAX_CYCLE_FILES).collect();
        let large: Vec<Vec<String>> =
            large.into_iter().map(|cycle| cycle.iter().map(|module| module.join("/")).collect()).collect();
        assert!(large.is_empty(), "{name}: {large:?}");
    }
}

#[test]
fn use_declarations_are_expanded() {
    let text = "use a::{b, c::{d, e as f}};\npub(crate) use crate::g::H;";
    let expected = [(false, "a::b"), (false, "a::c::d"), (false, "a::c::e"), (true, "crate::g::H")];
    assert_eq!(use_paths(text), expected.map(|(public, path)| (public, path.to_owned())));
}

#[test]
fn cycles_are_found_through_other_modules() {
    let module = |name: &str| vec![name.to_owned()];
    let names = ["a", "b", "c", "d"].map(module);
    let [a, b, c, d] = &names;
    let edges = [(a, b), (b, c), (c, a), (c, d)];
    let imports: BTreeMap<&ModulePath, BTreeSet<ModulePath>> = names
        .iter()
        .map(|from| (from, edges.iter().filter(|edge| edge.0 == from).map(|edge| edge.1.clone()).collect()))
        .collect();
    assert_eq!(cycles(&imports), [BTreeSet::from([a.clone(), b.clone(), c.clone()])]);
}
