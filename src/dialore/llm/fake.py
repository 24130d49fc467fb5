"""Answers without a model or meaning: for estimates of what a run will cost, and for benchmarks of everything else.

They fit the wanted JSON schema and are made of the prompt's own words, so that every part of a method has work to do.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

from dialore.llm.model import Completion, OnToken, Request, Usage
from dialore.text import HAN

_LATIN = re.compile(r"[a-zA-Z]{4,}")
_CHINESE = re.compile(rf"[{HAN}]{{2}}")
_NUMBERED = re.compile(r"^[ \t]*\[?(\d+)[\].)]", re.MULTILINE)
_TURN = re.compile(r"\w+[:：]")
_ASIDE = {"en": ["friend", "music", "tea", "walk"], "zh": ["朋友", "休息", "喝茶", "散步"]}
_LISTED = re.compile(r"^([A-Z][A-Z0-9 _-]+)[:：]", re.MULTILINE)
_LINES = re.compile(r"(?:exactly|正好) (\d+) (?:questions|个问题)")
_MOST = 10


class FakeModel:
    """A language model that answers at once, plausibly and without meaning; it counts tokens by estimate."""

    name = "rehearsal"

    async def complete(self, request: Request, on_token: OnToken | None = None) -> Completion:
        """Answer by the schema, else in a sentence or two."""
        asked = request.messages[-1].content
        schema = request.output_schema.definition if request.output_schema is not None else None
        before = "\n".join(message.content for message in request.messages[:-1])
        text = plausible_answer(asked, schema, before)
        if on_token is not None:
            on_token(text)
        usage = Usage.estimate(request.messages, text)
        return Completion(text=text, model=self.name, usage=usage, estimated=True)

    async def close(self) -> None:
        """Nothing to close."""


def plausible_answer(asked: str, schema: dict[str, Any] | None, before: str = "") -> str:
    """Return an answer to a prompt's last message: JSON by the schema (all of listed names), else a sentence."""
    if not schema:
        if wanted := _LINES.search(before):
            words = _words(asked) or ["that"]
            return "\n".join(f"{n}. What is there to know of {words[n % len(words)]}?" for n in range(int(wanted[1])))
        if "NULL" in asked and (listed := _LISTED.findall(asked)):
            return ", ".join(dict.fromkeys(listed))
        topic = " and ".join(_words(asked)[:2]) or "that"
        if asked.rstrip().endswith(("Topic:", "话题：")):
            return topic
        return f"That makes me think of {topic}. What would you like to do about it?"
    return json.dumps(_value("", schema, (asked, before), schema.get("$defs", {})), ensure_ascii=False)


def _value(name: str, kind: dict[str, Any], prompt: tuple[str, str], shared: dict[str, Any]) -> object:
    kind = _resolve(kind, shared)
    if "enum" in kind or "const" in kind:
        return kind["enum"][0] if "enum" in kind else kind["const"]
    wanted = kind.get("type")
    if wanted == "object":
        return {key: _value(key, inner, prompt, shared) for key, inner in kind.get("properties", {}).items()}
    if wanted == "array":
        return _list(name, kind, prompt, shared)
    if wanted in {"integer", "number"}:
        return max(1, int(kind.get("minimum", 1)))
    if wanted == "boolean":
        return True
    return f"The history leads to {', '.join(_words(prompt[0])[:3])}, and from there further."


def _resolve(kind: dict[str, Any], shared: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in kind:
        definition: dict[str, Any] = shared[kind["$ref"].rsplit("/", 1)[-1]]
        return _resolve(definition, shared)
    for choices in ("anyOf", "oneOf", "allOf"):
        if choices in kind:
            # What may be left out is given: the longer way costs more.
            return _resolve(next((c for c in kind[choices] if c.get("type") != "null"), kind[choices][0]), shared)
    return kind


def _list(name: str, kind: dict[str, Any], prompt: tuple[str, str], shared: dict[str, Any]) -> object:
    asked, before = prompt
    inner = _resolve(kind.get("items", {}), shared)
    least = kind.get("minItems", 0)
    if inner.get("type") == "integer":
        return [int(number) for number in _NUMBERED.findall(asked)[: kind.get("maxItems", _MOST)]]
    if inner.get("type") in {"object", "boolean", "number"} or "enum" in inner:
        return [_value(name, inner, prompt, shared)] * max(1, least)
    if name == "sources":
        return list(dict.fromkeys(_LISTED.findall(before)))
    if name in {"implicit", "extended"}:
        return _ASIDE["zh" if _CHINESE.search(asked) else "en"]
    words = _words(asked)[: kind.get("maxItems", max(6, least))]
    return words + ["that"] * (least - len(words))


def _words(asked: str) -> list[str]:
    """Return the words that the prompt's history says most, its last turn first."""
    turns = [line for line in asked.splitlines() if _TURN.match(line)] or [asked]
    pattern = _CHINESE if _CHINESE.search(asked) else _LATIN
    counts = Counter(word.lower() for turn in reversed(turns) for word in pattern.findall(turn.split(":", 1)[-1]))
    return [word for word, _ in counts.most_common(12)]
