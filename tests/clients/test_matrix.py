"""Clients of OpenAI's API against the running service, each in its own way: plain, streamed, usage, errors."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.clients.conftest import ANSWER, QUESTION

HERE = Path(__file__).parent


class Said(NamedTuple):
    """What a client got: the pieces of the text and all tokens, or the status and message of an error."""

    pieces: tuple = ()
    tokens: int = 0
    citations: int | None = None
    status: int = 0
    message: str = ""


def openai_python(url, key, model, *, stream):
    openai = pytest.importorskip("openai", reason="OpenAI's package is not here: pip install openai")
    messages = [{"role": "user", "content": QUESTION}]
    with openai.OpenAI(base_url=url, api_key=key, max_retries=0) as client:
        try:
            if not stream:
                made = client.chat.completions.create(model=model, messages=messages)
                message = made.choices[0].message
                citations = len(message.model_extra["grounding"]["citations"])
                return Said([message.content], made.usage.total_tokens, citations)
            further = {"stream": True, "stream_options": {"include_usage": True}}
            chunks = list(client.chat.completions.create(model=model, messages=messages, **further))
        except openai.APIStatusError as error:
            return Said(status=error.status_code, message=error.message)
    pieces = [piece for chunk in chunks if chunk.choices and (piece := chunk.choices[0].delta.content)]
    [grounding] = [chunk.model_extra["grounding"] for chunk in chunks if "grounding" in chunk.model_extra]
    return Said(pieces, chunks[-1].usage.total_tokens, len(grounding["citations"]))


def openai_node(url, key, model, *, stream):
    node = shutil.which("node")
    if node is None or not (HERE / "node_modules" / "openai").exists():
        pytest.skip("OpenAI's package for Node is not here: npm ci in tests/clients")
    asked = {"url": url, "key": key, "model": model, "question": QUESTION, "stream": stream}
    done = subprocess.run([node, "ask.mjs", json.dumps(asked)], check=False, cwd=HERE, capture_output=True, text=True)
    assert not done.returncode, done.stderr
    return Said(**json.loads(done.stdout))


def langchain(url, key, model, *, stream):
    found = pytest.importorskip("langchain_openai", reason="ChatOpenAI is not here: pip install langchain-openai")
    import openai

    with openai.DefaultHttpxClient() as http:
        chat = found.ChatOpenAI(
            base_url=url, api_key=key, model=model, max_retries=0, stream_usage=True, http_client=http
        )
        try:
            chunks = list(chat.stream(QUESTION)) if stream else [chat.invoke(QUESTION)]
        except openai.APIStatusError as error:
            return Said(status=error.status_code, message=error.message)
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    return Said([chunk.text for chunk in chunks if chunk.text], whole.usage_metadata["total_tokens"])


MODELS = """\
- model_id: served
  model_name: MODEL
  api_base: URL
  api_key_name: served
"""


@pytest.fixture
def llm(tmp_path):
    """The `llm` command, with settings of its own."""
    pytest.importorskip("llm", reason="the llm command is not here: pip install llm")

    def ask(url, key, model, *, stream):
        models = MODELS.replace("MODEL", model).replace("URL", url)
        (tmp_path / "extra-openai-models.yaml").write_text(models, "utf-8")
        (tmp_path / "keys.json").write_text(json.dumps({"served": key}), "utf-8")
        words = [sys.executable, "-m", "llm", "-m", "served", "--usage", QUESTION, *([] if stream else ["--no-stream"])]
        pieces = []
        environment = {**os.environ, "LLM_USER_PATH": str(tmp_path), "NO_PROXY": "127.0.0.1"}
        with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            while piece := os.read(process.stdout.fileno(), 1000):
                pieces.append(piece.decode())
            told = process.stderr.read().decode()
        if process.returncode:
            return Said(status=int(re.search(r"Error code: (\d+)", told)[1]), message=told)
        sent, made = (int(number.replace(",", "")) for number in re.findall(r"([\d,]+) (?:in|out)", told))
        return Said(["".join(pieces).removesuffix("\n")] if not stream else pieces, sent + made)

    return ask


@pytest.fixture(params=["openai-python", "openai-node", "langchain", "llm"])
def client(request):
    if request.param == "llm":
        return request.getfixturevalue("llm")
    return {"openai-python": openai_python, "openai-node": openai_node, "langchain": langchain}[request.param]


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
def test_the_text_comes_without_its_grounds_and_with_its_usage(client, service, stream):
    said = client(service.url, service.key, "dialore", stream=stream)
    assert not said.status, said.message
    assert "".join(said.pieces).rstrip("\n") == ANSWER
    assert said.tokens >= 20  # at least a draft and a look-up
    assert said.citations in {1, None}  # whoever asks for the grounds finds them
    # Of a command that writes to a pipe several pieces may come as one.
    assert not stream or len(said.pieces) > 2 or client.__qualname__.startswith("llm")


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
@pytest.mark.parametrize("status", [401, 404, 429])
def test_an_error_is_one_of_the_client_s_own(client, service, status, stream):
    key = {401: service.wrong, 429: service.spent}.get(status, service.key)
    said = client(service.url, key, "dialore/nobody" if status == 404 else "dialore", stream=stream)
    assert said.status == status
    assert {401: "no such key", 404: "unknown model", 429: "too many tokens a day"}[status] in said.message
