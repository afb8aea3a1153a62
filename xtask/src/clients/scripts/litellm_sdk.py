"""LiteLLM's SDK over chat completions."""

import json

import litellm

from lab import RELAY_DESCRIPTION, RELAY_PARAMETERS, lighthouse_type, serve

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


def tools(lab, prompt, relay):
    function = {"name": "relay", "description": RELAY_DESCRIPTION, "parameters": RELAY_PARAMETERS}
    messages = [{"role": "user", "content": prompt}]
    while True:
        message = complete(lab, messages, tools=[{"type": "function", "function": function}]).choices[0].message
        if not message.tool_calls:
            return message.content
        messages.append(message)
        for call in message.tool_calls:
            result = relay(**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})


def schema(lab, prompt, _relay):
    lighthouse = lighthouse_type()
    answer = complete(lab, [{"role": "user", "content": prompt}], response_format=lighthouse)
    return lighthouse.model_validate_json(answer.choices[0].message.content)


serve(models, whole, stream, tools=tools, schema=schema)
