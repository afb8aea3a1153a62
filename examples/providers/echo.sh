#!/bin/sh
# A provider in shell: it answers with the prompt. Needs jq, which reads the request and writes the answer.
began=$(date +%s)
fail() { jq -nc --arg error "$1" '{$error}'; exit 1; }
case $1 in
health) echo OK; exit ;;
generate | stream) ;;
*) fail 'unknown command: use generate, stream or health' ;;
esac
request=$(jq -c . 2>/dev/null) && [ -n "$request" ] || fail 'invalid request: stdin is not JSON'
prompt=$(printf %s "$request" | jq -e '.prompt | strings') || fail 'invalid request: prompt is missing'
if [ "$1" = generate ]; then
    printf %s "$prompt" | jq -c --argjson seconds $(($(date +%s) - began)) \
        '{content: ., tokens_used: 0, model: "echo", latency: ($seconds * 1000000000),
          finish_reason: "stop", provider: "echo.sh"}'
else # a line for each half; a real one prints a line whenever it has more
    printf %s "$prompt" | jq -c --unbuffered '(length / 2 | floor) as $half
        | {content: .[:$half], delta: .[:$half], done: false}, {content: ., delta: .[$half:], done: true}
        | . + {tokens_used: 0, timestamp: (now | todate)}'
fi
