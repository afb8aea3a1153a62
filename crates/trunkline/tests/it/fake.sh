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

# A provider of the protocol: what it was asked to do is `$1` of each.
answers() {
    case $1 in
    health) echo OK ;;
    generate)
        printf '{"content":"%s","tokens_used":5,"input_tokens":3,"output_tokens":2,"model":"fake","latency":1,"finish_reason":"stop","error":"","provider":"fake"}\n' "$2"
        ;;
    stream)
        printf '{"content":"%s","delta":"%s","done":false,"tokens_used":0,"error":"","timestamp":"2025-01-07T10:30:00Z"}\n' "$2" "$2"
        printf '{"content":"%s","delta":"","done":true,"tokens_used":5,"error":"","timestamp":"2025-01-07T10:30:00Z"}\n' "$2"
        ;;
    esac
}
refuses() {
    [ "$1" = health ] && exit 1
    printf '{"content":"","delta":"","done":true,"tokens_used":0,"model":"fake","error":"%s","timestamp":"2025-01-07T10:30:00Z"}\n' "$2"
    exit 1
}

# Counts its own runs: prints the number of this one.
counted() {
    echo >>"$seen/$cli.runs"
    wc -l <"$seen/$cli.runs" | tr -d ' '
}
