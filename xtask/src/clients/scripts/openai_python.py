"""openai-python over chat completions."""

import openai

from lab import serve


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


serve(models, whole, stream)
