"""DSPy over chat completions. Its ReAct has a text format for the calls of tools."""

import dspy

from lab import serve


def model(lab):
    return dspy.LM(
        f"openai/{lab.model}", api_base=f"{lab.base}/v1", api_key=lab.key, timeout=lab.timeout, cache=False
    )


def whole(lab, messages):
    return model(lab)(messages=messages)[0]


def tools(lab, prompt, relay):
    with dspy.context(lm=model(lab)):
        return dspy.ReAct("question -> answer", tools=[relay])(question=prompt).answer


def schema(lab, prompt, _relay):
    signature = "question -> keeper: str, height: int, lamps: list[str]"
    with dspy.context(lm=model(lab), adapter=dspy.JSONAdapter()):
        return dspy.Predict(signature)(question=prompt).toDict()


serve(whole=whole, tools=tools, schema=schema)
