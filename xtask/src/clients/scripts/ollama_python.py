"""ollama-python over Ollama's API."""

import ollama

from lab import serve


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


serve(models, whole, stream)
