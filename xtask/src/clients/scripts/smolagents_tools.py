"""smolagents over chat completions. Its agents send the results of tools as text."""

from smolagents import ChatMessage, OpenAIModel, ToolCallingAgent, tool

from lab import LIGHTHOUSE_SCHEMA, serve


def model(lab):
    return OpenAIModel(
        model_id=lab.model,
        api_base=f"{lab.base}/v1",
        api_key=lab.key,
        client_kwargs={"timeout": lab.timeout} if lab.timeout else {},
    )


def whole(lab, messages):
    return model(lab).generate([ChatMessage.from_dict(message) for message in messages]).content


def stream(lab, messages):
    deltas = model(lab).generate_stream([ChatMessage.from_dict(message) for message in messages])
    try:
        for delta in deltas:
            yield delta.content
    finally:
        deltas.close()


def tools(lab, prompt, relay):
    return ToolCallingAgent(tools=[tool(relay)], model=model(lab), verbosity_level=0).run(prompt)


def schema(lab, prompt, _relay):
    response_format = {"type": "json_schema", "json_schema": {"name": "Lighthouse", "schema": LIGHTHOUSE_SCHEMA}}
    message = ChatMessage.from_dict({"role": "user", "content": prompt})
    return model(lab).generate([message], response_format=response_format).content


serve(whole=whole, stream=stream, tools=tools, schema=schema)
