"""Gemini CLI over Gemini's API."""

from lab import serve
from lab_cli import interrupt, run, write


def args(lab, prompt, *more):
    return ["gemini", "--skip-trust", "--model", lab.model, *more, "--prompt", prompt]


def environment(lab):
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "privacy": {"usageStatisticsEnabled": False},
    }
    write("~/.gemini/settings.json", settings)
    return {"GEMINI_API_KEY": lab.key, "GOOGLE_GEMINI_BASE_URL": lab.base}


def stream(lab, messages):
    return run(args(lab, messages[-1]["content"]), **environment(lab))


def memory(lab, prompts):
    run(args(lab, prompts[0]), **environment(lab))
    return run(args(lab, prompts[1], "--resume", "latest"), **environment(lab))


def cancel(lab, messages):
    return interrupt(lab, args(lab, messages[-1]["content"]), **environment(lab))


def edit(lab, prompt):
    return run(args(lab, prompt, "--approval-mode", "auto_edit"), **environment(lab))


serve(stream=stream, memory=memory, cancel=cancel, edit=edit)
