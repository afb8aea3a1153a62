"""pydantic-ai over chat completions; the second turn gets the messages of the first."""

import openai
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from lab import lighthouse_type, serve


def agent(lab, **more):
    client = openai.AsyncOpenAI(base_url=f"{lab.base}/v1", api_key=lab.key, timeout=lab.timeout or openai.NOT_GIVEN)
    return Agent(OpenAIChatModel(lab.model, provider=OpenAIProvider(openai_client=client)), **more)


def whole(lab, messages):
    return agent(lab).run_sync(messages[-1]["content"]).output


def stream(lab, messages):
    result = agent(lab).run_stream_sync(messages[-1]["content"])
    yield from result.stream_text(delta=True, debounce_by=None)


def memory(lab, prompts):
    first = agent(lab).run_sync(prompts[0])
    return agent(lab).run_sync(prompts[1], message_history=first.all_messages()).output


def cancel(lab, messages):
    import asyncio

    async def first_piece():
        async with agent(lab).run_stream(messages[-1]["content"]) as result:
            async for piece in result.stream_text(delta=True, debounce_by=None):
                return piece

    return f"cancelled after {asyncio.run(first_piece())!r}"


def tools(lab, prompt, relay):
    return agent(lab, tools=[relay]).run_sync(prompt).output


def schema(lab, prompt, relay):
    return agent(lab, tools=[relay], output_type=lighthouse_type()).run_sync(prompt).output


serve(whole=whole, stream=stream, memory=memory, cancel=cancel, tools=tools, schema=schema)
