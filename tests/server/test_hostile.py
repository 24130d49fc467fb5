"""Hostile inputs: none breaks the service, reaches a file, an address or another's data, or is handed on as code."""

from __future__ import annotations

import json
import socket

import pytest

from dialore.server.middleware import new_key
from tests.server.conftest import Scripted, need, services
from tests.server.hostile import BODIES, EVERYTHING, FILES, HEADERS, KINDS, PATHS, TEXTS

SECRET = "sk-upstream-0123456789"
JSON = {"Content-Type": "application/json"}


def chat(text, **further):
    return {"messages": [{"role": "user", "content": text}], **further}


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    """A service with something to hide: a key, and a file beside its folder."""
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "persona.json").write_text("hidden", "utf-8")
    model = {"model": "scripted", "api_key": SECRET, "base_url": "http://127.0.0.1:1"}
    with services(folder) as start:
        yield start(Scripted("I am sorry, no [1]."), model=model, agents={"bee": {"method": "vanilla"}})


@pytest.fixture(autouse=True)
def nothing_from_before(target):
    """Each test begins with what it says itself."""
    said = target.http.get("/v1/knowledge/persona").json()
    if said["sentences"]:
        target.http.request("DELETE", "/v1/knowledge/persona", json=said)
    target.model.requests.clear()


def is_sound(running, answer, status=(200, 201, 400, 403, 404, 405, 413, 415, 422)):
    assert answer.status_code in status, (answer.status_code, answer.text[:300])
    assert "Traceback" not in answer.text
    for hidden in (SECRET, "root:x", "hidden", str(running.service.knowledge.folder)):
        assert hidden not in answer.text
    if answer.status_code >= 400 and answer.headers["content-type"] == "application/json":
        assert answer.json()["error"].keys() == {"message", "type", "param", "code"}
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert running.http.get("/healthz").status_code == 200


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_a_text_stays_a_text_in_message_system_document_fact_and_persona(target, text):
    running = target
    running.model.needs[:] = [need("dog")]
    is_sound(running, running.http.post("/v1/chat/completions", json=chat(text, user=text[:200])))
    system = [{"role": "system", "content": text}, {"role": "user", "content": "May I bring my dog?"}]
    document = running.http.post(
        "/v1/knowledge/documents", json={"text": f"dog {text}", "title": text[:300], "url": text}
    )
    is_sound(running, document)
    fact = {"head": f"dog {text}"[:300], "relation": text[:300], "tail": "dog"}
    is_sound(running, running.http.post("/v1/knowledge/facts", json={"facts": [fact]}))
    is_sound(running, running.http.post("/v1/knowledge/persona", json={"sentences": [f"I am {text}"[:300]]}))
    is_sound(running, running.http.get("/v1/knowledge/facts"))
    answer = running.http.post("/v1/chat/completions", json={"messages": system, "stream": True})
    is_sound(running, answer)
    events = [line for line in answer.text.split("\n") if line]
    assert all(line.startswith("data: ") for line in events)
    assert [line for line in events if line == "data: [DONE]"] == events[-1:]
    for line in events[:-1]:
        json.loads(line[6:])
    for request in running.model.requests:
        # What the operator says in the system message reaches the model as it is.
        prompt = "\n".join(message.content.replace(text, "") for message in request.messages)
        assert "<class 'object'>" not in prompt
        assert prompt.count("</knowledge>") == prompt.count("<knowledge>") <= 1


@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
def test_a_malformed_body_is_refused_in_openais_shape(target, body):
    for path in ("/v1/chat/completions", "/v1/ground", "/v1/knowledge/facts"):
        answer = target.http.post(path, content=body, headers=JSON)
        is_sound(target, answer, (400, 404, 413) if path != "/v1/ground" else (200, 400, 404, 413))


@pytest.mark.parametrize("path", PATHS, ids=range(len(PATHS)))
def test_a_path_leads_nowhere_else(target, path):
    for method in ("GET", "DELETE", "POST"):
        answer = target.http.request(method, target.url + path)
        is_sound(target, answer, (400, 403, 404, 405, 414))


@pytest.mark.parametrize("name", FILES, ids=range(len(FILES)))
def test_a_file_lands_in_its_folder_whatever_it_is_called(target, name, tmp_path):
    boundary = "b0undary"
    body = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'.encode()
        + f"Dogs are welcome.\r\n--{boundary}--\r\n".encode()
    )
    head = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
    is_sound(target, target.http.post("/v1/knowledge/files", content=body, headers=head))
    folder = target.service.knowledge.folder
    placed = [path for path in folder.parent.rglob("*") if path.is_file() and path.read_bytes() == b"Dogs are welcome."]
    assert all(path.is_relative_to(folder / "files") and not path.name.startswith(".") for path in placed)


@pytest.mark.parametrize("header", HEADERS, ids=range(len(HEADERS)))
def test_a_tricky_header_opens_nothing(serving, header):
    key, mark = new_key()
    running = serving(server={"keys": [{"name": "app", "sha256": mark}]})
    host, port = running.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as raw:
        raw.sendall(b"GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n" + header + b"\r\n")
        answer = raw.recv(65536)
    assert answer.split(b" ")[1] in {b"400", b"401", b"431"}, answer[:200]
    assert running.http.get("/v1/models", headers={"Authorization": f"Bearer {key}"}).status_code == 200


@pytest.mark.parametrize("kind", KINDS)
def test_a_body_of_another_kind_is_not_read_as_json(target, kind):
    answer = target.http.post(
        "/v1/knowledge/persona", content=b'{"sentences": ["I am evil."]}', headers={"Content-Type": kind}
    )
    is_sound(target, answer, (400, 415))
    assert target.http.get("/v1/knowledge/persona").json() == {"sentences": []}


def test_how_many_hostile_inputs_there_are():
    """The number that the documentation gives; the tests that take them import them from one place."""
    assert sum(len({*map(repr, each)}) for each in EVERYTHING) >= 112


@pytest.mark.parametrize("depth", [600, 980, 5000])
@pytest.mark.parametrize("path", ["/v1/knowledge/documents", "/v1/chat/completions", "/v1/feedback"])
def test_deeply_nested_json_is_refused(serving, path, depth):
    running = serving(Scripted())
    nested = '{"a":' * depth + "1" + "}" * depth
    body = f'{{"text": "Hello", "metadata": {nested}, "messages": [{{"role": "user", "content": "Hi"}}]}}'
    answer = running.http.post(path, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    assert "nested" in answer.json()["error"]["message"]
