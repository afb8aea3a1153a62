"""Continue's command line, cn, over chat completions."""

import os

from lab import serve
from lab_cli import interrupt, run, write


def args(lab, prompt, *more):
    model = {"name": lab.model, "provider": "openai", "model": lab.model, "roles": ["chat"]}
    model |= {"apiBase": f"{lab.base}/v1", "apiKey": lab.key}
    if lab.timeout:
        # In seconds, says its documentation. It passes the number on to openai-node, which takes it as milliseconds.
        model["requestOptions"] = {"timeout": lab.timeout * 1000}
    # JSON is YAML.
    config = f"~/continue-{lab.case}.yaml"
    write(config, {"name": "lab", "version": "1.0.0", "schema": "v1", "models": [model]})
    return ["cn", "--config", os.path.expanduser(config), *more, "--print", prompt]


ENVIRONMENT = {"CONTINUE_TELEMETRY_ENABLED": "0"}


def stream(lab, messages):
    return run(args(lab, messages[-1]["content"]), **ENVIRONMENT)


def memory(lab, prompts):
    run(args(lab, prompts[0]), **ENVIRONMENT)
    return run(args(lab, prompts[1], "--resume"), **ENVIRONMENT)


def cancel(lab, messages):
    return interrupt(lab, args(lab, messages[-1]["content"]), **ENVIRONMENT)


def edit(lab, prompt):
    return run(args(lab, prompt, "--auto"), **ENVIRONMENT)


serve(stream=stream, memory=memory, cancel=cancel, edit=edit)
