#!/bin/sh
# A provider in shell: it answers with the prompt. Needs sh, awk and date.
case $1 in
health) echo OK; exit 0 ;;
generate | stream) ;;
*) echo '{"error":"unknown command: use generate, stream or health"}'; exit 2 ;;
esac
LC_ALL=C awk -v command="$1" -v began="$(date +%s)" -v now="$(date -u +%Y-%m-%dT%H:%M:%SZ)" '
function fail(why) { print "{\"error\":\"invalid request: " why "\"}"; exit 1 }
function chunk(so_far, delta, done) {
    print "{\"content\":\"" so_far "\",\"delta\":\"" delta "\",\"done\":" done ",\"tokens_used\":" tokens ",\"timestamp\":\"" now "\"}"
}
{ text = text $0 "\n" }
END {
    hex = "[0-9A-Fa-f]"; value = "(\"\"|0)"; pair = "\"\":" value
    string = "\"([^\"\\\\[:cntrl:]]|\\\\[\"\\\\/bfnrt]|\\\\u" hex hex hex hex ")*\""
    shape = text # Is it JSON? Strings become "", other values 0, and lists and objects of those 0, until one is left.
    gsub(string, "\"\"", shape)
    gsub(/-?[0-9]+([.][0-9]+)?([eE][-+]?[0-9]+)?|true|false|null/, "0", shape)
    gsub(/[ \t\r\n]/, "", shape)
    while (gsub("\\[(" value "(," value ")*)?\\]|[{](" pair "(," pair ")*)?[}]", "0", shape)) continue
    if (shape != "0") fail("stdin is not JSON")
    # The first member called prompt. Its string stays escaped: it goes out exactly as it came in.
    if (!match(text, "\"prompt\"[ \t\r\n]*:[ \t\r\n]*" string)) fail("prompt is missing")
    prompt = substr(text, RSTART, RLENGTH - 1)
    sub(/^"prompt"[^"]*"/, "", prompt)
    tokens = int(length(prompt) / 4) + 1 # a guess
    if (command == "stream") {
        space = index(prompt, " ") # no escape has a space in it, so none is cut in two
        if (space) chunk(substr(prompt, 1, space), substr(prompt, 1, space), "false")
        chunk(prompt, substr(prompt, space + 1), "true")
        exit 0
    }
    "date +%s" | getline ended
    printf "{\"model\":\"echo\",\"provider\":\"echo.sh\",\"finish_reason\":\"stop\",\"tokens_used\":%d,", tokens
    printf "\"latency\":%.0f,\"content\":\"", (ended - began) * 1000000000 # in nanoseconds
    print prompt "\"}"
}'
