"""Decoding that can end in nothing but JSON of a schema, for models that run here (llguidance)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from dialore.errors import ModelError, import_optional


class Vocabulary:
    """A tokenizer as llguidance reads it: a second's work, once a model.

    Args:
        tokenizer: of transformers.
        size: how many tokens the model scores.
        ends: the tokens that end an answer.
    """

    def __init__(self, tokenizer: Any, size: int, ends: list[int]) -> None:  # noqa: ANN401
        self._guidance = import_optional("llguidance", "constrained decoding", "local")
        adapter = import_optional("llguidance.hf", "constrained decoding", "local")
        self._tokenizer = adapter.from_tokenizer(tokenizer, n_vocab=size, eos_token=ends)

    def matcher(self, schema: Mapping[str, Any]) -> Any:  # noqa: ANN401 - an LLMatcher
        """Return what follows an answer and says which tokens may come next; raise ModelError for an odd schema."""
        grammar = self._guidance.LLMatcher.grammar_from_json_schema(
            json.dumps(schema), defaults={"whitespace_pattern": " ?"}
        )
        matcher = self._guidance.LLMatcher(self._tokenizer, grammar, log_level=0)
        if matcher.is_error():
            why = f"the schema cannot be decoded by: {matcher.get_error()}"
            raise ModelError(why, hint="ask without a schema", configuration=True)
        return matcher


class Constrained:
    """A logits processor of transformers: only what a schema allows may be written.

    Args:
        vocabulary: the model's.
        schema: the JSON schema.
        given: tokens of a row that stand before the answer.
    """

    def __init__(self, vocabulary: Vocabulary, schema: Mapping[str, Any], given: int) -> None:
        self._vocabulary, self._schema, self._given = vocabulary, schema, given
        self._matchers: list[Any] = []

    def __call__(self, tokens: Any, scores: Any) -> Any:  # noqa: ANN401 - tensors
        """Return the scores, those of tokens that may not come next at minus infinity."""
        import torch

        if not self._matchers:
            first = self._vocabulary.matcher(self._schema)
            self._matchers = [first, *(first.deep_copy() for _ in range(len(tokens) - 1))]
        answers = tokens[:, self._given :].tolist()
        masks = []
        for matcher, answer in zip(self._matchers, answers, strict=True):
            if answer and not matcher.is_stopped():
                matcher.consume_token(answer[-1])
            # After its end a row is filled up with padding by transformers, whatever its scores are.
            masks.append(matcher.compute_bitmask())
        bits = np.frombuffer(b"".join(masks), np.uint8).reshape(len(masks), -1)
        allowed = np.unpackbits(bits, axis=1, bitorder="little", count=scores.shape[1]).astype(bool)
        return scores.masked_fill(~torch.from_numpy(allowed).to(scores.device), -torch.inf)
