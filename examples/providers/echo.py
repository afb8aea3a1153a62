#!/usr/bin/env python3
"""A provider in Python: it answers with the prompt."""
import datetime, json, re, sys, time


def say(**members):
    print(json.dumps(members), flush=True)  # one object, one line, at once


def main(command):
    began = time.monotonic_ns()
    if command == "health":
        return print("OK")
    if command not in ("generate", "stream"):
        say(error="unknown command: use generate, stream or health")
        return 2
    try:
        request = json.load(sys.stdin.buffer)
        words = re.findall(r"\s*\S+\s*|^\s*$", request["prompt"])
    except (ValueError, LookupError, TypeError) as error:
        say(error=f"invalid request: {error!r}")
        return 1
    model = (request.get("config") or {}).get("model", "echo")
    if command == "generate":
        say(content="".join(words), tokens_used=2 * len(words), input_tokens=len(words), output_tokens=len(words),
            model=model, latency=time.monotonic_ns() - began, finish_reason="stop", provider="echo.py")
        return 0
    for end in range(1, len(words) + 1):
        now = datetime.datetime.now(datetime.timezone.utc).isoformat()
        say(content="".join(words[:end]), delta=words[end - 1], done=end == len(words), tokens_used=2 * end, timestamp=now)


sys.exit(main(sys.argv[-1]))
