"""LangChain's ChatOpenAI over responses."""

from langchain_openai import ChatOpenAI

from lab_langchain import serve_chat_model

serve_chat_model(
    lambda lab: ChatOpenAI(
        base_url=f"{lab.base}/v1", api_key=lab.key, model=lab.model, timeout=lab.timeout, use_responses_api=True
    )
)
