# What every fake CLI can do. It is told: `cli`, its name; `seen`, the folder of notes it shares with its test; and
# `fixtures`, what real CLIs printed.

# Notes what it was given: arguments, input, environment, folder.
note() {
    for arg in "$@"; do printf '%s\0' "$arg"; done >"$seen/$cli.argv"
    cat >"$seen/$cli.stdin"
    env >"$seen/$cli.env"
    pwd >"$seen/$cli.cwd"
}

# Does as a real one did: prints the recorded bytes and ends with the recorded status.
replay() {
    if [ -f "$fixtures/$1/stderr" ]; then cat "$fixtures/$1/stderr" >&2; fi
    cat "$fixtures/$1/stdout"
    exit "$(cat "$fixtures/$1/exit")"
}

# Leaves a note for the test, whole or not at all.
tell() {
    printf '%s\n' "$2" >"$seen/.$1"
    mv "$seen/.$1" "$seen/$1"
}

# Waits for a note of the test.
await() {
    until [ -e "$seen/$1" ]; do sleep 0.02; done
}

# Never ends by itself.
hang() {
    while :; do sleep 1000; done
}

# One message in codex's words, and the end of its turn.
codex_says() {
    printf '{"type":"item.completed","item":{"id":"item_0","type":"agent_message","text":"%s"}}\n' "$1"
}
codex_ends() {
    printf '{"type":"turn.completed","usage":{"input_tokens":3,"cached_input_tokens":0,"output_tokens":2}}\n'
}
codex_answers() {
    codex_says "$1"
    codex_ends
}
