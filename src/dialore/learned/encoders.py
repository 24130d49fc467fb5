"""Fine-tuned encoders, run by ONNX Runtime without torch: rankers, and a model of entailment.

A model's folder has `model.onnx` (int8) and `tokenizer.json`, which are used here, beside what sentence-transformers
loads, and `model.json`.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dialore.errors import InputError, first_line, import_optional
from dialore.learned.dialogue_ranking import DialogueRanker, joined
from dialore.learned.model import PREFIX, describe
from dialore.retrieval.encoders import OnnxEmbedder
from dialore.retrieval.reranking import Remembered

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dialore.dialogue import Dialogue

_BATCH = 32
_EARLIER = 2


def asked(query: str, dialogue: Dialogue) -> str:
    """Return what a piece is compared with: the query and the turns before it, the latest first."""
    earlier = [turn.text for turn in dialogue.turns[-1 - _EARLIER : -1]]
    return joined(" | ".join([query, *reversed(earlier)]))


class OnnxCrossEncoder:
    """Logits of pairs of texts that are read together, by ONNX Runtime on the CPU.

    Args:
        folder: holds `model.onnx`, whose first output has a logit a pair, and `tokenizer.json`.
        length: tokens of a pair that are read.

    Raises:
        MissingExtraError: onnxruntime or tokenizers is not installed.
        InputError: they cannot be read.
    """

    def __init__(self, folder: Path, *, length: int) -> None:
        onnxruntime, tokenizers = (import_optional(name, "a trained encoder", "onnx") for name in _NEEDED)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
            self._session = onnxruntime.InferenceSession(str(folder / "model.onnx"), options, _PROVIDERS)
        except Exception as error:  # both libraries raise bare exceptions of their own
            raise InputError(f"{folder}: cannot load the model: {first_line(error)}", hint="train it again") from error
        self._tokenizer.enable_truncation(length, strategy="longest_first")
        self._tokenizer.enable_padding(pad_id=self._tokenizer.token_to_id("[PAD]") or 0)
        self._inputs = {item.name for item in self._session.get_inputs()}

    def logits(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float64]:
        """Return the logit of each pair."""
        found = np.zeros(len(pairs))
        order = sorted(range(len(pairs)), key=lambda at: sum(map(len, pairs[at])))
        for start in range(0, len(pairs), _BATCH):
            batch = order[start : start + _BATCH]
            rows = self._tokenizer.encode_batch([pairs[at] for at in batch])
            feed: dict[str, Any] = {
                "input_ids": np.array([row.ids for row in rows], np.int64),
                "attention_mask": np.array([row.attention_mask for row in rows], np.int64),
                "token_type_ids": np.array([row.type_ids for row in rows], np.int64),
            }
            found[batch] = self._session.run(None, {name: feed[name] for name in self._inputs})[0][:, 0]
        return found


_NEEDED = ("onnxruntime", "tokenizers")
_PROVIDERS = ["CPUExecutionProvider"]


class TrainedEncoder(DialogueRanker):
    """Scores persona sentences and documents by what `dialore train retriever --kind dual|cross` fine-tuned.

    Args:
        path: the model's folder.

    Raises:
        InputError: it is no such model, or damaged.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.name = f"{PREFIX}{path}"
        card = checked(path, ("dual", "cross"))
        length, self._is_whole = card["settings"]["length"], card["settings"].get("whole", False)
        dual = (
            OnnxEmbedder(path, longest=length, unit=not card["settings"].get("dot")) if card["kind"] == "dual" else None
        )
        self._encoder = None if dual is None else Remembered(dual)
        self._cross = OnnxCrossEncoder(path, length=length) if card["kind"] == "cross" else None

    def sentences(self, query: str, dialogue: Dialogue, persona: Mapping[str, Sequence[str]]) -> NDArray[np.float64]:
        """Return the score of each persona sentence."""
        return self.documents(query, dialogue, list(persona))

    def documents(self, query: str, dialogue: Dialogue, texts: Sequence[str]) -> NDArray[np.float64]:
        """Return the score of each text."""
        if not texts:
            return np.zeros(0)
        # A model of the whole context gets that as the query.
        about = joined(query) if self._is_whole else asked(query, dialogue)
        read = [joined(text) for text in texts]
        if self._cross is not None:
            return self._cross.logits([(about, text) for text in read])
        assert self._encoder is not None
        vectors = self._encoder.encode([about, *read])
        return np.asarray(vectors[1:] @ vectors[0], np.float64)


class CrossEntailment:
    """Entailment of responses by knowledge, by a cross-encoder of `dialore train nli --kind cross`.

    Args:
        path: the model's folder.

    Raises:
        InputError: it is no such model, or damaged.
    """

    def __init__(self, path: Path) -> None:
        self._cross = OnnxCrossEncoder(path, length=checked(path, ("nli-cross",))["settings"]["length"])

    def entails(self, pairs: Sequence[tuple[str, str]]) -> list[bool]:
        """Return whether each second text is entailed by its first."""
        read = [(joined(first), joined(second)) for first, second in pairs]
        return [bool(logit >= 0) for logit in self._cross.logits(read)]


def checked(path: Path, kinds: Sequence[str]) -> dict[str, Any]:
    """Return a model's description; raise InputError where it is of none of the kinds, or its weights are others."""
    card = describe(path)
    if card["kind"] not in kinds:
        raise InputError(f"{path} is a trained {card['kind']}, not a {' or '.join(kinds)}", hint="name another folder")
    onnx = path / "model.onnx"
    if not onnx.is_file() or hashlib.sha256(onnx.read_bytes()).hexdigest() != card["onnx"]:
        raise InputError(f"{path}: model.onnx is not what it was saved with", hint="train it again")
    return card


open_cross = functools.lru_cache(4)(CrossEntailment)
