#!/usr/bin/env python3
"""A provider in Python: it answers with the prompt."""
import datetime, json, sys, time


def say(**members):
    print(json.dumps(members), flush=True)  # one object, one line, at once


def main(command):
    began = time.monotonic_ns()
    if command == "health":
        return print("OK")
    if command not in ("generate", "stream"):
        return say(error="unknown command: use generate, stream or health") or 2
    try:
        request = json.load(sys.stdin.buffer)
        lines = request["prompt"].splitlines(keepends=True) or [""]
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        return say(error=f"invalid request: {error!r}") or 1
    model = (request.get("config") or {}).get("model", "echo")
    if command == "generate":
        return say(content="".join(lines), tokens_used=0, model=model, latency=time.monotonic_ns() - began,
                   finish_reason="stop", provider="echo.py")
    for end in range(1, len(lines) + 1):
        now = datetime.datetime.now(datetime.timezone.utc).isoformat()
        say(content="".join(lines[:end]), delta=lines[end - 1], done=end == len(lines), tokens_used=0, timestamp=now)


sys.exit(main(sys.argv[-1]))
