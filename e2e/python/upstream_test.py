"""The official Python client, unmodified, against an upstream behind Parley.

Prints "ok NAME" or "not ok NAME: why" for each check and "request ID STATUS" for each answer to a
chat call; the Go test counts them and compares the answers with the books.
"""

import json
import os
import sys

import openai
from pydantic import BaseModel

WORDS = "Hello, dear friend: 1 < 2 & é 🙂."
MESSAGES = [{"role": "system", "content": "You are brief."}, {"role": "user", "content": "Say hello."}]
failed = 0


def note(response):
    if response.request.url.path.endswith("/chat/completions"):
        print("request", response.headers["x-request-id"], response.status_code, flush=True)


http = openai.DefaultHttpxClient(event_hooks={"response": [note]})
client = openai.OpenAI(max_retries=0, http_client=http)


class Place(BaseModel):
    city: str
    temp: int


def check(name):
    def run(f):
        global failed
        try:
            f()
            print("ok", name, flush=True)
        except Exception as e:  # noqa: BLE001 - any failure is the result of the check
            failed += 1
            print(f"not ok {name}: {type(e).__name__} {e}".replace("\n", " "), flush=True)

    return run


def create(model="text", key=None, **kw):
    c = client.with_options(api_key=key) if key else client
    return c.chat.completions.create(**({"model": model, "messages": MESSAGES} | kw))


def equal(got, want):
    assert got == want, f"got {got!r}, want {want!r}"


WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "The weather", "parameters": WEATHER}},
    {"type": "function", "function": {"name": "get_time"}},
]
FUNCTIONS = {"get_weather": lambda city, temp: f"sun in {city}", "get_time": lambda: "it is noon"}
CALLED = [("get_weather", {"city": "Rome", "temp": 21}), ("get_time", {})]
SAID = "The tools say sun in Rome and it is noon."


def loop(answer):
    """The loop of every agent: call the tools until there is text."""
    messages, called = list(MESSAGES), []
    for _ in range(4):
        message = answer(messages)
        if not message.tool_calls:
            return message.content, called
        messages.append(message.model_dump(exclude_none=True))
        for call in message.tool_calls:
            assert call.type == "function" and call.id, call
            arguments = json.loads(call.function.arguments)
            called.append((call.function.name, arguments))
            result = FUNCTIONS[call.function.name](**arguments)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    raise AssertionError("the loop does not end")


def refused(cls, status, code, **kw):
    try:
        create(**kw)
    except openai.APIStatusError as e:
        equal((type(e), e.status_code, e.code), (cls, status, code))
        assert e.request_id.startswith("req_") and "secret" not in str(e), e
    else:
        raise AssertionError("answered")


@check("create")
def _():
    c = create()
    equal(c.choices[0].message.content, WORDS)
    equal((c.usage.completion_tokens, c.usage.prompt_tokens_details.cached_tokens), (5, 40))
    equal(c.usage.total_tokens, c.usage.prompt_tokens + 5)


@check("stream")
def _():
    equal("".join(c.choices[0].delta.content or "" for c in create(stream=True)), WORDS)


@check("stream helper")
def _():
    with client.chat.completions.stream(model="text", messages=MESSAGES, stream_options={"include_usage": True}) as s:
        heard = "".join(e.delta for e in s if e.type == "content.delta")
        final = s.get_final_completion()
    message = final.choices[0].message
    equal((heard, message.content, message.role), (WORDS, WORDS, "assistant"))
    equal((final.choices[0].finish_reason, final.usage.completion_tokens), ("stop", 5))


def said(i):
    pieces = WORDS.split(" ")
    return [f"{w} {i}" for w in pieces[:-1]] + [f"{pieces[-1]}{i}"]


@check("choices with log-probabilities")
def _():
    c = create("choices", n=3, logprobs=True, top_logprobs=2)
    equal([(x.index, x.message.content) for x in c.choices], [(i, "".join(said(i))) for i in range(3)])
    equal([[t.token for t in x.logprobs.content] for x in c.choices], [said(i) for i in range(3)])
    equal((len(c.choices[0].logprobs.content[0].top_logprobs), c.usage.completion_tokens), (2, 3 * len(said(0))))


@check("choices with log-probabilities in the stream helper")
def _():
    with client.chat.completions.stream(model="choices", messages=MESSAGES, n=3, logprobs=True) as s:
        for _ in s:
            pass
        # get_final_completion would raise for the choice that ends by its length.
        c = s.current_completion_snapshot
    equal([x.message.content for x in c.choices], ["".join(said(i)) for i in range(3)])
    equal([[t.token for t in x.logprobs.content] for x in c.choices], [said(i) for i in range(3)])


@check("reasoning")
def _():
    message = create("reasoning").choices[0].message
    equal((message.reasoning_content, message.content), ("The user greets me.", WORDS))


@check("reasoning in a stream")
def _():
    deltas = [c.choices[0].delta for c in create("reasoning", stream=True)]
    equal("".join(getattr(d, "reasoning_content", None) or "" for d in deltas), "The user greets me.")
    equal("".join(d.content or "" for d in deltas), WORDS)


for model in ("tools", "tools-whole"):

    @check(f"tool loop with {model}")
    def _():
        equal(loop(lambda ms: create(model, messages=ms, tools=TOOLS).choices[0].message), (SAID, CALLED))

    @check(f"tool loop with {model} in the stream helper")
    def _():
        def answer(messages):
            with client.chat.completions.stream(model=model, messages=messages, tools=TOOLS) as s:
                for _ in s:
                    pass
                return s.get_final_completion().choices[0].message

        equal(loop(answer), (SAID, CALLED))

    @check(f"parse of strict tools with {model}")
    def _():
        tool = openai.pydantic_function_tool(Place, name="get_weather")
        c = client.chat.completions.parse(model=model, messages=MESSAGES, tools=[tool])
        equal(c.choices[0].message.tool_calls[0].function.parsed_arguments, Place(city="Rome", temp=21))


@check("json_object")
def _():
    c = create("json", response_format={"type": "json_object"})
    equal(json.loads(c.choices[0].message.content), {"city": "Rome", "temp": 21})


@check("json_object of a model that writes none")
def _():
    refused(openai.InternalServerError, 502, "upstream_error", model="no-json", response_format={"type": "json_object"})


@check("parse")
def _():
    c = client.chat.completions.parse(model="json", messages=MESSAGES, response_format=Place)
    equal(c.choices[0].message.parsed, Place(city="Rome", temp=21))


@check("parse in the stream helper")
def _():
    with client.chat.completions.stream(model="json", messages=MESSAGES, response_format=Place) as s:
        for _ in s:
            pass
        equal(s.get_final_completion().choices[0].message.parsed, Place(city="Rome", temp=21))


@check("parse of an answer cut at its length")
def _():
    try:
        client.chat.completions.parse(model="length", messages=MESSAGES, response_format=Place)
    except openai.LengthFinishReasonError as e:
        assert e.completion.usage.completion_tokens == 9, e.completion
        equal(json.loads(e.completion.choices[0].message.content), {"city": "Rome", "te": None})
    else:
        raise AssertionError("parsed")


@check("json_object cut at its length, in a stream")
def _():
    stream = client.chat.completions.create(model="length", messages=MESSAGES, stream=True, response_format={"type": "json_object"})
    chunks = [c.choices[0] for c in stream]
    equal(json.loads("".join(c.delta.content or "" for c in chunks)), {"city": "Rome", "te": None})
    equal(chunks[-1].finish_reason, "length")


@check("parse of a refusal")
def _():
    m = client.chat.completions.parse(model="refusal", messages=MESSAGES, response_format=Place).choices[0].message
    equal((m.refusal, m.parsed, m.content), ("I cannot do that.", None, None))


@check("parse of a refusal in the stream helper")
def _():
    with client.chat.completions.stream(model="refusal", messages=MESSAGES, response_format=Place) as s:
        kinds = {e.type for e in s}
        m = s.get_final_completion().choices[0].message
    equal((m.refusal, m.parsed, "refusal.done" in kinds), ("I cannot do that.", None, True))


for script in ("cut", "fault"):

    @check(f"{script} mid-stream")
    def _():
        got = ""
        try:
            for c in create(script, stream=True):
                got += c.choices[0].delta.content or ""
        except openai.APIError as e:
            equal((got, e.code, e.type), ("Hello, dear", "upstream_error", "server_error"))
            assert "secret" not in str(e), e
        else:
            raise AssertionError("a clean end")

    @check(f"{script} of a whole answer")
    def _():
        refused(openai.InternalServerError, 502, "upstream_error", model=script)


@check("errors of the provider")
def _():
    refused(openai.InternalServerError, 502, "upstream_error", model="status-500")
    refused(openai.InternalServerError, 502, "upstream_overloaded", model="status-429")
    refused(openai.InternalServerError, 502, "upstream_timeout", model="stall")
    refused(openai.InternalServerError, 502, "upstream_error", model="status-500", stream=True)


@check("a long prompt")
def _():
    refused(openai.BadRequestError, 400, "context_length_exceeded", model="too-long")


@check("refusals")
def _():
    refused(openai.APIStatusError, 402, "insufficient_quota", key=os.environ["POOR_KEY"])
    refused(openai.PermissionDeniedError, 403, "model_access_denied", key=os.environ["FREE_KEY"], model="pro-text")


@check("a 502 is asked again")
def _():
    messages = [{"role": "user", "content": f"flaky {os.getpid()}"}]
    c = client.with_options(max_retries=2).chat.completions.create(model="flaky", messages=messages)
    equal(c.choices[0].message.content, WORDS)


@check("models retrieve with a slash")
def _():
    equal(client.models.retrieve("org/text").id, "org/text")


sys.exit(1 if failed else 0)
