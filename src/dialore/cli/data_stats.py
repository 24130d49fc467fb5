"""What `dialore data stats` measures of a file, in one reading."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from dialore.datasets.base import gold_text
from dialore.datasets.registry import data_set
from dialore.datasets.split import answers_of
from dialore.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

    from dialore.datasets.base import Answer, WholeDialogue
    from dialore.text import Language


class _Counts:
    """Sums over dialogues."""

    def __init__(self) -> None:
        self.sums: Counter[str] = Counter()
        self.plans: Counter[str] = Counter()
        self.languages: Counter[str] = Counter()

    def add(self, dialogue: WholeDialogue) -> None:
        """Count a dialogue."""
        self.languages[dialogue.language] += 1
        self.sums["dialogues"] += 1
        self.sums["turns"] += len(dialogue.turns)
        self.sums["length"] += sum(length(turn.text, dialogue.language) for turn in dialogue.turns)
        self.sums["pool"] += len(dialogue.pool)
        for answer in answers_of(dialogue):
            self._add_answer(dialogue, answer)

    def _add_answer(self, dialogue: WholeDialogue, answer: Answer) -> None:
        self.sums["samples"] += 1
        self.sums["reference_length"] += length(dialogue.turns[answer.turn].text, dialogue.language)
        self.sums["with_knowledge"] += bool(answer.knowledge)
        self.sums["with_persona"] += bool(dialogue.persona)
        self.sums["with_query"] += "query" in answer.extra
        self.sums["pieces"] += len(answer.knowledge)
        self.sums["knowledge_length"] += sum(length(gold_text(one), dialogue.language) for one in answer.knowledge)
        if answer.sources is not None:
            self.sums["planned"] += 1
            self.plans["+".join(answer.sources) or "none"] += 1


def describe_file(name: str, file: Path) -> dict[str, Any]:
    """A file's measures: counts, means and shares. A mean or share of nothing is None.

    Lengths are in words for English and in characters, without spaces, for Chinese.

    Raises:
        InputError: the file is not in its published form, or holds no dialogue.
    """
    counts = _Counts()
    for dialogue in data_set(name).read(file):
        counts.add(dialogue)
    sums = counts.sums
    if not sums["dialogues"]:
        raise InputError(f"{file}: no dialogue in it", mend=f"{name} is {data_set(name).form}")
    samples, told = sums["samples"], sums["with_knowledge"]
    return {
        "data_set": name,
        "version": data_set(name).version,
        "languages": dict(counts.languages),
        "dialogues": sums["dialogues"],
        "samples": samples,
        "turns": sums["turns"],
        "turns_per_dialogue": _ratio(sums["turns"], sums["dialogues"]),
        "samples_per_dialogue": _ratio(samples, sums["dialogues"]),
        "length_unit": "characters" if counts.languages["zh"] * 2 > sums["dialogues"] else "words",
        "turn_length": _ratio(sums["length"], sums["turns"]),
        "reference_length": _ratio(sums["reference_length"], samples),
        "share_with": {
            "knowledge": _ratio(told, samples),
            "persona": _ratio(sums["with_persona"], samples),
            "plan": _ratio(sums["planned"], samples),
            "query": _ratio(sums["with_query"], samples),
        },
        "share_of_plan": {plan: _ratio(count, sums["planned"]) for plan, count in sorted(counts.plans.items())},
        "knowledge_pieces": _ratio(sums["pieces"], told),
        "knowledge_length": _ratio(sums["knowledge_length"], told),
        "pool_sentences": _ratio(sums["pool"], sums["dialogues"]),
    }


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def length(text: str, language: Language) -> int:
    """The words of an English text as white space divides them; the characters of a Chinese text, without spaces."""
    pieces = text.split()
    return len(pieces) if language == "en" else sum(map(len, pieces))
