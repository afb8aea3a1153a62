"""aider over chat completions."""

from lab import serve
from lab_cli import interrupt, run


def args(lab, prompt, *more):
    quiet = ["--no-check-update", "--analytics-disable", "--no-show-model-warnings", "--no-show-release-notes"]
    plain = ["--no-pretty", "--yes-always", "--no-git", "--no-gitignore", "--map-tokens", "0", "--no-suggest-shell-commands"]
    history = ["--chat-history-file", f"history-{lab.case}.md"]
    timeout = ["--timeout", str(lab.timeout)] if lab.timeout else []
    model = ["--model", f"openai/{lab.model}", "--chat-mode", "ask"]
    return ["aider", *quiet, *plain, *history, *timeout, *model, *more, "--message", prompt]


def environment(lab):
    return {"OPENAI_API_BASE": f"{lab.base}/v1", "OPENAI_API_KEY": lab.key}


def checked(text):
    # aider exits with 0 after an error of the API.
    for wording in ["litellm.", "Retrying in"]:
        if wording in text:
            raise RuntimeError(text)
    return text


def models(lab):
    return run(["aider", "--no-check-update", "--analytics-disable", "--list-models", "lab"], **environment(lab)).split()


def whole(lab, messages):
    return checked(run(args(lab, messages[-1]["content"], "--no-stream"), **environment(lab)))


def stream(lab, messages):
    return checked(run(args(lab, messages[-1]["content"]), **environment(lab)))


def memory(lab, prompts):
    checked(run(args(lab, prompts[0]), **environment(lab)))
    return checked(run(args(lab, prompts[1], "--restore-chat-history"), **environment(lab)))


def cancel(lab, messages):
    return interrupt(lab, args(lab, messages[-1]["content"]), **environment(lab))


serve(whole=whole, stream=stream, memory=memory, cancel=cancel)
