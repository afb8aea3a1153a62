"""openai-agents over responses, its default; a session keeps the history."""

import asyncio

import openai
from agents import Agent, OpenAIResponsesModel, Runner, SQLiteSession, function_tool, set_tracing_disabled

from lab import lighthouse_type, serve

set_tracing_disabled(True)


def client(lab):
    return openai.AsyncOpenAI(base_url=f"{lab.base}/v1", api_key=lab.key, timeout=lab.timeout or openai.NOT_GIVEN)


def agent(lab, **more):
    return Agent(name="Lab", model=OpenAIResponsesModel(model=lab.model, openai_client=client(lab)), **more)


def whole(lab, messages):
    return Runner.run_sync(agent(lab), messages).final_output


async def pieces(lab, messages, first_only):
    result = Runner.run_streamed(agent(lab), messages)
    texts = []
    async for event in result.stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            texts.append(event.data.delta)
            if first_only:
                result.cancel()
    return texts


def stream(lab, messages):
    yield from asyncio.run(pieces(lab, messages, first_only=False))


def cancel(lab, messages):
    return f"cancelled after {asyncio.run(pieces(lab, messages, first_only=True))}"


def memory(lab, prompts):
    session = SQLiteSession("lab")
    Runner.run_sync(agent(lab), prompts[0], session=session)
    return Runner.run_sync(agent(lab), prompts[1], session=session).final_output


def tools(lab, prompt, relay):
    return Runner.run_sync(agent(lab, tools=[function_tool(relay)]), prompt).final_output


def schema(lab, prompt, relay):
    typed = agent(lab, tools=[function_tool(relay)], output_type=lighthouse_type())
    return Runner.run_sync(typed, prompt).final_output


serve(whole=whole, stream=stream, memory=memory, cancel=cancel, tools=tools, schema=schema)
