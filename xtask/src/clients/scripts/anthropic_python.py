"""anthropic-python over messages."""

import anthropic

from lab import serve


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


serve(models, whole, stream)
