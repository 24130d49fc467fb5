from __future__ import annotations

import logging
from contextlib import closing

import pytest

from dialore.errors import InputError, ModelError
from dialore.llm import connection
from dialore.llm.connection import connect, find
from dialore.llm.endpoint import Endpoint
from tests.llm.models import ask
from tests.llm.server import FaultyServer

NOWHERE = "http://127.0.0.1:1/v1"


@pytest.fixture(autouse=True)
def no_ollama(monkeypatch):
    monkeypatch.setattr(connection, "OLLAMA", NOWHERE)


def test_nothing_set_and_nothing_found():
    assert connect() is None


def test_arguments_win_then_our_names_then_openai(monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://theirs/v1")
    monkeypatch.setenv("OPENAI_MODEL", "theirs")
    monkeypatch.setenv("OPENAI_API_KEY", "their-key")
    assert find(None, None, None) == ("theirs", "http://theirs/v1", "their-key")
    monkeypatch.setenv("DIALORE_BASE_URL", "http://ours/v1")
    monkeypatch.setenv("DIALORE_MODEL", "ours")
    monkeypatch.setenv("DIALORE_API_KEY", "our-key")
    assert find(None, None, None) == ("ours", "http://ours/v1", "our-key")
    assert find("flag", "http://flag/v1", "flag-key") == ("flag", "http://flag/v1", "flag-key")


def test_openai_key_goes_to_openai_only(monkeypatch, caplog):
    monkeypatch.setenv("OPENAI_API_KEY", "their-key")
    assert find("m", None, None)[1] == "https://api.openai.com/v1"
    assert find("m", "https://api.openai.com/v1", None)[2] == "their-key"
    with caplog.at_level(logging.INFO):
        assert find("m", "http://elsewhere/v1", None)[2] is None
    assert "DIALORE_API_KEY" in caplog.text
    assert "their-key" not in caplog.text


async def test_a_connected_model_answers(faulty_server, tmp_path):
    model = connect("served-model", faulty_server.url, "a-key-1234")
    assert isinstance(model.backend, Endpoint)
    assert (await model.complete(ask())).text == "hello"
    assert faulty_server.calls[0].headers["Authorization"] == "Bearer a-key-1234"
    assert "a-key-1234" not in repr(model)
    await model.close()
    cached = connect("served-model", faulty_server.url, cache=tmp_path / "cache")
    assert cached.cache is not None
    assert [(await cached.complete(ask())).usage.cached for _ in range(2)] == [0, 1]
    await cached.close()


async def test_a_cache_tells_servers_apart(faulty_server, tmp_path):
    with closing(FaultyServer()) as other:
        faulty_server.say("from one")
        other.say("from the other")
        texts = []
        for url in (faulty_server.url, other.url, faulty_server.url, other.url):
            model = connect("m", url, cache=tmp_path / "cache")
            texts.append((await model.complete(ask())).text)
            await model.close()
    assert texts == ["from one", "from the other"] * 2


def test_the_only_model_is_taken(faulty_server):
    faulty_server.models = ["just-this"]
    assert connect(base_url=faulty_server.url, api_key="a-key-1234").name == "just-this"
    assert faulty_server.requests[0].headers["Authorization"] == "Bearer a-key-1234"


def test_several_models_are_named(faulty_server):
    faulty_server.models = ["one", "two"]
    with pytest.raises(InputError, match=r"which model to use .*one, two"):
        connect(base_url=faulty_server.url)


def test_no_list_of_models(faulty_server):
    faulty_server.models = None
    with pytest.raises(ModelError, match="404"):
        connect(base_url=faulty_server.url)
    with pytest.raises(InputError, match="which model"):
        connect(base_url=NOWHERE)


def test_ollama_is_found(faulty_server, monkeypatch):
    faulty_server.models = ["llama3:latest", "qwen:7b"]
    with monkeypatch.context() as here:
        here.setattr(connection, "OLLAMA", faulty_server.url)
        assert connect().name == "llama3:latest"
        assert connect("llama3").name == "llama3:latest"
        with pytest.raises(InputError, match="did you mean qwen:7b"):
            connect("qwen:9b")
    with pytest.raises(InputError, match="no endpoint is known for the model 'm'"):
        connect("m")


@pytest.mark.parametrize("url", ["localhost:11434", "ftp://x", "http://"])
def test_bad_address(url):
    with pytest.raises(InputError, match="not an endpoint's address"):
        connect("m", url)
    with pytest.raises(InputError, match="not an endpoint's address"):
        connect(None, url)


def test_bad_cache(tmp_path):
    (tmp_path / "diary").write_text("dear diary " * 100)
    with pytest.raises(InputError, match="not a cache"):
        connect("m", "http://h/v1", cache=tmp_path / "diary")


def test_a_local_model_is_named_by_its_prefix():
    assert connect("hf:some/model").name == "some/model"


KEYS = {"DIALORE_API_KEY": "our-key", "OPENAI_API_KEY": "their-key", "OTHER_KEY": "other-key"}


@pytest.mark.parametrize(
    ("environment", "asked", "key"),
    [
        # The user himself names the address.
        ({}, {"base_url": "http://mine/v1"}, "our-key"),
        ({"DIALORE_BASE_URL": "http://mine/v1"}, {}, "our-key"),
        # A key that was set for an address goes to no other.
        ({"DIALORE_BASE_URL": "http://mine/v1"}, {"base_url": "http://evil/v1"}, None),
        ({"DIALORE_BASE_URL": "http://mine:8000/v1"}, {"base_url": "http://mine:9000/v1"}, None),
        ({"DIALORE_BASE_URL": "http://mine/v1"}, {"base_url": "http://mine/other"}, "our-key"),
        (
            {"DIALORE_BASE_URL": "http://mine/v1", "DIALORE_KEY_HOSTS": "a, other"},
            {"base_url": "http://other/v1"},
            "our-key",
        ),
        # A file names it.
        ({}, {"base_url": "http://evil/v1", "named_by": "run.yaml"}, None),
        ({"DIALORE_BASE_URL": "http://mine/v1"}, {"base_url": "http://mine/v1", "named_by": "run.yaml"}, "our-key"),
        ({"DIALORE_KEY_HOSTS": "good"}, {"base_url": "https://good/v1", "named_by": "run.yaml"}, "our-key"),
        ({}, {"base_url": "http://evil/v1", "named_by": "run.yaml", "api_key": "said"}, "said"),
        ({}, {"base_url": "http://x/v1", "key_env": "OTHER_KEY"}, "other-key"),
        ({"DIALORE_KEY_HOSTS": "x"}, {"base_url": "http://x/v1", "key_env": "OTHER_KEY", "named_by": "f"}, "other-key"),
    ],
)
def test_a_key_goes_to_the_host_that_it_was_set_for(monkeypatch, environment, asked, key):
    for name, value in {**KEYS, **environment}.items():
        monkeypatch.setenv(name, value)
    assert find("m", asked.pop("base_url", None), asked.pop("api_key", None), **asked)[2] == key


def test_a_key_that_is_not_sent_is_said(monkeypatch, caplog):
    monkeypatch.setenv("DIALORE_API_KEY", "our-key")
    find("m", "http://evil:81/v1", None, named_by="run.yaml")
    assert "DIALORE_API_KEY is not sent to http://evil:81/v1, which run.yaml names" in caplog.text
    assert "DIALORE_KEY_HOSTS=evil:81" in caplog.text
    assert "our-key" not in caplog.text
    monkeypatch.setenv("OTHER_KEY", "other-key")
    with pytest.raises(InputError, match=r"OTHER_KEY is not sent to http://evil/v1.*DIALORE_KEY_HOSTS=evil"):
        find("m", "http://evil/v1", None, key_env="OTHER_KEY", named_by="run.yaml")
    with pytest.raises(InputError, match="the environment has no MISSING_KEY"):
        find("m", "http://x/v1", None, key_env="MISSING_KEY")


async def test_further_fields_go_into_the_body_and_the_caches_key(faulty_server, tmp_path):
    for body in ({"top_k": 5}, {"top_k": 5}, {"top_k": 9, "temperature": 2}):
        model = connect("m", faulty_server.url, cache=tmp_path / "cache", extra_body=body)
        await model.complete(ask())
        await model.close()
    assert [(sent.body["top_k"], sent.body["temperature"]) for sent in faulty_server.calls] == [(5, 0.7), (9, 2)]
    with pytest.raises(InputError, match="takes no extra_body"):
        connect("hf:some/model", extra_body={"top_k": 5})
