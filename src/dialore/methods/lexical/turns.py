"""What kind of turn the last one is: a greeting, a question of a kind, bad news, a plan, and so on."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dialore.methods.lexical.tables import table
from dialore.text import normalise

if TYPE_CHECKING:
    from dialore.text import Language

_SENTENCE = re.compile(r"[^.!?。！？…]+[.!?。！？…]*")
_TITLE = re.compile(r"\b(mr|mrs|ms|dr|st|prof|[a-hj-z])\s?\.(?=\s?\w)")
_QUESTION = re.compile(r"(?:[?？]|[吗呢么])[\s\"'”’.。!！]*$")


@dataclass(frozen=True, slots=True)
class _Rule:
    kind: str
    pattern: re.Pattern[str] | None
    where: str
    question: bool
    ends: bool
    most: int | None

    def fits(
        self, sentences: list[str], asks: bool, size: int, negation: re.Pattern[str], fillers: re.Pattern[str]
    ) -> bool:
        if (self.question and not asks) or (self.most is not None and size > self.most):
            return False
        if self.pattern is None:
            return True
        return any(
            self._says(sentence, negation, fillers)
            for sentence in (sentences if self.where == "any" else sentences[-1:])
        )

    def _says(self, sentence: str, negation: re.Pattern[str], fillers: re.Pattern[str]) -> bool:
        if self.pattern is None:
            return True
        for match in self.pattern.finditer(sentence):
            before, after = sentence[: match.start()], sentence[match.end() :]
            if (
                not (self.where == "start" and not fillers.fullmatch(before))
                and not (self.ends and after.strip(" ?？.!。！"))
                and not negation.search(before)
            ):
                return True
        return False


def kind_of(text: str, language: Language) -> str:
    """The kind of a turn, by the cue lists of `cues.<language>.yaml`; `statement` where nothing else fits."""
    folded = _TITLE.sub(r"\1", normalise(text).replace(" ' ", "'"))
    sentences = [found for match in _SENTENCE.findall(folded) if (found := match.strip())] or [folded]
    size = len(folded) if language == "zh" else len(folded.split())
    asks = _QUESTION.search(sentences[-1]) is not None
    rules, negation, fillers = _rules(language)
    return next((rule.kind for rule in rules if rule.fits(sentences, asks, size, negation, fillers)), "statement")


@functools.lru_cache(maxsize=2)
def _rules(language: Language) -> tuple[list[_Rule], re.Pattern[str], re.Pattern[str]]:
    cues = table("cues", language)
    negations = "|".join(map(re.escape, cues["negations"]))
    # A negation counts within the word or two before the cue.
    near = rf"(?:{negations})$" if language == "zh" else rf"(?:(?:^|\s)(?:{negations})|n't)\s(?:\w+\s)?$"
    fillers = "|".join(map(re.escape, cues["fillers"]))
    return [_rule(entry, language) for entry in cues["rules"]], re.compile(near), re.compile(rf"(?:(?:{fillers})?\W*)*")


def _rule(entry: dict[str, Any], language: Language) -> _Rule:
    cues = sorted(map(str, entry["cues"]), key=len, reverse=True)
    joined = "|".join(map(re.escape, cues))
    pattern = joined if language == "zh" or not cues else rf"(?<![\w'])(?:{joined})(?!\w|'t\b)"
    return _Rule(
        kind=entry["kind"],
        pattern=re.compile(pattern) if pattern else None,
        where=entry.get("in", "any"),
        question=bool(entry.get("question")),
        ends=bool(entry.get("ends")),
        most=entry.get("most"),
    )
