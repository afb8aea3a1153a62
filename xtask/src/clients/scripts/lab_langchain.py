"""What the scripts of LangChain share: a chat model is used in the same way whatever is behind it."""

from langchain_core.messages import HumanMessage
from langchain_core.tools import tool

from lab import lighthouse_type, serve


def text_of(content):
    if isinstance(content, str):
        return content
    return "".join(part if isinstance(part, str) else part.get("text", "") for part in content)


def serve_chat_model(chat_model):
    """`chat_model(lab)` returns the chat model for a request."""

    def whole(lab, messages):
        return text_of(chat_model(lab).invoke(messages).content)

    def stream(lab, messages):
        chunks = chat_model(lab).stream(messages)
        try:
            for chunk in chunks:
                yield text_of(chunk.content)
        finally:
            chunks.close()

    def tools(lab, prompt, relay):
        relay = tool(relay)
        model = chat_model(lab).bind_tools([relay])
        messages = [HumanMessage(prompt)]
        while True:
            # Streamed, as agents do.
            chunks = list(model.stream(messages))
            answer = sum(chunks[1:], chunks[0])
            if not answer.tool_calls:
                return text_of(answer.content)
            messages.append(answer)
            messages.extend(relay.invoke(call) for call in answer.tool_calls)

    def schema(lab, prompt, _relay):
        return chat_model(lab).with_structured_output(lighthouse_type()).invoke(prompt)

    serve(whole=whole, stream=stream, tools=tools, schema=schema)
