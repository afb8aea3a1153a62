"""LiteLLM's SDK over chat completions."""

import litellm

from lab import serve

litellm.suppress_debug_info = True


def complete(lab, messages, **more):
    return litellm.completion(
        model=f"openai/{lab.model}",
        api_base=f"{lab.base}/v1",
        api_key=lab.key,
        messages=messages,
        timeout=lab.timeout,
        **more,
    )


def models(lab):
    return litellm.get_valid_models(
        check_provider_endpoint=True, custom_llm_provider="openai", api_key=lab.key, api_base=lab.base
    )


def whole(lab, messages):
    return complete(lab, messages).choices[0].message.content


def stream(lab, messages):
    chunks = complete(lab, messages, stream=True)
    try:
        for chunk in chunks:
            if chunk.choices:
                yield chunk.choices[0].delta.content
    finally:
        # The wrapper has no `close`; the SDK's own stream below it has.
        chunks.completion_stream.close()


serve(models, whole, stream)
