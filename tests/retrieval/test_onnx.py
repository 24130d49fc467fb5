"""The ONNX embedder runs real models: a small one made here, of the form that the exporting script writes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from dialore.errors import InputError
from dialore.retrieval.embedding import Embedder, load_embedder

if TYPE_CHECKING:
    from pathlib import Path

onnx = pytest.importorskip("onnx", reason="needs onnx to make a model")
pytest.importorskip("onnxruntime", reason="needs the onnx extra")

WORDS = ["[PAD]", "[UNK]", "tea", "cup", "warm", "dog"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model whose last layer's states are its words' one-hot vectors."""
    from onnx import TensorProto, helper, numpy_helper
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    table = numpy_helper.from_array(np.eye(len(WORDS), dtype=np.float32), "table")
    shape = ["batch", "length"]
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "input_ids"], ["states"])],
        "words",
        [helper.make_tensor_value_info(name, TensorProto.INT64, shape) for name in ("input_ids", "attention_mask")],
        [helper.make_tensor_value_info("states", TensorProto.FLOAT, [*shape, len(WORDS)])],
        [table],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(tmp_path / "model.onnx"))
    tokenizer = Tokenizer(WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    # As files made for training do: a fixed length, which must not reach the model.
    tokenizer.enable_padding(length=128)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def test_states_are_pooled_without_the_padding(folder: Path) -> None:
    embedder = load_embedder(f"onnx:{folder}")
    assert isinstance(embedder, Embedder)
    assert embedder.dimension == len(WORDS)
    assert embedder.name == f"onnx:{folder}"
    vectors = embedder.encode(["tea", "", "warm tea cup", "tea tea cup"])
    expected = np.zeros((4, len(WORDS)))
    expected[0, 2] = 1
    expected[2, [2, 3, 4]] = 3**-0.5
    expected[3, [2, 3]] = np.array([2, 1]) / 5**0.5
    assert vectors == pytest.approx(expected, abs=1e-6)
    assert vectors.dtype == np.float32


def test_a_batch_is_what_its_texts_are_alone(folder: Path) -> None:
    from dialore.retrieval.encoders import OnnxEmbedder

    texts = [" ".join(WORDS[2 + (i + j) % 4] for j in range(i % 7 + 1)) for i in range(40)]
    embedder = OnnxEmbedder(folder)
    alone = np.concatenate([embedder.encode([text]) for text in texts])
    assert embedder.encode(texts) == pytest.approx(alone, abs=1e-6)
    assert embedder.encode([]).shape == (0, len(WORDS))
    short = OnnxEmbedder(folder, longest=1)
    assert short.encode(["tea cup"])[0].tolist() == short.encode(["tea"])[0].tolist()


def test_its_fingerprint_is_its_weights(folder: Path) -> None:
    first = load_embedder(f"onnx:{folder}").fingerprint
    assert load_embedder(f"onnx:{folder}").fingerprint == first
    content = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps(content, indent=1))
    assert load_embedder(f"onnx:{folder}").fingerprint != first


def test_what_is_missing_is_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"model\.onnx is missing"):
        load_embedder(f"onnx:{tmp_path / 'nowhere'}")
    (folder / "model.onnx").write_bytes(b"no model")
    with pytest.raises(InputError, match="cannot load the ONNX model"):
        load_embedder(f"onnx:{folder}")
    with pytest.raises(InputError, match="write onnx:FOLDER"):
        load_embedder("onnx")
