"""Measure how well memory is found: Recall@3 on Multi-Session Chat, of what the user told in earlier sessions.

    python scripts/measure_memory.py FILE

FILE is `session_5_valid.json` of the few-shot bot benchmark's form, compressed or not: `meta.user` has what the user
told in the sessions before, a statement a sentence here; a sentence is looked for by the last turn of session 5, as it
stands.

Nobody has labelled which replies draw on which statement, so labels are distant: a statement is drawn on where one
sentence of the reference reply has at least half of the stems of its content words (of six at most), two or more, one
of which at least the history does not have, the last turn included. `to you` counts only sentences of the reply that
speak to the user ("you", "your"); `any` counts all, and so a reply in which the other speaker tells the same of
himself. People bring up such things of their own accord: the last turn says little of which.
"""

from __future__ import annotations

import argparse
import asyncio
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dialore.datasets import data_set, split_dialogues
from dialore.sources.memory import MemorySource
from dialore.sources.statements import Statement, standing
from dialore.text import content_lemmas, split_sentences, stem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dialore.dialogue import Dialogue

TOP = 3
RETRIEVERS = ("bm25", "dense", "fused", "dialogue")
YOU = re.compile(r"\b(?:you|your|yours|yourself)\b", re.IGNORECASE)
STARTED = datetime(2020, 1, 1, tzinfo=UTC)


def content_stems(text: str, language: str) -> frozenset[str]:
    """Return the stems of a text's content lemmas."""
    return frozenset(stem(word) for word in content_lemmas(text, language))


def statements_of(dialogue: Dialogue) -> list[Statement]:
    """Return what the user told, a sentence a statement, each a minute later, as the data have no times."""
    sentences = [one for line in dialogue.extra["user_persona"] for one in split_sentences(line)]
    unique = dict.fromkeys(sentences)
    return [Statement(text=text, said=STARTED + timedelta(minutes=at)) for at, text in enumerate(unique)]


def drawn_on(dialogue: Dialogue, statements: list[Statement], *, to_you: bool) -> set[str]:
    """Return the texts of the statements that the reference draws on; see the module."""
    history = content_stems(dialogue.history, "en")
    found = set()
    for sentence in split_sentences(dialogue.reference or ""):
        said = content_stems(sentence, "en")
        for statement in statements if YOU.search(sentence) or not to_you else ():
            stems = content_stems(statement.text, "en")
            shared = stems & said
            if len(shared) >= max(2, min(len(stems), 6) / 2) and shared - history:
                found.add(statement.text)
    return found


def labelled(path: Path, *, to_you: bool) -> Iterator[tuple[Dialogue, set[str]]]:
    """Yield every turn whose reply draws on something, with the texts."""
    for dialogue in split_dialogues(data_set("multi-session-chat").read(path), cut="all"):
        statements = standing(statements_of(dialogue), STARTED)
        if gold := drawn_on(dialogue, statements, to_you=to_you):
            yield dialogue.model_copy(update={"extra": {"memory": statements}}), gold


async def recalls(source: MemorySource, turns: list[tuple[Dialogue, set[str]]], last: int) -> np.ndarray:
    """Of each turn, the share of its statements that are among the first three."""
    found = []
    for dialogue, gold in turns:
        pieces = await source.search(" ".join(dialogue.texts[-last:]), dialogue, TOP)
        found.append(len(gold & {piece.text for piece in pieces}) / len(gold))
    return np.array(found)


def shown(values: np.ndarray) -> str:
    """Return a mean in percent with its 95% bootstrap interval."""
    draws = np.random.default_rng(0).choice(values, (2000, len(values))).mean(axis=1)
    low, high = np.percentile(draws, [2.5, 97.5])
    return f"{100 * values.mean():.1f} [{100 * low:.1f}, {100 * high:.1f}]"


async def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, help="session_5_valid.json of the benchmark, compressed or not")
    path = parser.parse_args().file
    for name, to_you in (("to you", True), ("any", False)):
        turns = list(labelled(path, to_you=to_you))
        sizes = np.array([len(dialogue.extra["memory"]) for dialogue, _ in turns])
        chance = np.minimum(1, TOP / sizes).mean()
        print(f"\n{name}: {len(turns)} turns, {sizes.mean():.1f} statements each; by chance {100 * chance:.1f}\n")
        print("| retriever | Recall@3 by the last turn | by the last two |\n|---|---|---|")
        for retriever in RETRIEVERS:
            source = MemorySource(retriever=retriever)
            by = [shown(await recalls(source, turns, last)) for last in (1, 2)]
            print(f"| {retriever} | {' | '.join(by)} |", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
