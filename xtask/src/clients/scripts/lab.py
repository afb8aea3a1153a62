"""The lab's side of a script in Python: reads cases from stdin, calls the client, prints what it shows.

A script passes functions to `serve`. Each gets the request (`case`, `base`, `key`, `model`, `timeout`) first:

    models(lab)             -> names of the models
    whole(lab, messages)    -> the answer; `messages` as in chat completions, the user's last
    stream(lab, messages)   -> an iterator over the pieces of the answer; closing it cancels the request. A program that
                               prints its pieces one after the other returns all of them as a text
    memory(lab, prompts)    -> the second answer; by default `whole`, or `stream`, with the history in the messages
    cancel(lab, messages)   -> cancels in the middle of an answer; by default closes the stream after a piece of text

An exception is the error that the client's user would see.
"""

import json
import os
import sys
import traceback
from types import SimpleNamespace


def serve(models=None, whole=None, stream=None, memory=None, cancel=None):
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

    def perform(lab):
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

    for line in sys.stdin:
        lab = SimpleNamespace(**json.loads(line))
        try:
            reply = {"ok": True, **perform(lab)}
        except Exception as error:
            traceback.print_exc()
            reply = {"ok": False, "detail": f"{type(error).__name__}: {error}"}
        print(json.dumps({"case": lab.case, **reply}), file=replies, flush=True)
