"""opencode over chat completions, with its provider for OpenAI-compatible services."""

import json

from lab import serve
from lab_cli import interrupt, run


def args(lab, prompt, *more):
    return ["opencode", "run", "--model", f"trunkline/{lab.model}", *more, prompt]


def environment(lab):
    options = {"baseURL": f"{lab.base}/v1", "apiKey": lab.key}
    if lab.timeout:
        options["timeout"] = lab.timeout * 1000
    provider = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": {lab.model: {}}}
    config = {"provider": {"trunkline": provider}, "share": "disabled", "autoupdate": False}
    return {
        "OPENCODE_CONFIG_CONTENT": json.dumps(config),
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
    }


def stream(lab, messages):
    return run(args(lab, messages[-1]["content"]), **environment(lab))


def memory(lab, prompts):
    run(args(lab, prompts[0]), **environment(lab))
    return run(args(lab, prompts[1], "--continue"), **environment(lab))


def cancel(lab, messages):
    return interrupt(lab, args(lab, messages[-1]["content"]), **environment(lab))


def edit(lab, prompt):
    return run(args(lab, prompt, "--auto"), **environment(lab))


serve(stream=stream, memory=memory, cancel=cancel, edit=edit)
