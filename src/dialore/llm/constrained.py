"""Decoding that can end in nothing but JSON of a schema, for models that run here."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from dialore.errors import import_optional

_STRING = r'"(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*"'
_PLAIN = {"string": _STRING, "integer": r"-?\d{1,9}", "number": r"-?\d{1,9}(?:\.\d{1,9})?"}
_PLAIN |= {"boolean": "true|false", "null": "null"}
_TAIL = 8
"""Tokens before one that tell how it is written."""


def pattern_of(schema: Mapping[str, Any], definitions: Mapping[str, Any] | None = None) -> str:  # noqa: PLR0911
    """Return a regular expression of the JSON that a pydantic model's schema allows: its fields in order.

    A space may stand beside any mark: tokenizers write some. Schemas that hold themselves are not for it.
    """
    known = definitions if definitions is not None else schema.get("$defs", {})
    if "$ref" in schema:
        return pattern_of(known[schema["$ref"].rpartition("/")[2]], known)
    if "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        return "|".join(re.escape(json.dumps(value, ensure_ascii=False)) for value in values)
    if several := schema.get("anyOf") or schema.get("allOf"):
        return "|".join(f"(?:{pattern_of(each, known)})" for each in several)
    if schema.get("type") == "array":
        return rf"\[{_listed(pattern_of(schema.get('items', {}), known))}\]"
    if "properties" in schema:
        fields = (f'"{name}" ?: ?(?:{pattern_of(each, known)})' for name, each in schema["properties"].items())
        return rf"\{{ ?{' ?, ?'.join(fields)} ?\}}"
    if schema.get("type") == "object":
        inner = schema.get("additionalProperties")
        return rf"\{{{_listed(f'{_STRING} ?: ?(?:{pattern_of(inner if isinstance(inner, dict) else {}, known)})')}\}}"
    return _PLAIN.get(schema.get("type", ""), "|".join(_PLAIN.values()))


def _listed(item: str) -> str:
    return f" ?(?:(?:{item})(?: ?, ?(?:{item}))*)? ?"


class Constrained:
    """A logits processor of transformers for greedy decoding: the likeliest token is left that a schema allows.

    Args:
        tokenizer: the model's.
        schema: the JSON schema.
        given: tokens of a row that stand before the answer.
    """

    def __init__(self, tokenizer: Any, schema: Mapping[str, Any], given: int) -> None:  # noqa: ANN401
        self._tokenizer, self._given = tokenizer, given
        self._pattern = import_optional("regex", "constrained decoding", "local").compile(pattern_of(schema))
        self._special = set(tokenizer.all_special_ids)

    def __call__(self, tokens: Any, scores: Any) -> Any:  # noqa: ANN401 - tensors
        """Return the scores, all but one of each row at minus infinity."""
        import torch

        held = torch.full_like(scores, -torch.inf)
        order = scores.argsort(dim=-1, descending=True).tolist()
        for row, before in enumerate(tokens[:, self._given :].tolist()):
            held[row, self._next(before, order[row])] = 0.0
        return held

    def _next(self, before: list[int], order: Iterable[int]) -> int:
        """Return the first token that may follow; the end, where the answer is whole, or nothing may."""
        end: int = self._tokenizer.eos_token_id
        said, tail = self._decode(before), before[-_TAIL:]
        if self._pattern.fullmatch(said):
            return end
        known = len(self._decode(tail))
        for token in order:
            piece = self._decode([*tail, token])[known:]
            # A token that adds nothing, such as the mark of a space to come, comes once.
            if token in self._special or (not piece and token in before[-1:]):
                continue
            if self._pattern.fullmatch(said + piece, partial=True):
                return token
        return end

    def _decode(self, tokens: list[int]) -> str:
        text: str = self._tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return text
