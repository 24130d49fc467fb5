"""A model in the process: what a file says, what is refused, and, where weights are named, every method on them."""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import struct
import threading
from pathlib import Path
from typing import ClassVar

import pytest

from dialore.cli.demo import PARTS, open_part
from dialore.errors import InputError
from dialore.llm.connection import connect
from dialore.llm.gguf import fetch_weights, read_metadata
from dialore.llm.model import Message, OutputSchema, Request, Sampling, Wrapper

WEIGHTS = os.environ.get("DIALORE_TEST_GGUF", "")
ON_WEIGHTS = pytest.mark.skipif(not WEIGHTS, reason="DIALORE_TEST_GGUF names no file of real weights")
ASK = Request(messages=(Message(role="user", content="Name a tea."),), sampling=Sampling(temperature=0, max_tokens=8))


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def gguf(**said: str | int | list[str] | list[int]) -> bytes:
    """The head of a GGUF file, which is all of one without weights."""
    made = b"GGUF" + struct.pack("<IQQ", 3, 0, len(said))
    for name, value in said.items():
        made += text(name.replace("__", "."))
        if isinstance(value, str):
            made += struct.pack("<I", 8) + text(value)
        elif isinstance(value, int):
            made += struct.pack("<II", 4, value)
        elif isinstance(value[0], str):
            made += struct.pack("<IIQ", 9, 8, len(value)) + b"".join(text(str(item)) for item in value)
        else:
            made += struct.pack("<IIQ", 9, 4, len(value)) + struct.pack(f"<{len(value)}I", *value)
    return made


def test_a_file_says_what_it_is(tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf(tokens=["a", "茶"], scores=[1, 2], general__architecture="llama", llama__context_length=512))
    assert read_metadata(path) == {
        "tokens": None,
        "scores": None,
        "general.architecture": "llama",
        "llama.context_length": 512,
    }


BAD = {
    "no file": (None, "there is no file"),
    "another form": (b"PK\x03\x04 a zip", "is no GGUF file"),
    "empty": (b"", "is no GGUF file"),
    "cut off": (gguf(a="b", general__architecture="llama")[:-3], "is damaged"),
    "lengths beyond the file": (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1 << 60), "is damaged"),
    "an old version": (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "of version 1"),
    "no chat template": (gguf(general__architecture="llama"), "no chat template"),
    "no weights": (gguf(tokenizer__chat_template="{{}}", general__architecture="llama"), "cannot be loaded"),
    "too big": (
        gguf(
            tokenizer__chat_template="{{}}",
            general__architecture="a",
            a__block_count=10**6,
            a__embedding_length=9999,
        ),
        "GB are free",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_model_is_one_line(tmp_path, name):
    pytest.importorskip("xllamacpp")
    data, words = BAD[name]
    path = tmp_path / "m.gguf"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(InputError, match=words) as caught:
        connect(f"gguf:{path}")
    assert caught.value.hint
    assert "\n" not in str(caught.value)


def test_a_file_is_fetched_once(tmp_path, monkeypatch):
    asked: list[str] = []

    class Hub(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(404 if "lacks" in self.path else 200)
            self.end_headers()
            self.wfile.write(b"GGUF")

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Hub) as hub:
        threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{hub.server_port}")
        for _ in range(2):
            assert fetch_weights("owner/repo/q4/m.gguf", tmp_path).read_bytes() == b"GGUF"
        with pytest.raises(InputError, match=r"cannot fetch owner/repo/lacks\.gguf"):
            fetch_weights("owner/repo/lacks.gguf", tmp_path)
        hub.shutdown()
    assert asked == ["/owner/repo/resolve/main/q4/m.gguf", "/owner/repo/resolve/main/lacks.gguf"]
    with pytest.raises(InputError, match="cannot fetch"):
        fetch_weights("owner/repo/other.gguf", tmp_path)  # nothing listens there by now
    assert [path.name for path in tmp_path.rglob("*.*")] == ["m.gguf"]


@pytest.mark.parametrize("name", ["", "owner", "owner/repo", "owner/../x", "/etc/passwd"])
def test_what_names_no_file_is_not_fetched(name, tmp_path):
    with pytest.raises(InputError, match="names no file"):
        fetch_weights(name, tmp_path)


class Brief(Wrapper):
    """A model that is cut off soon: whether a method ends well is not what is tested, and a small model never stops."""

    async def complete(self, request, on_token=None):
        limit = min(48, request.sampling.max_tokens)
        brief = {"sampling": request.sampling.model_copy(update={"max_tokens": limit})}
        return await self._model.complete(request.model_copy(update=brief), on_token)


@ON_WEIGHTS
async def test_real_weights_answer_in_words_and_by_a_schema():
    model = connect(f"gguf:{WEIGHTS}", threads=1, context=1024)
    assert model is not None
    pieces: list[str] = []
    assert (await model.complete(ASK, pieces.append)).text == "".join(pieces)
    assert len(pieces) > 1
    definition = {"type": "object", "properties": {"tea": {"enum": ["green", "black"]}}, "required": ["tea"]}
    wanted = ASK.model_copy(update={"output_schema": OutputSchema(name="Tea", definition=definition)})
    longer = wanted.model_copy(update={"sampling": Sampling(temperature=0, max_tokens=40)})
    completion = await model.complete(longer)
    assert json.loads(completion.text)["tea"] in {"green", "black"}
    assert completion.usage.prompt_tokens > 5
    await model.close()


@ON_WEIGHTS
@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
async def test_real_weights_answer_by_every_method_streamed_and_not(part):
    """End to end; nothing is said of how good the answers are, and a stage that this model cannot do may fail."""
    model = connect(f"gguf:{WEIGHTS}", timeout=600)
    assert model is not None
    model = Brief(model)
    dialogue = part.dialogues()[0]
    try:
        async with open_part(part, model) as agents:
            for agent in agents:
                whole = await agent.respond(dialogue)
                streamed = [piece async for piece in agent.stream(dialogue)][-1]
                for response in (whole, streamed):
                    assert not isinstance(response, str)
                    assert response.status == "ok" or response.error
                    assert response.usage.prompt_tokens > 0
                    assert response.model == Path(WEIGHTS).name
    finally:
        await model.close()


class _Hub(http.server.BaseHTTPRequestHandler):
    """Redirects to another host name, as the hub does to its storage."""

    headers_sent: ClassVar[dict[str, str]] = {}
    seen: ClassVar[list[tuple[str, str | None]]] = []

    def do_GET(self):
        self.seen.append((self.path, self.headers.get("Authorization")))
        is_storage = self.path == "/storage"
        self.send_response(200 if is_storage else 302)
        if not is_storage:
            self.send_header("Location", f"http://localhost:{self.server.server_port}/storage")
            for name, value in self.headers_sent.items():
                self.send_header(name, value)
        self.send_header("Content-Length", "4" if is_storage else "0")
        self.end_headers()
        if is_storage:
            self.wfile.write(b"GGUF")

    def log_message(self, *_):
        pass


@pytest.mark.parametrize(
    ("stated", "name", "problem"),
    [
        ({"X-Linked-ETag": f'"{hashlib.sha256(b"GGUF").hexdigest()}"', "X-Linked-Size": "4"}, "o/r/f", None),
        ({"X-Linked-ETag": f'"{"0" * 64}"'}, "o/r/f", "SHA-256"),
        ({}, f"o/r/f@sha256:{'0' * 64}", "SHA-256"),
        ({"X-Linked-Size": "900000000000000"}, "o/r/f", "limit"),
        ({"X-Linked-Size": "5"}, "o/r/f", "4 of 5"),
    ],
)
def test_weights_are_checked_and_the_token_stays_at_the_hub(tmp_path, monkeypatch, stated, name, problem):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr(_Hub, "headers_sent", stated)
    monkeypatch.setattr(_Hub, "seen", [])
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("HF_TOKEN", "hf_secret_token")
    try:
        if problem is None:
            assert fetch_weights(name, tmp_path).read_bytes() == b"GGUF"
        else:
            with pytest.raises(InputError, match=problem):
                fetch_weights(name, tmp_path)
            assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    finally:
        server.shutdown()
        server.server_close()
    assert [authorization for path, authorization in _Hub.seen if path == "/storage"] == [None]
    assert _Hub.seen[0][1] == "Bearer hf_secret_token"
