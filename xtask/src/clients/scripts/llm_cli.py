"""llm, the command line tool, over chat completions."""

from lab import serve
from lab_cli import interrupt, run, write


def args(lab, prompt, *more):
    folder = f"~/.config/io.datasette.llm/{lab.case}"
    model = f"- model_id: lab-model\n  model_name: {lab.model}\n  api_base: {lab.base}/v1\n  api_key_name: lab\n"
    write(f"{folder}/extra-openai-models.yaml", model)
    return ["llm", "prompt", "--model", "lab-model", "--key", lab.key, *more, prompt]


def environment(lab):
    import os

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


serve(whole=whole, stream=stream, memory=memory, cancel=cancel)
