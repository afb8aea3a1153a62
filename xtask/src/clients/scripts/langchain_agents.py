"""LangChain's agents, with ChatOpenAI over chat completions."""

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI

from lab import lighthouse_type, serve


def agent(lab, **more):
    model = ChatOpenAI(base_url=f"{lab.base}/v1", api_key=lab.key, model=lab.model, timeout=lab.timeout)
    return create_agent(model, **more)


def whole(lab, messages):
    return agent(lab).invoke({"messages": messages})["messages"][-1].text


def stream(lab, messages):
    chunks = agent(lab).stream({"messages": messages}, stream_mode="messages")
    try:
        for chunk, _ in chunks:
            yield chunk.text
    finally:
        chunks.close()


def tools(lab, prompt, relay):
    messages = [{"role": "user", "content": prompt}]
    return agent(lab, tools=[relay]).invoke({"messages": messages})["messages"][-1].text


def schema(lab, prompt, relay):
    messages = [{"role": "user", "content": prompt}]
    typed = agent(lab, tools=[relay], response_format=lighthouse_type())
    return typed.invoke({"messages": messages})["structured_response"]


serve(whole=whole, stream=stream, tools=tools, schema=schema)
