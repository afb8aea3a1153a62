"""Claude Code over messages."""

from lab import serve
from lab_cli import interrupt, run


def args(lab, prompt, *more):
    return ["claude", "--print", "--model", lab.model, *more, prompt]


def environment(lab):
    variables = {
        "ANTHROPIC_BASE_URL": lab.base,
        "ANTHROPIC_AUTH_TOKEN": lab.key,
        # Titles and the like would go to a model name of Anthropic's.
        "ANTHROPIC_SMALL_FAST_MODEL": lab.model,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }
    if lab.timeout:
        variables["API_TIMEOUT_MS"] = str(lab.timeout * 1000)
    return variables


def stream(lab, messages):
    return run(args(lab, messages[-1]["content"]), **environment(lab))


def memory(lab, prompts):
    run(args(lab, prompts[0]), **environment(lab))
    return run(args(lab, prompts[1], "--continue"), **environment(lab))


def cancel(lab, messages):
    return interrupt(lab, args(lab, messages[-1]["content"]), **environment(lab))


def edit(lab, prompt):
    return run(args(lab, prompt, "--permission-mode", "acceptEdits"), **environment(lab))


serve(stream=stream, memory=memory, cancel=cancel, edit=edit)
