"""google-genai over Gemini's API."""

from google import genai
from google.genai import types

from lab import lighthouse_type, serve


def client(lab):
    # In milliseconds.
    options = types.HttpOptions(base_url=lab.base, timeout=lab.timeout and lab.timeout * 1000)
    return genai.Client(api_key=lab.key, http_options=options)


def contents(messages):
    roles = {"user": "user", "assistant": "model"}
    return [
        types.Content(role=roles[message["role"]], parts=[types.Part(text=message["content"])]) for message in messages
    ]


def models(lab):
    # A client that is not held in a variable closes its connections too early, here and below.
    google = client(lab)
    return [model.name.removeprefix("models/") for model in google.models.list()]


def whole(lab, messages):
    google = client(lab)
    return google.models.generate_content(model=lab.model, contents=contents(messages)).text


def stream(lab, messages):
    google = client(lab)
    chunks = google.models.generate_content_stream(model=lab.model, contents=contents(messages))
    try:
        for chunk in chunks:
            yield chunk.text
    finally:
        chunks.close()


def tools(lab, prompt, relay):
    # The SDK calls the function by itself.
    google = client(lab)
    config = types.GenerateContentConfig(tools=[relay])
    return google.models.generate_content(model=lab.model, contents=prompt, config=config).text


def schema(lab, prompt, _relay):
    google = client(lab)
    config = types.GenerateContentConfig(
        response_mime_type="application/json", response_schema=lighthouse_type()
    )
    return google.models.generate_content(model=lab.model, contents=prompt, config=config).parsed


serve(models, whole, stream, tools=tools, schema=schema)
