"""What the scripts of command-line clients share: starting the program, and Ctrl+C."""

import json
import os
import signal
import subprocess
import time
import urllib.request

# A program that hangs fails its case.
PROGRAM_TIMEOUT = 120


def run(args, stdin=None, **environment):
    """Runs a program to its end; returns what it prints. A status other than 0 is an error with everything it printed."""
    program = start(args, stdin, environment)
    out, err = finish(program)
    if program.returncode != 0:
        raise RuntimeError(f"exit status {program.returncode}: {err} {out}")
    return out


def start(args, stdin=None, environment=None):
    program = subprocess.Popen(
        args,
        stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(environment or {})},
        start_new_session=True,
    )
    if stdin is not None:
        program.stdin.write(stdin)
        program.stdin.close()
        program.stdin = None
    return program


def finish(program):
    try:
        return program.communicate(timeout=PROGRAM_TIMEOUT)
    except subprocess.TimeoutExpired:
        os.killpg(program.pid, signal.SIGKILL)
        out, err = program.communicate()
        raise RuntimeError(f"no end after {PROGRAM_TIMEOUT} s: {err} {out}") from None


def interrupt(lab, args, stdin=None, **environment):
    """Starts a program, and sends it what Ctrl+C sends as soon as the gateway runs its request."""
    program = start(args, stdin, environment)
    deadline = time.monotonic() + PROGRAM_TIMEOUT
    while not is_running(lab):
        if program.poll() is not None or time.monotonic() > deadline:
            program.kill()
            out, err = program.communicate()
            raise RuntimeError(f"the gateway has not started a run: {err} {out}")
        time.sleep(0.05)
    # The run has started; let it say something.
    time.sleep(0.5)
    os.killpg(program.pid, signal.SIGINT)
    try:
        program.communicate(timeout=10)
    except subprocess.TimeoutExpired:
        # Most programs ask for a second Ctrl+C. The run is cancelled all the same.
        os.killpg(program.pid, signal.SIGINT)
        try:
            program.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            os.killpg(program.pid, signal.SIGKILL)
            raise RuntimeError("Ctrl+C does not end the program") from None
    return f"interrupted, exit status {program.returncode}"


def is_running(lab):
    request = urllib.request.Request(f"{lab.base}/v1/runs", headers={"Authorization": f"Bearer {lab.key}"})
    with urllib.request.urlopen(request) as reply:
        return any(run["state"] == "running" for run in json.load(reply)["data"])


def write(path, text):
    path = os.path.expanduser(path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text if isinstance(text, str) else json.dumps(text))
