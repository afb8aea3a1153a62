# Functions for all fake CLIs. The variables `cli` (the name of the CLI), `seen` (the folder of notes that it shares
# with its test) and `fixtures` (recorded output of real CLIs) are set before this file is read.

# Records the arguments, input, environment and working directory.
note() {
    for arg in "$@"; do printf '%s\0' "$arg"; done >"$seen/$cli.argv"
    cat >"$seen/$cli.stdin"
    env >"$seen/$cli.env"
    pwd >"$seen/$cli.cwd"
}

# Replays a recording: prints the recorded bytes and exits with the recorded status.
replay() {
    if [ -f "$fixtures/$1/stderr" ]; then cat "$fixtures/$1/stderr" >&2; fi
    cat "$fixtures/$1/stdout"
    exit "$(cat "$fixtures/$1/exit")"
}

# Leaves a note for the test. The rename makes the note appear atomically.
tell() {
    printf '%s\n' "$2" >"$seen/.$1"
    mv "$seen/.$1" "$seen/$1"
}

# Waits for a note from the test.
await() {
    until [ -e "$seen/$1" ]; do sleep 0.02; done
}

# Never exits by itself.
hang() {
    while :; do sleep 1000; done
}

# A message in codex's output format, the end of its turn, and both.
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

# Replies of an executable provider, one that answers and one that fails. `$1` is the provider's own first argument
# (health, generate or stream), `$2` the answer or the error.
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

# Counts the runs of this CLI: prints the number of the current one, starting with 1.
counted() {
    echo >>"$seen/$cli.runs"
    # Two processes that count lines at the same time could get the same number.
    number=1
    until mkdir "$seen/.$cli.number.$number" 2>/dev/null; do number=$((number + 1)); done
    echo "$number"
}
