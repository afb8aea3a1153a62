"""instructor over chat completions. Without a `response_model`: CLIs answer with text, not with JSON of a schema."""

import instructor
import openai

from lab import serve


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


serve(whole=whole, stream=stream)
