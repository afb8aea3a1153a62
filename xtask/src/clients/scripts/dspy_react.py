"""DSPy over chat completions. Its ReAct has a text format for the calls of tools."""

import dspy

from lab import lighthouse_type, serve


def model(lab):
    return dspy.LM(
        f"openai/{lab.model}", api_base=f"{lab.base}/v1", api_key=lab.key, timeout=lab.timeout, cache=False
    )


def whole(lab, messages):
    return model(lab)(messages=messages)[0]["text"]


def tools(lab, prompt, relay):
    with dspy.context(lm=model(lab)):
        return dspy.ReAct("question -> answer", tools=[relay])(question=prompt).answer


def schema(lab, prompt, _relay):
    class Describe(dspy.Signature):
        """Describe a lighthouse."""

        question: str = dspy.InputField()
        lighthouse: lighthouse_type() = dspy.OutputField()

    with dspy.context(lm=model(lab), adapter=dspy.JSONAdapter()):
        return dspy.Predict(Describe)(question=prompt).lighthouse


serve(whole=whole, tools=tools, schema=schema)
