"""LangChain's ChatOllama over Ollama's API."""

from langchain_ollama import ChatOllama

from lab_langchain import serve_chat_model

serve_chat_model(
    lambda lab: ChatOllama(
        base_url=lab.base,
        model=lab.model,
        client_kwargs={"headers": {"Authorization": f"Bearer {lab.key}"}, "timeout": lab.timeout},
    )
)
