"""A tiny random sentence-transformers model, made on the spot."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

HAVE = importlib.util.find_spec("sentence_transformers") is not None
needs_sentence_transformers = pytest.mark.skipif(
    not HAVE, reason="sentence-transformers is not installed: pip install 'dialore[sentence-transformers]'"
)
WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    *"abcdefghijklmnopqrstuvwxyz",
    *(f"##{c}" for c in "abcdefghijklmnopqrstuvwxyz"),
]


def make(folder: Path, seed: int = 0) -> str:
    """Save the model in the folder and return its path."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, Transformer
    from transformers import BertConfig, BertModel, BertTokenizerFast

    bert = folder / "bert"
    bert.mkdir(parents=True)
    (bert / "vocab.txt").write_text("\n".join(WORDS))
    BertTokenizerFast(vocab=str(bert / "vocab.txt")).save_pretrained(bert)
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(WORDS), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
    BertModel(config).save_pretrained(bert)
    transformer = Transformer(str(bert))
    path = folder / "model"
    SentenceTransformer(modules=[transformer, Pooling(16)], device="cpu").save(str(path))
    return str(path)
