"""The official Python client, unmodified, against the embedded model, which must keep to a form.

Prints "ok NAME" or "not ok NAME: why" for each check and "request ID STATUS" for each answer to a
chat call; the Go test counts them. The model is small: what it says is not checked, how is.
"""

import json
import sys
from enum import Enum
from typing import Annotated, Literal, Optional, Union

import openai
from pydantic import BaseModel, Field

failed = 0


def note(response):
    if response.request.url.path.endswith("/chat/completions"):
        print("request", response.headers["x-request-id"], response.status_code, flush=True)


client = openai.OpenAI(max_retries=0, http_client=openai.DefaultHttpxClient(event_hooks={"response": [note]}))
chat = client.chat.completions


class Kind(str, Enum):
    TOWN = "town"
    CITY = "city"


class River(BaseModel):
    name: Annotated[str, Field(max_length=12)]
    km: Annotated[int, Field(ge=1, le=7000)]


class Place(BaseModel):
    city: Annotated[str, Field(max_length=20)]
    kind: Kind
    capital: bool
    rivers: Annotated[list[River], Field(max_length=2)]
    founded: Optional[Annotated[int, Field(ge=-3000, le=2026)]]


class Number(BaseModel):
    type: Literal["number"]
    value: Annotated[int, Field(ge=0, le=99)]


class Sum(BaseModel):
    type: Literal["sum"]
    terms: Annotated[list[Number], Field(min_length=1, max_length=3)]


class Expression(BaseModel):
    expression: Union[Number, Sum]


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


def ask(**kw):
    question = [{"role": "user", "content": "Tell me about Rome in JSON."}]
    return {"model": "svc-pulse", "messages": question, "temperature": 0, "seed": 1, "max_tokens": 300} | kw


def heard(**kw):
    """The completion and the parsed events of the stream helper."""
    with chat.stream(**ask(**kw)) as s:
        events = list(s)
        return s.get_final_completion(), events


for schema in (Place, Expression):

    @check(f"parse {schema.__name__}")
    def _():
        for temperature in (0, 1, 2):
            c = chat.parse(**ask(response_format=schema, temperature=temperature))
            assert isinstance(c.choices[0].message.parsed, schema), c

    @check(f"parse {schema.__name__} in the stream helper")
    def _():
        c, events = heard(response_format=schema)
        whole = chat.parse(**ask(response_format=schema))
        assert c.choices[0].message.parsed == whole.choices[0].message.parsed, (c, whole)
        assert [e.parsed for e in events if e.type == "content.done"] == [whole.choices[0].message.parsed]


@check("parse of three choices")
def _():
    c = chat.parse(**ask(response_format=Place, n=3, temperature=1))
    assert all(isinstance(x.message.parsed, Place) for x in c.choices), c
    with chat.stream(**ask(response_format=Place, n=3, temperature=1)) as s:
        for _ in s:
            pass
        streamed = s.get_final_completion()
    assert [x.message.parsed for x in streamed.choices] == [x.message.parsed for x in c.choices]


@check("parse with penalties, bias and log-probabilities")
def _():
    c = chat.parse(
        **ask(response_format=Place, frequency_penalty=2, presence_penalty=-2, logit_bias={"18": 30, "108": -100}, logprobs=True)
    )
    assert isinstance(c.choices[0].message.parsed, Place) and c.choices[0].logprobs.content, c


@check("json_object, also where it is cut or stopped")
def _():
    for kw in ({}, {"max_tokens": 2}, {"max_tokens": 7}, {"stop": ["a", ","]}, {"temperature": 2}):
        a = ask(response_format={"type": "json_object"}) | {"max_tokens": 30} | kw
        text = chat.create(**a).choices[0].message.content
        assert isinstance(json.loads(text), dict), text
        text = "".join(x.choices[0].delta.content or "" for x in chat.create(stream=True, **a))
        assert isinstance(json.loads(text), dict), text


@check("a schema that is not strict and has what no grammar enforces")
def _():
    schema = {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 6}, "minItems": 2, "maxItems": 2, "uniqueItems": True}
    form = {"type": "json_schema", "json_schema": {"name": "dice", "schema": schema}}
    one, other = json.loads(chat.create(**ask(response_format=form)).choices[0].message.content)
    assert one != other
    try:
        form["json_schema"]["strict"] = True
        chat.create(**ask(response_format=form))
    except openai.BadRequestError as e:
        assert e.param == "response_format", e
    else:
        raise AssertionError("answered")


class GetWeather(BaseModel):
    """The weather in a city."""

    city: Annotated[str, Field(max_length=20)]
    unit: Literal["C", "F"]


class GetTime(BaseModel):
    """The time of day."""

    zone: Literal["UTC", "CET"]


TOOLS = [openai.pydantic_function_tool(GetWeather), openai.pydantic_function_tool(GetTime)]
KINDS = {"GetWeather": GetWeather, "GetTime": GetTime}


@check("parse of tools that are required")
def _():
    for get in (lambda **kw: chat.parse(**ask(**kw)), lambda **kw: heard(**kw)[0]):
        for kw in ({"tool_choice": "required"}, {"tool_choice": {"type": "function", "function": {"name": "GetTime"}}}):
            choice = get(tools=TOOLS, **kw).choices[0]
            calls = choice.message.tool_calls
            assert choice.finish_reason == "tool_calls" and not choice.message.content and calls, choice
            assert all(isinstance(c.function.parsed_arguments, KINDS[c.function.name]) for c in calls), calls
            assert len({c.id for c in calls}) == len(calls), calls
            if kw["tool_choice"] != "required":
                assert [c.function.name for c in calls] == ["GetTime"], calls


for how, answer in (("", lambda **kw: chat.parse(**ask(**kw))), (" in the stream helper", lambda **kw: heard(**kw)[0])):

    @check(f"tool loop{how}")
    def _():
        messages = [{"role": "user", "content": "What is the weather in Rome?"}]
        called = 0
        for _ in range(6):
            # A loop that requires calls has no end, so only the first turn does.
            message = answer(messages=messages, tools=TOOLS, tool_choice="auto" if called else "required").choices[0].message
            if not message.tool_calls:
                assert message.content and called
                return
            messages.append({"role": "assistant", "content": message.content, "tool_calls": [c.model_dump(exclude={"function": {"parsed_arguments"}}) for c in message.tool_calls]})
            for call in message.tool_calls:
                called += 1
                KINDS[call.function.name].model_validate_json(call.function.arguments)
                messages.append({"role": "tool", "tool_call_id": call.id, "content": "sun, 21 degrees"})
        raise AssertionError("the loop does not end")


sys.exit(1 if failed else 0)
