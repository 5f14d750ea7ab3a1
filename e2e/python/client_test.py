"""The official Python client, unmodified, against a running Parley.

Prints "ok NAME" or "not ok NAME: why" for each check; the Go test counts them.
"""

import os
import sys

import openai

client = openai.OpenAI(max_retries=0)
MESSAGES = [{"role": "system", "content": "You are brief."}, {"role": "user", "content": "Say hello."}]
failed = 0


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


def create(key=None, **kw):
    args = {"model": "svc-pulse", "messages": MESSAGES, "max_tokens": 12, "temperature": 0} | kw
    return (client.with_options(api_key=key) if key else client).chat.completions.create(**args)


def refused(cls, status, code, **kw):
    try:
        create(**kw)
    except openai.APIStatusError as e:
        assert type(e) is cls, f"{type(e).__name__}, want {cls.__name__}"
        assert e.status_code == status and e.code == code, f"{e.status_code} {e.code}"
        assert e.request_id.startswith("req_"), e.request_id
        assert isinstance(e.body, dict) and e.body["message"], e.body
    else:
        raise AssertionError("answered")


@check("create")
def _():
    c = create()
    assert c.choices[0].message.content and c.choices[0].message.role == "assistant"
    assert c.usage.total_tokens == c.usage.prompt_tokens + c.usage.completion_tokens
    assert c.object == "chat.completion" and c._request_id.startswith("req_")


@check("stream")
def _():
    whole = create().choices[0].message.content
    text = "".join(c.choices[0].delta.content or "" for c in create(stream=True))
    assert text == whole, (text, whole)


@check("stream with usage")
def _():
    chunks = list(create(stream=True, stream_options={"include_usage": True}))
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens > 0
    assert all(c.usage is None for c in chunks[:-1])


@check("stream helper")
def _():
    # The helper raises when an answer ends by length, so this one must end by itself.
    with client.chat.completions.stream(model="svc-pulse", messages=MESSAGES, max_tokens=400, temperature=0) as s:
        events = [e.type for e in s]
        final = s.get_final_completion()
    assert final.choices[0].finish_reason == "stop", final.choices[0].finish_reason
    assert final.choices[0].message.content == create(max_tokens=400).choices[0].message.content
    assert final.choices[0].message.role == "assistant"
    assert "content.delta" in events and "content.done" in events, events


@check("choices with log-probabilities")
def _():
    one = create(seed=7, temperature=1)
    asked = {"n": 3, "seed": 7, "temperature": 1, "logprobs": True, "top_logprobs": 2}
    c = create(**asked)
    assert [x.index for x in c.choices] == [0, 1, 2]
    assert c.choices[0].message.content == one.choices[0].message.content
    assert len({x.message.content for x in c.choices}) > 1
    entries = [t for x in c.choices for t in x.logprobs.content]
    assert len(entries) <= c.usage.completion_tokens <= 36 and all(t.logprob <= 0 and len(t.top_logprobs) == 2 for t in entries)
    for x in c.choices:
        spelt = b"".join(bytes(t.bytes) for t in x.logprobs.content)
        assert spelt.decode(errors="replace") == x.message.content, (spelt, x.message.content)
    texts, order, scored = {}, [], 0
    for chunk in create(stream=True, **asked):
        x = chunk.choices[0]
        if x.delta.role:
            order.append(x.index)
        texts[x.index] = texts.get(x.index, "") + (x.delta.content or "")
        scored += len(x.logprobs.content) if x.logprobs else 0
    assert order == [0, 1, 2], order
    assert [texts[i] for i in range(3)] == [x.message.content for x in c.choices], texts
    assert scored == len(entries), (scored, len(entries))


@check("choices in the stream helper")
def _():
    with client.chat.completions.stream(model="svc-pulse", messages=MESSAGES, max_tokens=12, temperature=1, seed=7, n=2) as s:
        for _ in s:
            pass
        final = s.current_completion_snapshot
    assert [x.message.content for x in final.choices] == [x.message.content for x in create(n=2, temperature=1, seed=7).choices]


@check("penalties, bias and what is cached")
def _():
    plain, again = create(), create()
    assert again.usage.prompt_tokens_details.cached_tokens >= plain.usage.prompt_tokens_details.cached_tokens
    assert again.usage.prompt_tokens_details.cached_tokens % 16 == 0 and again.usage.prompt_tokens_details.cached_tokens > 0
    first = create(logprobs=True).choices[0].logprobs.content[0].token
    varied = create(frequency_penalty=2, presence_penalty=2, max_tokens=40).choices[0].message.content
    assert varied != create(max_tokens=40).choices[0].message.content
    assert create(logit_bias={"28": 100}).choices[0].message.content != plain.choices[0].message.content, first


@check("abort mid-stream")
def _():
    s = create(stream=True, max_tokens=2000)
    next(iter(s))
    s.close()


@check("raw response")
def _():
    r = client.chat.completions.with_raw_response.create(model="svc-pulse", messages=MESSAGES, max_tokens=2)
    assert r.headers["content-type"] == "application/json", r.headers["content-type"]
    assert r.parse().choices


@check("models list")
def _():
    assert [m.id for m in client.models.list()] == ["svc-pulse", "svc-titan"]


@check("models retrieve")
def _():
    m = client.models.retrieve("svc-pulse")
    assert m.id == "svc-pulse" and m.owned_by == "svc" and m.context_window == 8192
    assert m.pricing["input"] == 0.05 and m.pricing["output"] == 0.1


@check("models retrieve with a slash")
def _():
    try:
        client.models.retrieve("org/nope")
    except openai.NotFoundError as e:
        assert e.code == "model_not_found", e.code
    else:
        raise AssertionError("found")


@check("400 is BadRequestError")
def _():
    refused(openai.BadRequestError, 400, "decimal_above_max_value", temperature=3)


@check("401 is AuthenticationError")
def _():
    refused(openai.AuthenticationError, 401, "invalid_api_key", key="sk-nope")


@check("402 is APIStatusError")
def _():
    refused(openai.APIStatusError, 402, "insufficient_quota", key=os.environ["POOR_KEY"])


@check("403 is PermissionDeniedError")
def _():
    refused(openai.PermissionDeniedError, 403, "model_access_denied", key=os.environ["FREE_KEY"], model="svc-titan")


@check("404 is NotFoundError")
def _():
    refused(openai.NotFoundError, 404, "model_not_found", model="svc-typo")


@check("refusals of a stream")
def _():
    refused(openai.NotFoundError, 404, "model_not_found", model="svc-typo", stream=True)
    refused(openai.APIStatusError, 402, "insufficient_quota", key=os.environ["POOR_KEY"], stream=True)


sys.exit(1 if failed else 0)
