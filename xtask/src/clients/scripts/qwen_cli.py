"""Qwen Code over chat completions."""

from lab import serve
from lab_cli import interrupt, run, write


def args(prompt, *more, approval="default"):
    return ["qwen", "--approval-mode", approval, *more, "--prompt", prompt]


def environment(lab):
    write("~/.qwen/settings.json", {"privacy": {"usageStatisticsEnabled": False}, **settings(lab)})
    return {"OPENAI_BASE_URL": f"{lab.base}/v1", "OPENAI_API_KEY": lab.key, "OPENAI_MODEL": lab.model}


def settings(lab):
    # In milliseconds.
    return {"model": {"generationConfig": {"timeout": lab.timeout * 1000}}} if lab.timeout else {}


def stream(lab, messages):
    return run(args(messages[-1]["content"]), **environment(lab))


def memory(lab, prompts):
    run(args(prompts[0]), **environment(lab))
    return run(args(prompts[1], "--continue"), **environment(lab))


def cancel(lab, messages):
    return interrupt(lab, args(messages[-1]["content"]), **environment(lab))


def edit(lab, prompt):
    return run(args(prompt, approval="auto-edit"), **environment(lab))


serve(stream=stream, memory=memory, cancel=cancel, edit=edit)
