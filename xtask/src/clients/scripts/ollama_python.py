"""ollama-python over Ollama's API."""

import ollama

from lab import lighthouse_type, serve


def client(lab):
    return ollama.Client(host=lab.base, headers={"Authorization": f"Bearer {lab.key}"}, timeout=lab.timeout)


def models(lab):
    return [model.model for model in client(lab).list().models]


def whole(lab, messages):
    return client(lab).chat(model=lab.model, messages=messages).message.content


def stream(lab, messages):
    parts = client(lab).chat(model=lab.model, messages=messages, stream=True)
    try:
        for part in parts:
            yield part.message.content
    finally:
        parts.close()


def tools(lab, prompt, relay):
    messages = [{"role": "user", "content": prompt}]
    while True:
        message = client(lab).chat(model=lab.model, messages=messages, tools=[relay]).message
        if not message.tool_calls:
            return message.content
        messages.append(message)
        for call in message.tool_calls:
            result = relay(**call.function.arguments)
            messages.append({"role": "tool", "tool_name": call.function.name, "content": result})


def schema(lab, prompt, _relay):
    lighthouse = lighthouse_type()
    messages = [{"role": "user", "content": prompt}]
    answer = client(lab).chat(model=lab.model, messages=messages, format=lighthouse.model_json_schema())
    return lighthouse.model_validate_json(answer.message.content)


serve(models, whole, stream, tools=tools, schema=schema)
