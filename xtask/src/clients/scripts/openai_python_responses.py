"""openai-python over responses; the second turn names the first response."""

import json

import openai

from lab import RELAY_DESCRIPTION, RELAY_PARAMETERS, lighthouse_type, serve


def client(lab):
    return openai.OpenAI(base_url=f"{lab.base}/v1", api_key=lab.key, timeout=lab.timeout or openai.NOT_GIVEN)


def models(lab):
    return [model.id for model in client(lab).models.list()]


def whole(lab, messages):
    return client(lab).responses.create(model=lab.model, input=messages).output_text


def stream(lab, messages):
    with client(lab).responses.stream(model=lab.model, input=messages) as events:
        for event in events:
            if event.type == "response.output_text.delta":
                yield event.delta
        # The helper has put the whole response together from the events.
        if not events.get_final_response().output_text:
            raise RuntimeError("the final response has no text")


def memory(lab, prompts):
    first = client(lab).responses.create(model=lab.model, input=prompts[0])
    return client(lab).responses.create(model=lab.model, input=prompts[1], previous_response_id=first.id).output_text


def tools(lab, prompt, relay):
    function = {"type": "function", "name": "relay", "description": RELAY_DESCRIPTION, "parameters": RELAY_PARAMETERS}
    request = {"model": lab.model, "tools": [function]}
    response = client(lab).responses.create(input=prompt, **request)
    while calls := [item for item in response.output if item.type == "function_call"]:
        results = [
            {"type": "function_call_output", "call_id": call.call_id, "output": relay(**json.loads(call.arguments))}
            for call in calls
        ]
        response = client(lab).responses.create(input=results, previous_response_id=response.id, **request)
    return response.output_text


def schema(lab, prompt, _relay):
    return client(lab).responses.parse(model=lab.model, input=prompt, text_format=lighthouse_type()).output_parsed


serve(models, whole, stream, memory, tools=tools, schema=schema)
