"""The demo's parts: which dialogues are answered by which methods, over which sources."""

from __future__ import annotations

import tempfile
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from dialore.dialogue import read_dialogues
from dialore.sources.graph import open_graph
from dialore.workbench import create_agent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from dialore.agent import Agent
    from dialore.dialogue import Dialogue
    from dialore.llm.model import LanguageModel

METHODS: tuple[str, ...] = ("vanilla", "t-rag", "qp-rag", "dcrag")
FURTHER: tuple[str, ...] = ("safari", "scg-qp", "edit", "msdp", "draft-ground")
_OPTIONS: Mapping[str, Mapping[str, object]] = {"msdp": {"response_shots": 10}}
"""The demo's sample base has fifteen samples a language, fewer than the paper draws."""
_INSTEAD = "a shelf of our own passages, in the place of the web"


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the demo.

    Attributes:
        name: what it is called.
        title: its heading.
        about: what stands below the heading.
        methods: the methods that answer.
        folder: where its dialogues and sources lie, below the demo's folder.
        cite: whether responses cite.
    """

    name: str
    title: str
    about: str
    methods: tuple[str, ...]
    folder: str = ""
    cite: bool = False
    options: Mapping[str, Mapping[str, object]] = field(default_factory=dict)

    def dialogues(self) -> list[Dialogue]:
        """Its dialogues."""
        return read_dialogues(demo_folder() / self.folder / "dialogues.jsonl")


COMMONSENSE = Part(
    "commonsense",
    "Commonsense from a graph",
    "Six chats in which nobody asks for anything. What could the reply know? Facts come from the starter graph.",
    METHODS,
)
FURTHER_SYSTEMS = Part(
    "further",
    "Further systems",
    "A persona with documents under each sentence, a turn that asks for nothing, and a question: answered over small "
    "sources of our own. safari plans over the persona, its documents and a library of 60 passages; edit answers its "
    "questions from the same passages; msdp writes knowledge after 15 samples a language; draft-ground searches "
    "persona, passages and graph. scg-qp's “web” is here a shelf with those passages: nothing is searched online. "
    "Small numbers cite.",
    FURTHER,
    "further",
    cite=True,
    options=_OPTIONS,
)
PARTS: tuple[Part, ...] = (COMMONSENSE, FURTHER_SYSTEMS)


def demo_folder() -> Path:
    """Where the demo's dialogues, sources, recordings and page template lie."""
    return Path(str(resources.files("dialore") / "data" / "demo"))


@asynccontextmanager
async def open_part(
    part: Part, model: LanguageModel | None, methods: Sequence[str] | None = None
) -> AsyncIterator[list[Agent]]:
    """An agent for each of a part's methods, over the part's sources, which are closed at the end; the model is not.

    Args:
        part: the part.
        model: the model; None for the method `lexical`.
        methods: some of its methods; None: all.

    Raises:
        InputError: the part's files are damaged.
    """
    async with AsyncExitStack() as stack:
        graph = open_graph(None)
        stack.callback(graph.close)
        sources = _further_sources(demo_folder() / part.folder, stack) if part.folder else {}
        yield [
            create_agent(
                method,
                model=model,
                # SAFARI would plan over the graph too, where it is given one.
                graph=None if method == "safari" else graph,
                sources=sources.get(method, {}),
                options=part.options.get(method),
                cite=part.cite,
            )
            for method in (part.methods if methods is None else methods)
        ]


def _further_sources(folder: Path, stack: AsyncExitStack) -> dict[str, dict[str, object]]:
    """The sources of each method, made of the folder's files; none needs an extra."""
    from dialore.retrieval.embedding import load_embedder
    from dialore.sources.documents.chunking import Chunking
    from dialore.sources.persona import open_persona
    from dialore.sources.samples import build_samples, open_samples, samples_of
    from dialore.sources.shelf import Shelf, open_shelf

    documents = open_shelf([folder / "passages.jsonl"], own_language=True, chunking=Chunking(unit="whole"))
    instead = [replace(passage, source=_INSTEAD) for passage in documents.passages]
    web = Shelf(instead, kind="web", name="shelf in the place of the web", own_language=True)
    persona = open_persona()
    base = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "samples"
    build_samples(samples_of(read_dialogues(folder / "samples.jsonl")), base, load_embedder())
    samples = open_samples(base)
    stack.callback(samples.close)
    return {
        "safari": {"persona": persona, "documents": documents},
        "scg-qp": {"web": web},
        "edit": {"documents": documents},
        "msdp": {"samples": samples},
        "draft-ground": {"persona": persona, "documents": documents},
    }
