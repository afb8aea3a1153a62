#!/usr/bin/env python3
"""Tests the mock LLM with the vendors' own SDKs: whole and streamed answers, a tool loop, token counts, an error.

usage: sdks.py BASE_URL      (of a `trunkline mock-llm` with its built-in script)

Requires the packages of requirements.txt. Prints the failures and exits with 1 if there are any.
"""

import json
import sys
import traceback

import anthropic
import openai
from google import genai
from google.genai import types

HOW_ARE_YOU = "I'm doing well, thank you for asking!"
DONE = "Done! hello.py is there, and I have run it."
TASK = "Please write a hello world program"

# The four tools of the built-in agent, which the script uses: name -> parameters.
TOOLS = {
    "read_file": ["path"],
    "write_file": ["path", "content"],
    "edit_file": ["path", "old_string", "new_string"],
    "bash": ["command"],
}


def schema(names):
    return {"type": "object", "properties": {name: {"type": "string"} for name in names}, "required": names}


def equal(actual, expected, what):
    if actual != expected:
        raise AssertionError(f"{what}: expected {expected!r}, got {actual!r}")


def check_loop(turn, streamed):
    """Runs the scenario to its end. `turn(calls)` sends one request with the calls so far; it returns (text, calls)."""
    history = []
    for _ in range(5):
        text, calls = turn(history)
        if not calls:
            equal(text, DONE, f"end of the tool loop, streamed={streamed}")
            break
        equal(len(calls), 1, "calls of one step")
        history.append(calls[0])
    names = [name for _, name, _ in history]
    equal(names, ["write_file", "bash"], f"tools, streamed={streamed}")
    equal(history[0][2], {"path": "hello.py", "content": "print('Hello, World!')\n"}, "arguments of write_file")
    equal(history[1][2], {"command": "python3 hello.py"}, "arguments of bash")


def openai_client(base):
    return openai.OpenAI(base_url=f"{base}/v1", api_key="x", max_retries=0)


def chat(base):
    client = openai_client(base)
    equal([model.id for model in client.models.list()], ["mock-model"], "models")
    hello = [{"role": "user", "content": "How are you?"}]
    whole = client.chat.completions.create(model="m", messages=hello)
    equal(whole.choices[0].message.content, HOW_ARE_YOU, "content")
    equal(whole.choices[0].finish_reason, "stop", "finish_reason")
    equal(whole.usage.total_tokens, whole.usage.prompt_tokens + whole.usage.completion_tokens, "usage")

    stream = client.chat.completions.create(
        model="m", messages=hello, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    equal(text, HOW_ARE_YOU, "streamed content")
    equal(len([chunk for chunk in chunks if chunk.choices]) > 3, True, "more than one delta")
    equal(chunks[-1].usage, whole.usage, "usage of the stream")

    tools = [
        {"type": "function", "function": {"name": name, "parameters": schema(names)}} for name, names in TOOLS.items()
    ]
    for streamed in (False, True):

        def turn(earlier_calls):
            messages = [{"role": "user", "content": TASK}]
            for id, name, arguments in earlier_calls:
                call = {"id": id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
                messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
                messages.append({"role": "tool", "tool_call_id": id, "content": "OK"})
            if streamed:
                with client.chat.completions.stream(model="m", messages=messages, tools=tools) as stream:
                    choice = stream.get_final_completion().choices[0]
            else:
                choice = client.chat.completions.create(model="m", messages=messages, tools=tools).choices[0]
            calls = choice.message.tool_calls or []
            equal(choice.finish_reason, "tool_calls" if calls else "stop", "finish_reason")
            parsed = [(call.id, call.function.name, json.loads(call.function.arguments)) for call in calls]
            return choice.message.content, parsed

        check_loop(turn, streamed)

    try:
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": "Rehearse a rate limit"}])
    except openai.RateLimitError as error:
        equal(error.response.headers["retry-after"], "2", "retry-after")
        equal(error.code, "rate_limit_exceeded", "code")
    else:
        raise AssertionError("no RateLimitError")


def responses(base):
    client = openai_client(base)
    whole = client.responses.create(model="m", input="How are you?")
    equal(whole.output_text, HOW_ARE_YOU, "output_text")
    equal(whole.status, "completed", "status")
    with client.responses.stream(model="m", input="How are you?") as stream:
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        final = stream.get_final_response()
    equal(text, HOW_ARE_YOU, "streamed text")
    equal(final.output_text, HOW_ARE_YOU, "text of the streamed response")
    equal(final.usage.total_tokens, whole.usage.total_tokens, "usage")

    tools = [{"type": "function", "name": name, "parameters": schema(names)} for name, names in TOOLS.items()]
    for streamed in (False, True):

        def turn(earlier_calls):
            items = [{"role": "user", "content": TASK}]
            for id, name, arguments in earlier_calls:
                items.append(
                    {"type": "function_call", "call_id": id, "name": name, "arguments": json.dumps(arguments)}
                )
                items.append({"type": "function_call_output", "call_id": id, "output": "OK"})
            if streamed:
                with client.responses.stream(model="m", input=items, tools=tools) as stream:
                    response = stream.get_final_response()
            else:
                response = client.responses.create(model="m", input=items, tools=tools)
            calls = [item for item in response.output if item.type == "function_call"]
            return response.output_text, [(call.call_id, call.name, json.loads(call.arguments)) for call in calls]

        check_loop(turn, streamed)


def messages(base):
    client = anthropic.Anthropic(base_url=base, api_key="x", max_retries=0)
    hello = [{"role": "user", "content": "How are you?"}]
    whole = client.messages.create(model="m", max_tokens=100, messages=hello)
    equal(whole.content[0].text, HOW_ARE_YOU, "text")
    equal(whole.stop_reason, "end_turn", "stop_reason")
    with client.messages.stream(model="m", max_tokens=100, messages=hello) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    equal(text, HOW_ARE_YOU, "streamed text")
    equal(final.usage.output_tokens, whole.usage.output_tokens, "usage")
    count = client.messages.count_tokens(model="m", messages=hello)
    equal(count.input_tokens, whole.usage.input_tokens, "count_tokens")

    tools = [{"name": name, "input_schema": schema(names)} for name, names in TOOLS.items()]
    for streamed in (False, True):

        def turn(earlier_calls):
            history = [{"role": "user", "content": TASK}]
            for id, name, arguments in earlier_calls:
                call = {"type": "tool_use", "id": id, "name": name, "input": arguments}
                history.append({"role": "assistant", "content": [call]})
                result = {"type": "tool_result", "tool_use_id": id, "content": "OK"}
                history.append({"role": "user", "content": [result]})
            if streamed:
                with client.messages.stream(model="m", max_tokens=100, messages=history, tools=tools) as stream:
                    message = stream.get_final_message()
            else:
                message = client.messages.create(model="m", max_tokens=100, messages=history, tools=tools)
            calls = [block for block in message.content if block.type == "tool_use"]
            equal(message.stop_reason, "tool_use" if calls else "end_turn", "stop_reason")
            text = "".join(block.text for block in message.content if block.type == "text")
            return text, [(call.id, call.name, call.input) for call in calls]

        check_loop(turn, streamed)

    try:
        client.messages.create(
            model="m", max_tokens=100, messages=[{"role": "user", "content": "Rehearse a rate limit"}]
        )
    except anthropic.RateLimitError as error:
        equal(error.body["error"]["type"], "rate_limit_error", "type")
    else:
        raise AssertionError("no RateLimitError")


def gemini(base):
    options = types.HttpOptions(base_url=base, retry_options=types.HttpRetryOptions(attempts=1))
    client = genai.Client(api_key="x", http_options=options)
    whole = client.models.generate_content(model="gem", contents="How are you?")
    equal(whole.text, HOW_ARE_YOU, "text")
    equal(whole.candidates[0].finish_reason, types.FinishReason.STOP, "finish_reason")
    chunks = list(client.models.generate_content_stream(model="gem", contents="How are you?"))
    equal("".join(chunk.text for chunk in chunks), HOW_ARE_YOU, "streamed text")
    equal(len(chunks) > 3, True, "more than one chunk")
    equal(chunks[-1].usage_metadata.total_token_count, whole.usage_metadata.total_token_count, "usage")
    count = client.models.count_tokens(model="gem", contents="How are you?")
    equal(count.total_tokens, whole.usage_metadata.prompt_token_count, "count_tokens")

    declarations = [
        types.FunctionDeclaration(name=name, parameters_json_schema=schema(names)) for name, names in TOOLS.items()
    ]
    config = types.GenerateContentConfig(
        tools=[types.Tool(function_declarations=declarations)],
        automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
    )
    for streamed in (False, True):

        def turn(earlier_calls):
            contents = [types.Content(role="user", parts=[types.Part(text=TASK)])]
            for id, name, arguments in earlier_calls:
                call = types.Part(function_call=types.FunctionCall(id=id, name=name, args=arguments))
                contents.append(types.Content(role="model", parts=[call]))
                response = types.FunctionResponse(id=id, name=name, response={"output": "OK"})
                contents.append(types.Content(role="user", parts=[types.Part(function_response=response)]))
            if streamed:
                answers = client.models.generate_content_stream(model="gem", contents=contents, config=config)
            else:
                answers = [client.models.generate_content(model="gem", contents=contents, config=config)]
            parts = [part for answer in answers for part in answer.candidates[0].content.parts]
            calls = [part.function_call for part in parts if part.function_call]
            return "".join(part.text or "" for part in parts), [(call.id, call.name, call.args) for call in calls]

        check_loop(turn, streamed)

    try:
        client.models.generate_content(model="gem", contents="Rehearse a rate limit")
    except genai.errors.ClientError as error:
        equal((error.code, error.status), (429, "RESOURCE_EXHAUSTED"), "error")
    else:
        raise AssertionError("no ClientError")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    base = sys.argv[1].rstrip("/")
    failed = 0
    for name, sdk, check in [
        ("chat completions", f"openai {openai.__version__}", chat),
        ("responses", f"openai {openai.__version__}", responses),
        ("messages", f"anthropic {anthropic.__version__}", messages),
        ("generateContent", f"google-genai {genai.__version__}", gemini),
    ]:
        try:
            check(base)
            print(f"ok      {name:18} {sdk}")
        except Exception:
            failed += 1
            print(f"FAILED  {name:18} {sdk}")
            traceback.print_exc()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
