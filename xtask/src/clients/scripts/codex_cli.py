"""Codex CLI over responses."""

from lab import serve
from lab_cli import interrupt, run


def args(lab, *more, sandbox="read-only"):
    provider = {
        "name": '"trunkline"',
        "base_url": f'"{lab.base}/v1"',
        "env_key": '"TRUNKLINE_KEY"',
        "wire_api": '"responses"',
    }
    if lab.timeout:
        provider["stream_idle_timeout_ms"] = str(lab.timeout * 1000)
    settings = [f"model_providers.trunkline.{name}={value}" for name, value in provider.items()]
    flags = [flag for setting in ['model_provider="trunkline"', *settings] for flag in ("-c", setting)]
    return ["codex", "exec", "--skip-git-repo-check", "--sandbox", sandbox, "-m", lab.model, *flags, *more]


def stream(lab, messages):
    return run(args(lab, messages[-1]["content"]), TRUNKLINE_KEY=lab.key)


def memory(lab, prompts):
    run(args(lab, prompts[0]), TRUNKLINE_KEY=lab.key)
    return run(args(lab, "resume", "--last", prompts[1]), TRUNKLINE_KEY=lab.key)


def cancel(lab, messages):
    return interrupt(lab, args(lab, messages[-1]["content"]), TRUNKLINE_KEY=lab.key)


def edit(lab, prompt):
    return run(args(lab, prompt, sandbox="workspace-write"), TRUNKLINE_KEY=lab.key)


serve(stream=stream, memory=memory, cancel=cancel, edit=edit)
