"""LangChain's ChatAnthropic over messages."""

from langchain_anthropic import ChatAnthropic

from lab_langchain import serve_chat_model

serve_chat_model(
    lambda lab: ChatAnthropic(base_url=lab.base, api_key=lab.key, model=lab.model, timeout=lab.timeout, max_tokens=1000)
)
