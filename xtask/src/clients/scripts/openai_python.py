"""openai-python over chat completions."""

import json

import openai

from lab import RELAY_DESCRIPTION, RELAY_PARAMETERS, lighthouse_type, serve


def client(lab):
    return openai.OpenAI(base_url=f"{lab.base}/v1", api_key=lab.key, timeout=lab.timeout or openai.NOT_GIVEN)


def models(lab):
    return [model.id for model in client(lab).models.list()]


def whole(lab, messages):
    return client(lab).chat.completions.create(model=lab.model, messages=messages).choices[0].message.content


def stream(lab, messages):
    with client(lab).chat.completions.create(model=lab.model, messages=messages, stream=True) as chunks:
        for chunk in chunks:
            if chunk.choices:
                yield chunk.choices[0].delta.content


def tools(lab, prompt, relay):
    function = {"name": "relay", "description": RELAY_DESCRIPTION, "parameters": RELAY_PARAMETERS}
    messages = [{"role": "user", "content": prompt}]
    while True:
        answer = client(lab).chat.completions.create(
            model=lab.model, messages=messages, tools=[{"type": "function", "function": function}]
        )
        message = answer.choices[0].message
        if not message.tool_calls:
            return message.content
        messages.append(message)
        for call in message.tool_calls:
            result = relay(**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})


def schema(lab, prompt, _relay):
    messages = [{"role": "user", "content": prompt}]
    answer = client(lab).chat.completions.parse(
        model=lab.model, messages=messages, response_format=lighthouse_type()
    )
    return answer.choices[0].message.parsed


serve(models, whole, stream, tools=tools, schema=schema)
