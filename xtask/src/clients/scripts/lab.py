"""The lab's side of a script in Python: reads cases from stdin, calls the client, prints what it shows.

A script passes functions to `serve`. Each gets the request (`case`, `base`, `key`, `model`, `timeout`) first:

    models(lab)             -> names of the models
    whole(lab, messages)    -> the answer; `messages` as in chat completions, the user's last
    stream(lab, messages)   -> an iterator over the pieces of the answer; closing it cancels the request. A program that
                               prints its pieces one after the other returns all of them as a text
    memory(lab, prompts)    -> the second answer; by default `whole`, or `stream`, with the history in the messages
    cancel(lab, messages)   -> cancels in the middle of an answer; by default closes the stream after a piece of text
    tools(lab, prompt, relay)   -> the last answer of a conversation in which the model may call the function `relay`
    schema(lab, prompt, relay)  -> a `Lighthouse`, or a dict with its members; agents may offer `relay` to the model, too
    edit(lab, prompt)           -> the answer of a program that edits a file in the current folder

An exception is the error that the client's user would see.
"""

import json
import os
import sys
import traceback
from types import SimpleNamespace

# JSON schemas for clients that take no types.
RELAY_PARAMETERS = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
RELAY_DESCRIPTION = "Relays a text, and returns the reply."
LIGHTHOUSE_SCHEMA = {
    "type": "object",
    "properties": {
        "keeper": {"type": "string"},
        "height": {"type": "integer"},
        "lamps": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["keeper", "height", "lamps"],
    "additionalProperties": False,
}


# Calls of the tool after which a case ends: the model asks for two.
MAX_CALLS = 4


class TooManyCalls(BaseException):
    """Not an Exception: frameworks pass those on to the model."""


def lighthouse_type():
    """The type of a structured answer. Not all clients come with pydantic."""
    from pydantic import BaseModel

    class Lighthouse(BaseModel):
        """A lighthouse."""

        keeper: str
        height: int
        lamps: list[str]

    return Lighthouse


def serve(models=None, whole=None, stream=None, memory=None, cancel=None, tools=None, schema=None, edit=None):
    # Some clients print to stdout: it must not mix with the replies.
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(lab, messages):
        return whole(lab, messages) if whole else "".join(stream(lab, messages))

    def converse(lab):
        if memory:
            return memory(lab, lab.prompts)
        messages = []
        for prompt in lab.prompts:
            messages.append({"role": "user", "content": prompt})
            text = answer(lab, messages)
            messages.append({"role": "assistant", "content": text})
        return text

    def stop_early(lab, messages):
        if cancel:
            return cancel(lab, messages)
        pieces = stream(lab, messages)
        first = next(piece for piece in pieces if piece)
        pieces.close()
        return f"cancelled after {first!r}"

    def with_relay(lab, use):
        calls = []

        def relay(text: str) -> str:
            """Relays a text, and returns the reply.

            Args:
                text: The text to relay.
            """
            calls.append(text)
            if len(calls) > MAX_CALLS:
                raise TooManyCalls(f"the tool was called with {calls}")
            return f"{lab.token}-{text}"

        detail = use(lab, lab.prompts[0], relay)
        return {"detail": detail if isinstance(detail, str) else members(detail), "calls": len(calls)}

    def perform(lab):
        if lab.case == "tools":
            return with_relay(lab, tools)
        if lab.case == "schema":
            return with_relay(lab, schema)
        if lab.case == "edit":
            return {"detail": edit(lab, lab.prompts[0])}
        if lab.case == "models":
            return {"detail": " ".join(models(lab))}
        if lab.case == "memory":
            return {"detail": converse(lab)}
        messages = [{"role": "user", "content": lab.prompts[0]}]
        if lab.case == "cancel":
            return {"detail": stop_early(lab, messages)}
        if lab.case == "stream":
            pieces = stream(lab, messages)
            if isinstance(pieces, str):
                return {"detail": pieces}
            pieces = [piece for piece in pieces if piece]
            return {"detail": "".join(pieces), "deltas": len(pieces)}
        return {"detail": answer(lab, messages)}

    def members(answer):
        return json.dumps(answer if isinstance(answer, dict) else answer.model_dump())

    for line in sys.stdin:
        lab = SimpleNamespace(**json.loads(line))
        try:
            reply = {"ok": True, **perform(lab)}
        except (Exception, TooManyCalls) as error:
            traceback.print_exc()
            reply = {"ok": False, "detail": f"{type(error).__name__}: {error}"}
        print(json.dumps({"case": lab.case, **reply}), file=replies, flush=True)
