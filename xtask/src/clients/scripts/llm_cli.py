"""llm, the command line tool, over chat completions."""

import json
import os

from lab import LIGHTHOUSE_SCHEMA, serve
from lab_cli import interrupt, run, write


def args(lab, prompt, *more):
    folder = f"~/.config/io.datasette.llm/{lab.case}"
    model = f"- model_id: lab-model\n  model_name: {lab.model}\n  api_base: {lab.base}/v1\n  api_key_name: lab\n"
    model += "  supports_tools: true\n  supports_schema: true\n"
    write(f"{folder}/extra-openai-models.yaml", model)
    return ["llm", "prompt", "--model", "lab-model", "--key", lab.key, *more, prompt]


def environment(lab):
    return {"LLM_USER_PATH": os.path.expanduser(f"~/.config/io.datasette.llm/{lab.case}")}


def whole(lab, messages):
    return run(args(lab, messages[-1]["content"], "--no-stream"), **environment(lab))


def stream(lab, messages):
    # The tool prints deltas as they come; its output is one text.
    return run(args(lab, messages[-1]["content"]), **environment(lab))


def memory(lab, prompts):
    run(args(lab, prompts[0]), **environment(lab))
    return run(args(lab, prompts[1], "--continue"), **environment(lab))


def cancel(lab, messages):
    return interrupt(lab, args(lab, messages[-1]["content"]), **environment(lab))


def tools(lab, prompt, relay):
    # The function runs in the program. What it was called with is in a file.
    calls = os.path.expanduser("~/calls.txt")
    function = f'''
def relay(text: str) -> str:
    "Relays a text, and returns the reply."
    with open({calls!r}, "a") as file:
        print(text, file=file)
    return "{lab.token}-" + text
'''
    answer = run(args(lab, prompt, "--functions", function), **environment(lab))
    with open(calls) as file:
        for text in file.read().splitlines():
            relay(text)
    return answer


def schema(lab, prompt, _relay):
    return run(args(lab, prompt, "--schema", json.dumps(LIGHTHOUSE_SCHEMA)), **environment(lab))


serve(whole=whole, stream=stream, memory=memory, cancel=cancel, tools=tools, schema=schema)
