use super::*;

fn object(name: &str, properties: &[&str], required: &[&str]) -> OfferedTool {
    let kind = |name: &str| match name {
        "is_background" => "boolean",
        "argv" => "array",
        _ => "string",
    };
    let properties: Map<String, Value> =
        properties.iter().map(|name| ((*name).to_owned(), json!({"type": kind(name)}))).collect();
    let schema = json!({"type": "object", "properties": properties, "required": required});
    OfferedTool { name: name.to_owned(), input: ToolInput::Object(schema) }
}

/// Tools that each CLI offers, as observed.
fn tools_of(cli: &str) -> Vec<OfferedTool> {
    match cli {
        "claude" => vec![
            object("Agent", &["prompt"], &["prompt"]),
            object("Bash", &["command", "timeout", "description"], &["command"]),
            object("Edit", &["file_path", "old_string", "new_string", "replace_all"], &["file_path"]),
            object("Read", &["file_path", "offset"], &["file_path"]),
            object("Write", &["file_path", "content"], &["file_path", "content"]),
        ],
        "codex" => vec![
            object("exec_command", &["cmd", "workdir"], &["cmd"]),
            OfferedTool { name: "apply_patch".to_owned(), input: ToolInput::Text },
        ],
        "gemini" => vec![
            object("read_file", &["file_path", "start_line"], &["file_path"]),
            object("replace", &["file_path", "instruction", "old_string", "new_string"], &["file_path", "instruction"]),
            object("write_file", &["file_path", "content"], &["file_path", "content"]),
            object("run_shell_command", &["command", "description"], &["command"]),
        ],
        "qwen" => vec![
            object("edit", &["file_path", "old_string", "new_string"], &["file_path"]),
            object("read_file", &["file_path"], &["file_path"]),
            object("run_shell_command", &["command", "is_background"], &["command", "is_background"]),
            object("write_file", &["file_path", "content"], &["file_path", "content"]),
        ],
        "opencode" => vec![
            object("bash", &["command", "timeout"], &["command"]),
            object("edit", &["filePath", "oldString", "newString"], &["filePath"]),
            object("read", &["filePath"], &["filePath"]),
            object("write", &["content", "filePath"], &["content", "filePath"]),
        ],
        "ours" => vec![
            object("read_file", &["path"], &["path"]),
            object("write_file", &["path", "content"], &["path", "content"]),
            object("edit_file", &["path", "old_string", "new_string"], &["path"]),
            object("bash", &["command"], &["command"]),
        ],
        _ => vec![],
    }
}

#[test]
fn calls_are_translated_to_the_tools_of_each_cli() {
    let read = r#"{"path": "a.txt"}"#;
    let write = r#"{"path": "a.txt", "content": "x"}"#;
    let edit = r#"{"path": "a.txt", "old_string": "x", "new_string": "y"}"#;
    let bash = r#"{"command": "ls"}"#;
    for (cli, ours, given, theirs, expected) in [
        ("claude", "read_file", read, "Read", json!({"file_path": "/r/a.txt"})),
        ("claude", "write_file", write, "Write", json!({"file_path": "/r/a.txt", "content": "x"})),
        ("claude", "edit_file", edit, "Edit", json!({"file_path": "/r/a.txt", "old_string": "x", "new_string": "y"})),
        ("claude", "bash", bash, "Bash", json!({"command": "ls"})),
        ("codex", "bash", bash, "exec_command", json!({"cmd": "ls"})),
        ("codex", "read_file", read, "exec_command", json!({"cmd": "cat 'a.txt'"})),
        ("codex", "write_file", write, "exec_command", json!({"cmd": "printf %s 'x' > 'a.txt'"})),
        ("gemini", "read_file", read, "read_file", json!({"file_path": "/r/a.txt"})),
        ("gemini", "write_file", write, "write_file", json!({"file_path": "/r/a.txt", "content": "x"})),
        (
            "gemini",
            "edit_file",
            edit,
            "replace",
            json!({"file_path": "/r/a.txt", "old_string": "x", "new_string": "y", "instruction": "from the script"}),
        ),
        ("gemini", "bash", bash, "run_shell_command", json!({"command": "ls"})),
        ("qwen", "edit_file", edit, "edit", json!({"file_path": "/r/a.txt", "old_string": "x", "new_string": "y"})),
        ("qwen", "bash", bash, "run_shell_command", json!({"command": "ls", "is_background": false})),
        ("opencode", "read_file", read, "read", json!({"filePath": "/r/a.txt"})),
        ("opencode", "write_file", write, "write", json!({"filePath": "/r/a.txt", "content": "x"})),
        ("opencode", "edit_file", edit, "edit", json!({"filePath": "/r/a.txt", "oldString": "x", "newString": "y"})),
        ("opencode", "bash", bash, "bash", json!({"command": "ls"})),
    ] {
        let (name, arguments) = translate(ours, given, &tools_of(cli), Some("/r/"));
        let CallArguments::Json(arguments) = arguments else { panic!("{cli} {ours}: {arguments:?}") };
        let arguments: Value = serde_json::from_str(&arguments).unwrap();
        assert_eq!((name.as_str(), arguments), (theirs, expected), "{cli} {ours}");
    }
}

#[test]
fn tool_of_a_client_is_found_behind_the_name_of_its_server() {
    let offered = [object("mcp__client__read_file", &["file_path"], &["file_path"]), object("my_read_file", &[], &[])];
    let (name, arguments) = translate("read_file", r#"{"file_path": "/a"}"#, &offered, None);
    assert_eq!(
        (name.as_str(), arguments),
        ("mcp__client__read_file", CallArguments::Json(r#"{"file_path":"/a"}"#.to_owned()))
    );
    assert_eq!(translate("write_file", r#"{"file_path": "/a"}"#, &offered, None).0, "write_file");
}

#[test]
fn file_is_written_by_patch_when_content_can_be_represented() {
    let (name, arguments) =
        translate("write_file", r#"{"path": "a.txt", "content": "one\n\ntwo\n"}"#, &tools_of("codex"), Some("/r"));
    let patch = "*** Begin Patch\n*** Add File: a.txt\n+one\n+\n+two\n*** End Patch\n";
    assert_eq!((name.as_str(), arguments), ("apply_patch", CallArguments::Freeform(patch.to_owned())));
}

#[test]
fn call_is_unchanged_when_no_translation_applies() {
    let odd = r#"{ "path" : "a.txt" }"#;
    for (cli, name, arguments) in [
        ("ours", "read_file", odd),
        ("unknown", "read_file", odd),
        ("claude", "WebSearch", r#"{"query": "x"}"#),
        ("claude", "read_file", "{not json"),
        ("codex", "read_file", r#"{"file": "a.txt"}"#),
        ("codex", "write_file", r#"{"path": "a.txt"}"#),
    ] {
        let expected = (name.to_owned(), CallArguments::Json(arguments.to_owned()));
        assert_eq!(translate(name, arguments, &tools_of(cli), Some("/r")), expected, "{cli} {name}");
    }
}

#[test]
fn command_is_a_list_when_schema_requires_an_array() {
    let schema = json!({"properties": {"command": {"type": "array"}}, "required": ["command"]});
    let offered = [OfferedTool { name: "shell".to_owned(), input: ToolInput::Object(schema) }];
    let (name, arguments) = translate("bash", r#"{"command": "ls"}"#, &offered, None);
    assert_eq!(
        (name.as_str(), arguments),
        ("shell", CallArguments::Json(r#"{"command":["bash","-lc","ls"]}"#.to_owned()))
    );
}

#[test]
fn paths_become_absolute_when_folder_is_known() {
    for (path, folder, expected) in [
        ("a.txt", Some("/r"), "/r/a.txt"),
        ("a.txt", Some("/"), "/a.txt"),
        ("/b/a.txt", Some("/r"), "/b/a.txt"),
        ("a.txt", None, "a.txt"),
    ] {
        assert_eq!(absolute(path, folder), expected);
    }
}

#[test]
fn commands_are_wrapped_in_code_when_client_only_runs_code() {
    let offered = [
        OfferedTool { name: "exec".into(), input: ToolInput::Text },
        OfferedTool { name: "wait".into(), input: ToolInput::Object(json!({})) },
    ];
    for (name, arguments, command) in [
        ("bash", r#"{"command": "echo \"hi\""}"#, "echo \"hi\"".to_owned()),
        ("read_file", r#"{"path": "a.txt"}"#, shell::read("a.txt")),
        ("write_file", r#"{"path": "a.txt", "content": "b\n"}"#, shell::write("a.txt", "b\n")),
    ] {
        let expected = format!("text(await tools.exec_command({}));", json!({"cmd": command}));
        assert_eq!(translate(name, arguments, &offered, None), ("exec".to_owned(), CallArguments::Freeform(expected)));
    }
}
