//! Files of the repository that must agree with each other: the documentation, its links, and the toolchain.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn read(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Names of the pages in docs/.
fn pages() -> BTreeSet<String> {
    let entries = fs::read_dir(root().join("docs")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.ends_with(".md")).collect()
}

#[test]
fn toolchain_is_the_oldest_supported_version() {
    let manifest = |name: &str| read(name).parse::<toml::Table>().unwrap();
    let supported = manifest("Cargo.toml")["workspace"]["package"]["rust-version"].as_str().unwrap().to_owned();
    let channel = manifest("rust-toolchain.toml")["toolchain"]["channel"].as_str().unwrap().to_owned();
    assert!(channel == supported || channel.starts_with(&format!("{supported}.")), "{channel} and {supported}");
    let desktop = manifest("apps/desktop/Cargo.toml")["package"]["rust-version"].as_str().unwrap().to_owned();
    assert_eq!(desktop, supported, "the desktop is a workspace of its own");
}

#[test]
fn links_of_the_documentation_lead_somewhere() {
    let documents = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "ARCHITECTURE.md", "CHANGELOG.md"];
    let documents = documents.map(str::to_owned).into_iter();
    let documents: Vec<String> = documents.chain(pages().iter().map(|page| format!("docs/{page}"))).collect();
    let mut broken = Vec::new();
    for document in &documents {
        let folder = root().join(document).parent().unwrap().to_owned();
        for link in links(&read(document)).into_iter().filter(|link| !link.contains("://")) {
            let (path, heading) = link.split_once('#').map_or((link.as_str(), None), |(path, id)| (path, Some(id)));
            let target = if path.is_empty() { root().join(document) } else { folder.join(path) };
            let leads = target.exists()
                && heading.is_none_or(|id| headings(&fs::read_to_string(&target).unwrap()).contains(id));
            if !leads {
                broken.push(format!("{document}: {link}"));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn index_of_the_documentation_lists_every_page() {
    let listed: BTreeSet<String> = links(&read("docs/README.md")).into_iter().collect();
    let missing: Vec<_> = pages().into_iter().filter(|page| page != "README.md" && !listed.contains(page)).collect();
    assert!(missing.is_empty(), "docs/README.md does not list {missing:?}");
}

/// A path with a placeholder is checked up to its folder.
#[test]
fn files_that_contributing_names_exist() {
    let page = read("CONTRIBUTING.md");
    let spans = page.split('`').skip(1).step_by(2).filter(|span| !span.contains(char::is_whitespace));
    let folders = ["crates/", "docs/", "fixtures/", "schemas/", "providers/", "apps/", ".ci/"];
    let named = spans.filter(|span| folders.iter().any(|folder| span.starts_with(folder)));
    let paths = named.map(|span| span.split_once('<').map_or(span, |(known, _)| known.rsplit_once('/').unwrap().0));
    let missing: Vec<_> = paths.filter(|path| !root().join(path).exists()).collect();
    assert!(missing.is_empty(), "CONTRIBUTING.md names {missing:?}");
}

/// Each fault of docs/RELIABILITY.md names its tests by a number, which their names begin with.
#[test]
fn every_numbered_fault_has_its_test() {
    let page = read("docs/RELIABILITY.md");
    let numbers: BTreeSet<&str> = page.match_indices("`case_").map(|(at, _)| &page[at + 1..at + 8]).collect();
    assert!(numbers.len() > 60, "{numbers:?}");
    let mut sources = String::new();
    add_sources(&root().join("crates"), &mut sources);
    let missing: Vec<_> = numbers.into_iter().filter(|number| !sources.contains(&format!("{number}_"))).collect();
    assert!(missing.is_empty(), "no test is named {missing:?}");
}

fn add_sources(folder: &Path, sources: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            add_sources(&path, sources);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            sources.push_str(&fs::read_to_string(&path).unwrap());
        }
    }
}

fn links(text: &str) -> Vec<String> {
    let mut links = Vec::new();
    for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
        if let Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) = event {
            links.push(dest_url.into_string());
        }
    }
    links
}

/// Anchors of the headings, as GitHub makes them.
fn headings(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    let mut seen: HashMap<String, u32> = HashMap::new();
    let mut heading: Option<String> = None;
    for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
        if let Event::Start(Tag::Heading { .. }) = event {
            heading = Some(String::new());
        } else if let (Event::Text(text) | Event::Code(text), Some(heading)) = (&event, &mut heading) {
            heading.push_str(text);
        } else if let Event::End(TagEnd::Heading(_)) = event {
            let anchor = anchor(&heading.take().unwrap_or_default());
            let count = seen.entry(anchor.clone()).or_default();
            anchors.insert(if *count == 0 { anchor } else { format!("{anchor}-{count}") });
            *count += 1;
        }
    }
    anchors
}

fn anchor(heading: &str) -> String {
    let kept = heading.to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn headings_have_the_anchors_that_github_makes() {
    let page = "# The model `agent`\n## What it is\n### `models.json`, by hand\n## What it is\n```\n# not one\n```\n";
    let expected = ["the-model-agent", "what-it-is", "modelsjson-by-hand", "what-it-is-1"];
    assert_eq!(headings(page), expected.map(str::to_owned).into());
}
