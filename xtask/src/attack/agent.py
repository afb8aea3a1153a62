"""An agent CLI that does what a script says: Claude Code's words, started for a turn or kept for several."""

import json
import os
import re
import subprocess
import sys


def work(prompt):
    """Runs the script that the prompt names, and returns what it printed."""
    folder = os.path.dirname(os.path.abspath(__file__))
    script = re.findall(r"run the script (\w+)", prompt)[-1]
    ran = subprocess.run(["sh", f"{folder}/{script}.sh"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    return ran.stdout.decode(errors="replace")[-4000:]


def say(message):
    print(json.dumps(message), flush=True)


def result(text):
    say({"type": "result", "subtype": "success", "is_error": False, "result": text or "done", "session_id": "0190a1b2-0000-7000-8000-000000000001"})


if "--input-format" in sys.argv:
    for line in sys.stdin:
        message = json.loads(line)
        if message["type"] == "control_request":
            say({"type": "control_response", "response": {"subtype": "success", "request_id": message["request_id"], "response": {}}})
            open(os.path.expanduser("~/.claude/ready"), "w").close()
        elif message["type"] == "user":
            result(work(message["message"]["content"]))
else:
    result(work(sys.stdin.read()))
