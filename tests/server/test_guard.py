"""Who may ask, how much and how large; nothing of a key is ever told."""

from __future__ import annotations

import asyncio
import json
import logging
from datetime import UTC, datetime

import pytest

from dialore.errors import InputError
from dialore.server.app import create_app
from dialore.server.middleware import new_key
from dialore.server.telemetry import JsonLines
from dialore.settings import Settings, check_settings
from tests.server.conftest import Scripted, wait_until


def keyed(name="app", **limits):
    key, mark = new_key()
    return key, {"name": name, "sha256": mark, **limits}


def bearer(key):
    return {"Authorization": f"Bearer {key}"}


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org", ""])
def test_a_public_address_is_refused_without_keys(host, tmp_path):
    with pytest.raises(InputError, match="keys"):
        create_app(check_settings(Settings, {"server": {"host": host, "folder": str(tmp_path)}}, where="test"))


def test_a_key_opens_and_anything_else_does_not(serving):
    key, entry = keyed()
    running = serving(server={"keys": [entry]})
    assert running.http.get("/v1/models", headers=bearer(key)).status_code == 200
    for headers in ({}, bearer(key[:-1]), bearer(entry["sha256"]), bearer("-"), {"Authorization": key}):
        answer = running.http.get("/v1/models", headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")
    for path in ("/metrics", "/openapi.json", "/v1/traces/x", "/v1/knowledge/facts"):
        assert running.http.get(path).status_code == 401
    assert running.http.get("/healthz").json() == running.http.get("/readyz").json() == {"status": "ok"}


def test_only_a_key_that_may_changes_the_knowledge(serving):
    (reader, first), (writer, second) = keyed("reader"), keyed("writer", knowledge=True)
    running = serving(server={"keys": [first, second]})
    body = {"sentences": ["I keep bees."]}
    assert running.http.post("/v1/knowledge/persona", json=body, headers=bearer(reader)).status_code == 403
    assert running.http.post("/v1/knowledge/persona", json=body, headers=bearer(writer)).status_code == 201
    assert running.http.get("/v1/knowledge/persona", headers=bearer(reader)).json() == body


def test_a_trace_is_for_the_key_that_asked(serving):
    (one, first), (other, second) = keyed("one"), keyed("other")
    running = serving(server={"keys": [first, second]})
    ask = {"messages": [{"role": "user", "content": "Hello"}]}
    made = running.http.post("/v1/chat/completions", json=ask, headers=bearer(one)).json()
    trace = f"/v1/traces/{made['choices'][0]['message']['grounding']['trace']}"
    assert running.http.get(trace, headers=bearer(one)).status_code == 200
    assert running.http.get(trace, headers=bearer(other)).status_code == 404


def test_rate_and_tokens_of_a_key_are_limited(serving):
    (quick, first), (big, second) = keyed("quick", requests_per_minute=2), keyed("big", tokens_per_day=150)
    running, other = (serving(server={"keys": [first, second]}) for _ in range(2))
    running.service.store._clock = other.service.store._clock = lambda: datetime(2026, 11, 22, 12, tzinfo=UTC)
    codes = [running.http.get("/v1/models", headers=bearer(quick)).status_code for running in (running, other, running)]
    assert codes == [200, 200, 429]
    running.service.store._clock = lambda: datetime(2026, 11, 22, 12, 1, tzinfo=UTC)
    assert running.http.get("/v1/models", headers=bearer(quick)).status_code == 200
    ask = {"messages": [{"role": "user", "content": "Hello"}]}
    answers = [each.http.post("/v1/chat/completions", json=ask, headers=bearer(big)) for each in (running, other)]
    assert [answer.status_code for answer in answers] == [200, 429]
    assert answers[1].json()["error"]["type"] == "rate_limit_error"
    assert int(answers[1].headers["Retry-After"]) >= 1


@pytest.mark.parametrize("how", ["gone", "late"])
def test_a_response_that_is_given_up_is_charged_what_it_took(serving, how):
    key, entry = keyed(tokens_per_day=10_000)
    seconds = 2 if how == "late" else 300
    running = serving(Scripted("word " * 2000, pause=0.01), server={"keys": [entry], "max_seconds": seconds})
    ask = {"messages": [{"role": "user", "content": "Hello " * 400}], "stream": True}
    with running.http.stream("POST", "/v1/chat/completions", json=ask, headers=bearer(key)) as answer:
        text = answer.iter_text()
        for _ in range(20):
            next(text, None)
    wait_until(lambda: running.model.under_way == 0 and not running.service._tasks)
    loop = running.server.servers[0].get_loop()
    spent = asyncio.run_coroutine_threadsafe(running.service.store.count("app", "tokens", 0, 86_400), loop).result(10)
    # The needs' 110, and the draft's prompt and text by estimate: 2400 characters and more.
    assert 110 + 600 < spent < 3000
    figures = running.http.get("/metrics", headers=bearer(key)).text
    assert f'dialore_tokens_total{{kind="completion",model="dialore"}} {10.0}' not in figures


def test_overload_is_answered_with_when_to_come_again(serving):
    running = serving(Scripted(pause=0.05), server={"concurrency": 1})
    body = {"messages": [{"role": "user", "content": "Hello"}], "stream": True}
    with running.http.stream("POST", "/v1/chat/completions", json=body) as first:
        lines = first.iter_lines()
        next(lines)
        second = running.say()
        assert (second.status_code, second.headers["Retry-After"]) == (429, "1")
        assert running.http.get("/healthz").status_code == 200
        list(lines)
    assert running.say().status_code == 200


def test_bodies_are_limited_also_where_their_length_is_not_told(serving):
    running = serving(server={"max_body": 1000})
    large = json.dumps({"messages": [{"role": "user", "content": "x" * 2000}]}).encode()
    head = {"Content-Type": "application/json"}
    told = running.http.post("/v1/chat/completions", content=large, headers=head)
    untold = running.http.post("/v1/chat/completions", content=iter([large[:700], large[700:]]), headers=head)
    for answer in (told, untold):
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "request_too_large")


def test_other_sites_and_other_names_are_refused(serving):
    running = serving(server={"origins": ["https://mine.example"]})

    def ask(**headers):
        return running.http.get("/v1/models", headers=headers)

    assert ask(Origin="https://evil.example").status_code == 403
    assert ask(Origin="null").status_code == 403
    assert ask(Host="evil.example").status_code == 403
    assert ask(Host="evil.example@127.0.0.1").status_code == 403
    assert ask(Host="[").status_code == 400
    assert ask(Origin="http://[").status_code == 400
    assert ask(Origin=running.url).status_code == 200
    mine = ask(Origin="https://mine.example")
    assert mine.headers["access-control-allow-origin"] == "https://mine.example"
    assert "access-control-allow-origin" not in ask().headers


@pytest.mark.parametrize("origins", [["https://mine.example/"], ["*"]])
def test_a_page_of_another_site_asks_by_the_package_of_openai(serving, origins):
    running = serving(server={"origins": origins})
    headers = {"Origin": "https://mine.example", "Access-Control-Request-Method": "POST"}
    own = "authorization,content-type,x-stainless-os,x-stainless-lang,x-stainless-timeout,x-stainless-retry-count"
    asked = running.http.options("/v1/chat/completions", headers=headers | {"Access-Control-Request-Headers": own})
    assert asked.status_code == 200
    assert set(own.split(",")) <= set(asked.headers["access-control-allow-headers"].replace(" ", "").split(","))
    made = running.http.get("/v1/models", headers={"Origin": "https://mine.example"})
    assert made.status_code == 200
    assert made.headers["access-control-allow-origin"] in {"https://mine.example", "*"}


def test_without_origins_no_page_is_told_that_it_may(serving):
    running = serving()
    asked = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    answer = running.http.options("/v1/chat/completions", headers=asked)
    assert answer.status_code == 403
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_neither_keys_nor_what_is_said_stand_in_logs_traces_or_figures(serving, caplog):
    key, entry = keyed()
    caplog.set_level(logging.DEBUG, "dialore")
    running = serving(server={"keys": [entry]})
    ask = {"messages": [{"role": "user", "content": "my-secret-word"}]}
    made = running.http.post("/v1/chat/completions", json=ask, headers=bearer(key)).json()
    trace = running.http.get(f"/v1/traces/{made['choices'][0]['message']['grounding']['trace']}", headers=bearer(key))
    logged = "\n".join(JsonLines().format(record) for record in caplog.records)
    figures = running.http.get("/metrics", headers=bearer(key)).text
    for text in (logged, figures, trace.text):
        assert key not in text
        assert entry["sha256"] not in text
    assert "my-secret-word" not in logged + figures
    line = next(json.loads(each) for each in logged.splitlines() if "chat/completions" in each)
    assert (line["event"], line["status"], line["key"], line["model"]) == ("request", 200, "app", "dialore")
    assert 'dialore_requests_total{route="/v1/chat/completions",status="200"} 1.0' in figures


def test_the_openapi_document_names_every_route(serving):
    paths = serving().http.get("/openapi.json").json()["paths"]
    assert {"/v1/chat/completions", "/v1/models", "/v1/ground", "/v1/knowledge/files", "/healthz"} <= set(paths)


@pytest.mark.parametrize(
    "path",
    ["/v1/memory/", "/v1/conversations/", "/v1/feedback/..%2fmemory", "/v1/feedback/%2e%2e%2fmemory", "//v1/memory"],
)
def test_an_id_cannot_lead_to_another_route(serving, path):
    running = serving(Scripted())
    running.http.put("/v1/memory/consent", json={"user": "page", "consents": True})
    answer = running.http.request("DELETE", f"{running.url}{path}", params={"user": "page"}, follow_redirects=True)
    assert answer.status_code == 404
    assert running.http.get("/v1/memory", params={"user": "page"}).json()["consents"]
