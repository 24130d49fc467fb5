"""Sources for a benchmark of every method: a base of generated sentences, samples, personas; all made up, by seed."""

from __future__ import annotations

import random
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dialore.cli.bench.dialogues import made_up
from dialore.cli.bench.graph_shape import known_words
from dialore.sources.registry import KINDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dialore.dialogue import Dialogue
    from dialore.sources.graph.source import Graph

    Step = Callable[[str, int, int | None], None]

_SAMPLES = 2_000
_PATTERNS = (
    "The {0} by the {1} was first described in {2}, when a {3} was found there.",
    "Nobody who has kept a {0} for long would call it a {1}, said the {3} of {2}.",
    "In {2} the {0} cost as much as a {1}, and every {3} had one.",
    "A {0} is not far from a {1}: both are made where the {3} grows, since about {2}.",
)


@contextmanager
def open_world(graph: Graph, sentences: int, documents: Path | None, step: Step) -> Iterator[dict[str, Any]]:
    """The sources that methods take beside the graph, by name; what is generated is gone at the end.

    Args:
        graph: the graph, whose words the dialogues and samples are about.
        sentences: how many sentences the generated base has.
        documents: a document index to be asked instead.
        step: told what is being done.
    """
    with tempfile.TemporaryDirectory(prefix="dialore-bench-") as folder:
        index = documents or _index(Path(folder) / "base", sentences, step)
        step("building a base of samples", 0, None)
        samples = _samples(Path(folder) / "samples", graph)
        places = {"documents": [str(index)], "web": [f"corpus:{index}"], "samples": [str(samples)], "persona": []}
        opened: dict[str, Any] = {name: KINDS[name].open(named) for name, named in places.items()}
        try:
            yield opened
        finally:
            for source in opened.values():
                source.close()


def with_persona(dialogue: Dialogue) -> Dialogue:
    """A dialogue whose responder has a persona with documents under it, as KBP's have."""
    words = [turn.rstrip("?.").split()[-1] for turn in dialogue.texts]
    persona = tuple(f"I have liked {word} ever since I was a child." for word in words)
    pairs = zip(persona, words, strict=True)
    under = {sentence: [f"People say of {word} that {n}." for n in range(5)] for sentence, word in pairs}
    return dialogue.model_copy(update={"persona": persona, "extra": {"documents": under}})


def _index(path: Path, count: int, step: Step) -> Path:
    from dialore.sources.documents import Chunking, build_documents

    build_documents(path, texts=_sentences(count), chunking=Chunking("whole"), on_step=step)
    return path


def _sentences(count: int) -> Iterator[str]:
    draw = random.Random(5)  # noqa: S311 - texts, not secrets
    words = known_words()
    for number in range(count):
        some = draw.choices(words, k=3)
        yield _PATTERNS[number % len(_PATTERNS)].format(some[0], some[1], 1000 + number % 1000, some[2])


def _samples(path: Path, graph: Graph) -> Path:
    from dialore.retrieval.embedding import load_embedder
    from dialore.sources.samples import build_samples, samples_of

    histories = []
    for dialogue in made_up(graph, _SAMPLES, seed=8):
        known = f"{dialogue.texts[1].rstrip('?').split()[-1].capitalize()} is what people talk about in the morning."
        said = f"Well, {known[0].lower()}{known[1:-1]}, so I would think of it too."
        update = {"reference": said, "knowledge": (known,), "id": f"sample-{dialogue.id}"}
        histories.append(dialogue.model_copy(update=update))
    build_samples(samples_of(histories), path, load_embedder("static"))
    return path
