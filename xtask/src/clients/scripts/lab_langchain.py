"""What the scripts of LangChain share: a chat model is used in the same way whatever is behind it."""

from lab import serve


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

    serve(whole=whole, stream=stream)
