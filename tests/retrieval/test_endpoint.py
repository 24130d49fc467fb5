"""The endpoint embedder against a real server that misbehaves to order."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from dialore.errors import InputError, ModelError
from dialore.llm.pacing import Retry
from dialore.retrieval.encoders import EndpointEmbedder
from tests.llm.server import answer, drop, hang, html, status
from tests.retrieval.embedding_server import embeddings, vector


def unit(text):
    values = np.array(vector(text))
    return values / np.linalg.norm(values)


@pytest.fixture
def make(embedding_server, monkeypatch):
    monkeypatch.setattr("dialore.retrieval.encoders.Retry", functools.partial(Retry, uniform=lambda: 0.0))
    return lambda **settings: EndpointEmbedder("small", embedding_server.url, "sk-secret-key", **settings)


def test_batches_skip_blank_texts_and_keep_order(make, embedding_server):
    texts = ["a", "", "b", "c", "  ", "d", "e"]
    vectors = make(batch_size=2).encode(texts)
    assert [asked.body["input"] for asked in embedding_server.requests] == [["a", "b"], ["c", "d"], ["e"]]
    assert not vectors[[1, 4]].any()
    for at in (0, 2, 3, 5, 6):
        assert np.allclose(vectors[at], unit(texts[at]), atol=1e-6)
    asked = embedding_server.requests[0]
    assert asked.path.endswith("/embeddings")
    assert asked.body["model"] == "small"
    assert asked.headers["Authorization"] == "Bearer sk-secret-key"


def test_dimension_is_asked_once(make, embedding_server):
    embedder = make()
    assert (embedder.dimension, embedder.dimension) == (8, 8)
    assert len(embedding_server.requests) == 1


@pytest.mark.parametrize("fault", [status(503), status(429, Retry_After="0"), drop()])
def test_passing_trouble_is_retried(make, embedding_server, fault):
    embedding_server.reply(fault, fault)
    assert np.allclose(make().encode(["a"])[0], unit("a"), atol=1e-6)
    assert len(embedding_server.requests) == 3


def test_retries_come_to_an_end(make, embedding_server):
    embedding_server.always = status(503, "too busy")
    with pytest.raises(ModelError, match=r"503.*too busy") as caught:
        make(retries=2).encode(["a"])
    assert caught.value.retryable
    assert len(embedding_server.requests) == 3


def test_a_refused_key_is_not_retried_and_not_shown(make, embedding_server):
    embedding_server.always = status(401, "Incorrect API key provided: sk-secret-key")
    with pytest.raises(ModelError, match="401") as caught:
        make().encode(["a"])
    assert caught.value.configuration
    assert "sk-secret-key" not in str(caught.value)
    assert len(embedding_server.requests) == 1


@pytest.mark.parametrize(
    "reply",
    [
        html(),
        answer({"data": []}),
        answer({"data": [{"index": 0, "embedding": ["x"]}]}),
        answer({"data": [{"index": 0, "embedding": [None, 1.0]}]}),
        answer([1]),
        answer({"choices": []}),
    ],
)
def test_answers_that_are_no_embeddings(make, embedding_server, reply):
    embedding_server.always = reply
    with pytest.raises(ModelError, match=r"did not answer with embeddings|with a web page|broken JSON|empty body"):
        make().encode(["a"])


def test_vectors_that_change_their_length(make, embedding_server):
    embedder = make()
    embedder.encode(["a"])
    embedding_server.always = embeddings(4)
    with pytest.raises(ModelError, match="4 components after 8"):
        embedder.encode(["a"])


def test_redirects_are_reported_not_followed(make, embedding_server):
    embedding_server.always = answer({}, 307, Location="http://elsewhere.invalid/v1")
    with pytest.raises(ModelError, match="307"):
        make().encode(["a"])


def test_time_out(make, embedding_server):
    embedding_server.always = hang(5)
    with pytest.raises(ModelError, match=r"did not finish its answer in 0\.2 s"):
        make(timeout=0.2, retries=0).encode(["a"])


def test_nothing_listens():
    with pytest.raises(ModelError, match="nothing listens"):
        EndpointEmbedder("small", "http://127.0.0.1:9/v1", retries=0).encode(["a"])


def test_no_address():
    with pytest.raises(InputError, match="no endpoint"):
        EndpointEmbedder("small")


def test_address_from_the_environment(embedding_server, monkeypatch):
    monkeypatch.setenv("DIALORE_BASE_URL", embedding_server.url)
    monkeypatch.setenv("DIALORE_API_KEY", "k-1")
    assert EndpointEmbedder("small").encode(["a"]).any()
    assert embedding_server.requests[0].headers["Authorization"] == "Bearer k-1"


def test_fingerprint_tells_models_apart():
    url = "http://localhost:1/v1"
    assert EndpointEmbedder("a", url).fingerprint != EndpointEmbedder("b", url).fingerprint
    assert EndpointEmbedder("a", url + "/").fingerprint == EndpointEmbedder("a", url).fingerprint


def test_a_key_goes_to_the_host_that_it_was_set_for_alone(embedding_server, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "theirs")
    monkeypatch.setenv("DIALORE_API_KEY", "ours")
    monkeypatch.setenv("DIALORE_BASE_URL", "http://localhost:9/v1")
    EndpointEmbedder("m", embedding_server.url).encode(["a"])
    assert "Authorization" not in embedding_server.requests[-1].headers
    monkeypatch.setenv("OPENAI_BASE_URL", embedding_server.url)
    EndpointEmbedder("m", embedding_server.url).encode(["a"])
    assert embedding_server.requests[-1].headers["Authorization"] == "Bearer theirs"
