"""What every embedder must do, whichever it is; and how specs are read."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from dialore.errors import InputError, MissingExtraError, UnknownNameError
from dialore.retrieval.embedding import Embedder, load_embedder
from tests.retrieval import tiny_transformer

TEXTS = ["A dog needs a walk.", "狗需要散步。", "", "rain", "雨 rain", "A dog needs a walk."]
pytestmark = pytest.mark.filterwarnings("ignore:.*:DeprecationWarning", "ignore:.*:FutureWarning")


@pytest.fixture(scope="module")
def transformer_folder(tmp_path_factory):
    return tiny_transformer.make(tmp_path_factory.mktemp("transformer"))


@pytest.fixture(
    params=[
        "static",
        "endpoint",
        pytest.param("st", marks=tiny_transformer.needs_sentence_transformers),
    ]
)
def spec(request, embedding_server):
    if request.param == "endpoint":
        return f"endpoint:small@{embedding_server.url}"
    if request.param == "st":
        return f"st:{request.getfixturevalue('transformer_folder')}"
    return request.param


def test_conformance(spec):
    embedder = load_embedder(spec)
    assert isinstance(embedder, Embedder)
    vectors = embedder.encode(TEXTS)
    assert vectors.dtype == np.float32
    assert vectors.shape == (len(TEXTS), embedder.dimension)
    lengths = np.linalg.norm(vectors, axis=1)
    assert not vectors[2].any()
    assert np.allclose(np.delete(lengths, 2), 1, atol=1e-5)
    assert np.array_equal(vectors[0], vectors[5])
    assert vectors[0] @ vectors[3] < 0.99


def test_no_texts(spec):
    embedder = load_embedder(spec)
    assert embedder.encode([]).shape == (0, embedder.dimension)


def test_name_and_fingerprint_are_the_same_when_loaded_again(spec):
    first = load_embedder(spec)
    second = load_embedder(first.name)
    assert (second.name, second.fingerprint) == (first.name, first.fingerprint)
    assert len(first.fingerprint) == 16
    assert np.allclose(first.encode(TEXTS), second.encode(TEXTS), atol=1e-6)


def test_batches_do_not_change_vectors(spec):
    embedder = load_embedder(spec)
    alone = np.concatenate([embedder.encode([text]) for text in TEXTS])
    assert np.allclose(embedder.encode(TEXTS), alone, atol=1e-5)


@tiny_transformer.needs_sentence_transformers
def test_other_weights_have_another_fingerprint(tmp_path, transformer_folder):
    other = tiny_transformer.make(tmp_path, seed=1)
    assert load_embedder(f"st:{other}").fingerprint != load_embedder(f"st:{transformer_folder}").fingerprint


@tiny_transformer.needs_sentence_transformers
def test_vectors_for_a_dot_product_keep_their_lengths(transformer_folder):
    plain, unit = load_embedder(f"dot:{transformer_folder}"), load_embedder(f"st:{transformer_folder}")
    assert (plain.name, plain.fingerprint != unit.fingerprint) == (f"dot:{transformer_folder}", True)
    rows = plain.encode(TEXTS)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    assert lengths.max() > 1.01
    assert np.allclose(rows / np.where(lengths, lengths, 1), unit.encode(TEXTS), atol=1e-5)


@tiny_transformer.needs_sentence_transformers
def test_a_folder_without_a_model_is_one_clear_line(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(InputError, match="cannot load the sentence-transformers model") as caught:
        load_embedder(f"st:{tmp_path}")
    assert "\n" not in str(caught.value)


def test_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(MissingExtraError, match=r"\[sentence-transformers\]"):
        load_embedder("st:anything")


def test_unknown_spec_suggests():
    with pytest.raises(UnknownNameError, match="did you mean static"):
        load_embedder("statik")


@pytest.mark.parametrize("spec", ["st:", "endpoint", "onnx"])
def test_incomplete_specs(spec):
    with pytest.raises(InputError):
        load_embedder(spec)


def test_importing_the_room_is_light():
    program = "import sys, dialore.retrieval; print(sorted({'numpy','jieba','tokenizers','torch'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
