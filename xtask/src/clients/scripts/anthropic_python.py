"""anthropic-python over messages."""

import anthropic

from lab import RELAY_DESCRIPTION, RELAY_PARAMETERS, lighthouse_type, serve


def client(lab):
    return anthropic.Anthropic(base_url=lab.base, api_key=lab.key, timeout=lab.timeout or anthropic.NOT_GIVEN)


def models(lab):
    return [model.id for model in client(lab).models.list()]


def whole(lab, messages):
    message = client(lab).messages.create(model=lab.model, max_tokens=1000, messages=messages)
    return "".join(block.text for block in message.content if block.type == "text")


def stream(lab, messages):
    with client(lab).messages.stream(model=lab.model, max_tokens=1000, messages=messages) as events:
        yield from events.text_stream


def tools(lab, prompt, relay):
    tool = {"name": "relay", "description": RELAY_DESCRIPTION, "input_schema": RELAY_PARAMETERS}
    messages = [{"role": "user", "content": prompt}]
    while True:
        message = client(lab).messages.create(model=lab.model, max_tokens=1000, messages=messages, tools=[tool])
        if message.stop_reason != "tool_use":
            return "".join(block.text for block in message.content if block.type == "text")
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": relay(**block.input)}
            for block in message.content
            if block.type == "tool_use"
        ]
        messages += [{"role": "assistant", "content": message.content}, {"role": "user", "content": results}]


def schema(lab, prompt, _relay):
    messages = [{"role": "user", "content": prompt}]
    return client(lab).messages.parse(
        model=lab.model, max_tokens=1000, messages=messages, output_format=lighthouse_type()
    ).parsed_output


serve(models, whole, stream, tools=tools, schema=schema)
