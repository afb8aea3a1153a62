"""instructor over chat completions. Most cases are without a `response_model`: a text is enough for them."""

import instructor
import openai

from lab import lighthouse_type, serve


def client(lab):
    return instructor.from_openai(
        openai.OpenAI(base_url=f"{lab.base}/v1", api_key=lab.key, timeout=lab.timeout or openai.NOT_GIVEN)
    )


def whole(lab, messages):
    answer = client(lab).chat.completions.create(model=lab.model, messages=messages, response_model=None)
    return answer.choices[0].message.content


def stream(lab, messages):
    chunks = client(lab).chat.completions.create(model=lab.model, messages=messages, response_model=None, stream=True)
    with chunks:
        for chunk in chunks:
            if chunk.choices:
                yield chunk.choices[0].delta.content


def schema(lab, prompt, _relay):
    messages = [{"role": "user", "content": prompt}]
    return client(lab).chat.completions.create(model=lab.model, messages=messages, response_model=lighthouse_type())


serve(whole=whole, stream=stream, schema=schema)
