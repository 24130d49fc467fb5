"""Made-up dialogues, documents and samples for benchmarks: the same for the same seed."""

from __future__ import annotations

import random
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from benchmarks.measure import folder, tell
from benchmarks.shape import known_words
from dialore.dialogue import Dialogue
from dialore.sources.registry import KINDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dialore.sources.graph import Graph

_TURNS = (
    "I have been thinking about {0} since this morning, and about {1} too.",
    "Really? What made you think of {1}?",
    "My brother talked about {2} all evening, and I could not stop him.",
    "He always does that. Did he mention {3}?",
    "Not a word. What would you do about {0} if you were me?",
)
_WORD = re.compile(r"[a-z]{4,14}")
_TRIES = 400
_SAMPLES = 2_000
_SENTENCES = (
    "The {0} by the {1} was first described in {2}, when a {3} was found there.",
    "Nobody who has kept a {0} for long would call it a {1}, said the {3} of {2}.",
    "In {2} the {0} cost as much as a {1}, and every {3} had one.",
    "A {0} is not far from a {1}: both are made where the {3} grows, since about {2}.",
)


def made_up(graph: Graph, count: int, seed: int = 7) -> list[Dialogue]:
    """So many dialogues of five turns, each about both ends of two facts of the graph."""
    rng = random.Random(seed)  # noqa: S311 - dialogues, not secrets
    dialogues: list[Dialogue] = []
    for number in range(count):
        words = (*_ends(graph, rng), *_ends(graph, rng))
        turns = [turn.format(*words) for turn in _TURNS]
        dialogues.append(Dialogue.model_validate({"id": f"bench-{number}", "language": "en", "turns": turns}))
    return dialogues


def _ends(graph: Graph, rng: random.Random) -> tuple[str, str]:
    """Head and tail of a fact, each a single English word; stand-ins where a graph hardly has any."""
    for _ in range(_TRIES):
        edges = graph.store.edges_of([rng.randrange(graph.store.meta.concepts)])
        if not len(edges):
            continue
        row = rng.randrange(len(edges))
        ends = (graph.store.concept(int(edges.head[row])), graph.store.concept(int(edges.tail[row])))
        if all(_WORD.fullmatch(end) for end in ends):
            return ends
    return ("morning", "coffee")


def with_persona(dialogue: Dialogue) -> Dialogue:
    """Return the dialogue with a persona for its responder, and documents under each sentence, as in KBP."""
    words = [turn.rstrip("?.").split()[-1] for turn in dialogue.texts]
    persona = tuple(f"I have liked {word} ever since I was a child." for word in words)
    pairs = zip(persona, words, strict=True)
    under = {sentence: [f"People say of {word} that {n}." for n in range(5)] for sentence, word in pairs}
    return dialogue.model_copy(update={"persona": persona, "extra": {"documents": under}})


def sentences(count: int) -> Iterator[str]:
    """So many sentences, each about three words of the shipped embedder's vocabulary."""
    rng = random.Random(5)  # noqa: S311 - texts, not secrets
    words = known_words()
    for number in range(count):
        some = rng.choices(words, k=3)
        yield _SENTENCES[number % len(_SENTENCES)].format(some[0], some[1], 1000 + number % 1000, some[2])


@contextmanager
def open_world(graph: Graph, passages: int, documents: Path | None = None) -> Iterator[dict[str, Any]]:
    """Open the sources that methods take beside the graph, by name; what is generated is deleted at the end.

    Args:
        graph: the graph, whose words the samples are about.
        passages: how many sentences the generated document index has.
        documents: a document index to be asked instead.
    """
    from dialore.retrieval.chunking import Chunking
    from dialore.retrieval.documents.indexing import build_documents

    with folder() as made:
        if documents is None:
            tell(f"building an index of {passages:,} sentences")
            documents = made / "documents"
            build_documents(documents, texts=sentences(passages), chunking=Chunking("whole"))
        samples = _samples(made / "samples", graph)
        places = {"documents": documents, "web": f"corpus:{documents}", "samples": samples}
        opened: dict[str, Any] = {name: KINDS[name].open([str(place)]) for name, place in places.items()}
        opened["persona"] = KINDS["persona"].open([])
        try:
            yield opened
        finally:
            for source in opened.values():
                source.close()


def _samples(path: Path, graph: Graph) -> Path:
    from dialore.methods.few_shot import build_samples, samples_of
    from dialore.retrieval.embedding import load_embedder

    histories = []
    for dialogue in made_up(graph, _SAMPLES, seed=8):
        known = f"{dialogue.texts[1].rstrip('?').split()[-1].capitalize()} is what people talk about in the morning."
        said = f"Well, {known[0].lower()}{known[1:-1]}, so I would think of it too."
        update = {"reference": said, "knowledge": (known,), "id": f"sample-{dialogue.id}"}
        histories.append(dialogue.model_copy(update=update))
    build_samples(samples_of(histories), path, load_embedder("static"))
    return path
