"""Training examples: the responses of a data set with their plans and pieces, in folds of whole dialogues."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dialore.datasets import data_set, gold_text, split_dialogues
from dialore.dialogue import conversation_of
from dialore.errors import InputError
from dialore.learned.features import Pool, document_features, sentence_features
from dialore.learned.training_index import TrainingIndex

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dialore.dialogue import Dialogue

    Numbers = NDArray[np.int64]
    Step = Callable[[str, int, int | None], None]

FOLDS = 5
_FEWEST = 2 * FOLDS


@dataclass
class Examples:
    """The responses of a file.

    Attributes:
        name: of the data set.
        sha256: of the file.
        dialogues: the history before each response, with its plan and gold knowledge.
        numbers: of the whole dialogue that each is of, from 0.
        seed: of the folds, and of all that is drawn in training.
    """

    name: str
    sha256: str
    dialogues: list[Dialogue]
    numbers: Numbers
    seed: int

    @functools.cached_property
    def folds(self) -> Numbers:
        """The fold of each response: whole dialogues together."""
        order = np.random.default_rng(self.seed).permutation(int(self.numbers.max()) + 1)
        return (order % FOLDS)[self.numbers]

    @functools.cached_property
    def gold(self) -> list[list[str]]:
        """The texts that each response stands on."""
        return [[gold_text(item) for item in dialogue.knowledge] for dialogue in self.dialogues]

    @functools.cached_property
    def past(self) -> TrainingIndex:
        """The data that a model trained on these has seen."""
        return TrainingIndex.of(self.dialogues, self.numbers, self.gold)

    def described(self) -> dict[str, object]:
        """Return the data, as the model's description has it."""
        return {
            "dataset": self.name,
            "sha256": self.sha256,
            "dialogues": int(self.numbers.max()) + 1,
            "responses": len(self.dialogues),
        }


@dataclass
class Compared:
    """Features of every response's pieces, with the past of its own dialogue left out.

    Attributes:
        sentences, documents, all_documents: a row a piece; the last against all documents, beside the gold sentence.
        of_sentence, of_document: the response that a row is of.
        owner: the place of the sentence over each document's.
        is_gold, is_gold_document: whether the response stands on it.
        sizes: documents under each sentence, by response.
    """

    sentences: NDArray[np.float32]
    documents: NDArray[np.float32]
    all_documents: NDArray[np.float32]
    of_sentence: Numbers
    of_document: Numbers
    owner: Numbers
    is_gold: NDArray[np.bool_]
    is_gold_document: NDArray[np.bool_]
    sizes: list[list[int]]


def read_examples(
    name: str, path: Path, *, needs: Sequence[str] = ("persona", "plan", "knowledge"), seed: int = 0
) -> Examples:
    """Return the responses of a data set's file.

    Raises:
        InputError: it cannot be read, has not what is needed, or too few dialogues.
    """
    reader = data_set(name)
    if lacking := [what for what in needs if what not in reader.has]:
        raise InputError(f"{name} has no {' and no '.join(lacking)} to learn from", hint="kbp has all that is needed")
    dialogues = split_dialogues(reader.read(path), cut="all")
    bare = [
        dialogue.id
        for dialogue in dialogues
        if not dialogue.persona or not any(dialogue.extra.get("documents", {}).values())
    ]
    if "persona" in needs and bare:
        raise InputError(f"{path}: dialogue {bare[0]} has no persona with documents", hint="leave it out")
    numbers = number_dialogues(dialogues, path)
    return Examples(name, hashlib.sha256(path.read_bytes()).hexdigest(), dialogues, numbers, seed)


def number_dialogues(dialogues: Sequence[Dialogue], path: Path) -> Numbers:
    """Return the number of the whole dialogue of each history; raise InputError if too few for folds."""
    wholes = {
        whole: number
        for number, whole in enumerate(dict.fromkeys(conversation_of(dialogue.id) for dialogue in dialogues))
    }
    if len(wholes) < _FEWEST:
        message = f"{path}: {len(wholes)} dialogues cannot be divided for cross-validation"
        raise InputError(message, hint=f"give at least {_FEWEST}")
    return np.array([wholes[conversation_of(dialogue.id)] for dialogue in dialogues])


def refuse_leaks(train: Examples, held: Path) -> None:
    """Raise InputError where a dialogue of the training examples stands in a held-out file, too."""
    wholes = {conversation_of(dialogue.id): (*dialogue.texts, dialogue.reference) for dialogue in train.dialogues}
    seen = set(wholes.values())
    for dialogue in split_dialogues(data_set(train.name).read(held), cut="all"):
        if (*dialogue.texts, dialogue.reference) in seen:
            message = f"dialogue {conversation_of(dialogue.id)} of the held-out file is in the training file, too"
            raise InputError(message, hint="train on a file without it, or figures will be too good")


def compare(examples: Examples, step: Step) -> Compared:
    """Features of every piece of every response."""
    rows: list[list[NDArray[np.float32]]] = [[], [], []]
    of: list[list[int]] = [[], []]
    owner: list[int] = []
    gold: list[list[bool]] = [[], []]
    sizes: list[list[int]] = []
    pool, of_pool = None, -1
    for at, dialogue in enumerate(examples.dialogues):
        if of_pool != examples.numbers[at] or pool is None:
            of_pool = int(examples.numbers[at])
            under = dialogue.extra["documents"]
            pool = Pool(examples.past, {line: under.get(line, ()) for line in dialogue.persona}, leave=of_pool)
            step("comparing turns with pieces", of_pool, int(examples.numbers[-1]) + 1)
        compared = pool.compare(dialogue)
        own = [text for text in pool.texts[: pool.count] if text in examples.gold[at]]
        rows[0].append(sentence_features(pool, dialogue, compared))
        rows[1].append(document_features(pool, dialogue, compared))
        rows[2].append(document_features(pool, dialogue, compared, beside=" ".join(own), whole=True))
        for kind, texts in enumerate((pool.texts[: pool.count], pool.texts[pool.count :])):
            of[kind] += [at] * len(texts)
            gold[kind] += [text in examples.gold[at] for text in texts]
        owner += [kind for kind, size in enumerate(pool.sizes) for _ in range(size)]
        sizes.append(pool.sizes)
    sentences, documents, all_documents = (np.concatenate(columns) for columns in rows)
    of_sentence, of_document = map(np.array, of)
    rows_of = (of_sentence, of_document, np.array(owner), np.array(gold[0]), np.array(gold[1]))
    return Compared(sentences, documents, all_documents, *rows_of, sizes)


def labels_of(examples: Examples, plans: Sequence[tuple[str, ...]]) -> Numbers:
    """Return the number of each response's plan."""
    return np.array([plans.index(tuple(dialogue.sources)) for dialogue in examples.dialogues])
