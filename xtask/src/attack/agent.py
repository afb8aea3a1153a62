"""An agent CLI that runs a script and speaks Claude Code's protocol, for one turn or as a warm process for several."""

import json
import os
import re
import subprocess
import sys


def work(prompt):
    """Runs the script that the prompt names and returns its output."""
    folder = os.path.dirname(os.path.abspath(__file__))
    script = re.findall(r"run the script (\w+)", prompt)[-1]
    ran = subprocess.run(["sh", f"{folder}/{script}.sh"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    return ran.stdout.decode(errors="replace")[-4000:]


def send(message):
    print(json.dumps(message), flush=True)


def result(text):
    send({"type": "result", "subtype": "success", "is_error": False, "result": text or "done", "session_id": "0190a1b2-0000-7000-8000-000000000001"})


if "--input-format" in sys.argv:
    for line in sys.stdin:
        message = json.loads(line)
        if message["type"] == "control_request":
            send({"type": "control_response", "response": {"subtype": "success", "request_id": message["request_id"], "response": {}}})
            open(os.path.expanduser("~/.claude/ready"), "w").close()
        elif message["type"] == "user":
            result(work(message["message"]["content"]))
else:
    result(work(sys.stdin.read()))
