"""Cline's command line over chat completions, with its provider for OpenAI-compatible services."""

import json

from lab import serve
from lab_cli import interrupt, run, write


def args(lab, prompt, *more):
    provider = "openai-compatible"
    settings = {"provider": provider, "apiKey": lab.key, "model": lab.model, "baseUrl": f"{lab.base}/v1"}
    providers = {provider: {"settings": settings, "updatedAt": "2026-01-01T00:00:00.000Z", "tokenSource": "manual"}}
    file = {"version": 1, "lastUsedProvider": provider, "modes": {}, "providers": providers}
    write("~/.cline/data/settings/providers.json", file)
    return ["cline", "--provider", provider, "--model", lab.model, *more, prompt]


def stream(lab, messages):
    return run(args(lab, messages[-1]["content"]))


def memory(lab, prompts):
    run(args(lab, prompts[0]))
    sessions = json.loads(run(["cline", "history", "--json"]))
    session = next(session["sessionId"] for session in sessions if prompts[0] in session["prompt"])
    return run(args(lab, prompts[1], "--id", session))


def cancel(lab, messages):
    return interrupt(lab, args(lab, messages[-1]["content"]))


def edit(lab, prompt):
    return run(args(lab, prompt))


serve(stream=stream, memory=memory, cancel=cancel, edit=edit)
