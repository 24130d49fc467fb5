"""The handbook test: dialogues about an invented town whose handbook no model can know, and the handbook."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from pydantic import BaseModel

from dialore.datasets.base import Answer, Entry, WholeDialogue
from dialore.datasets.files import json_entries, validate
from dialore.datasets.plain import Jsonl
from dialore.text import Language

if TYPE_CHECKING:
    from dialore.datasets.base import Gold, Holding
    from dialore.dialogue import Dialogue

SMALL_TALK = "small-talk"
UNANSWERABLE = ("near-miss", "false-premise")
HALVES = ("a", "b")
SPLITS = (*HALVES, "a-unclear", "b-unclear")
"""The halves, and of each the questions that leave open what is meant."""
LANGUAGES: tuple[Language, ...] = ("en", "zh")
FOLDER = Path(str(resources.files("dialore") / "data" / "handbook"))


class HandbookPassage(BaseModel):
    """A section of the handbook; titles are unique in a language."""

    id: str
    title: str
    text: str


class Item(BaseModel):
    """A dialogue to be answered, and what is right.

    Attributes:
        half: prompts are tuned on `a` alone, figures are reported of `b`.
        turns: the texts, of which the user's is the last.
        gold: ids of the passages that are needed.
        also: ids of others that may be cited, such as the outdated version.
        answer: the facts that are needed, each in the forms that are accepted.
        wrong: forms that show a wrong answer, each followed by words that excuse it where they stand in the same
            sentence (a value of the other model is no mistake where the other model is named).
        absent: what would be said where an unanswerable question could be answered; no passage has it.
        candidates: what an underspecified question may mean, each in the forms that a question back may name it by.
        about: forms of what such a question back asks for: "which model".
    """

    id: str
    language: Language
    category: str
    half: str
    turns: list[str]
    gold: list[str] = []
    also: list[str] = []
    answer: list[list[str]] = []
    wrong: list[list[str]] = []
    absent: list[str] = []
    candidates: list[list[str]] = []
    about: list[str] = []

    @property
    def answerability(self) -> str:
        """The label of its last turn, as MTRAG's turns have it."""
        labels = {SMALL_TALK: "CONVERSATIONAL", "underspecified": "UNDERSPECIFIED"}
        return labels.get(self.category, "UNANSWERABLE" if self.category in UNANSWERABLE else "ANSWERABLE")


class Handbook(Jsonl):
    """The dialogues of one language; a file has one half of them.

    `knowledge` of a dialogue is the passages that its answer needs, and of the file the whole handbook. Its `extra` has
    the `answerability` of the last turn, and the item that metrics score by, as `handbook`.
    """

    paper = "none: Dialore's own"
    licence = "Apache-2.0"
    where = "it comes with Dialore"
    form = "JSONL of {`id`, `language`, `category`, `half`, `turns`, `gold`?, `answer`?, `wrong`?, ...}"
    has: ClassVar[tuple[Holding, ...]] = ("knowledge",)

    def entries(self, path: Path) -> Iterator[Entry]:
        """Yield the dialogues of a half, without references."""
        passages = {passage.id: passage for passage in read_passages(self.languages[0])}
        for place, data in json_entries(path, self.published):
            item = validate(data, Item, place)
            gold = tuple({"text": passages[name].text, "title": passages[name].title} for name in item.gold)
            extra = {"answerability": item.answerability, "handbook": item.model_dump()}
            answer = Answer(turn=len(item.turns), knowledge=gold)
            given = {"id": item.id, "language": item.language, "turns": item.turns, "answers": [answer], "extra": extra}
            yield WholeDialogue.model_validate(given)

    def knowledge(self, path: Path) -> Iterator[Gold]:
        """Yield the passages of the handbook, whichever half it is asked with."""
        for passage in read_passages(self.languages[0]):
            yield {"text": passage.text, "title": passage.title}


class HandbookEn(Handbook):
    """A hundred English dialogues about Brindlehaven in two halves, and thirty with unclear questions in two more."""

    name = "handbook-en"
    languages = ("en",)
    bundled: ClassVar = {split: FOLDER / f"en.{split}.jsonl" for split in SPLITS}


class HandbookZh(Handbook):
    """A hundred Chinese dialogues in two halves, and thirty with unclear questions in two more."""

    name = "handbook-zh"
    languages = ("zh",)
    bundled: ClassVar = {split: FOLDER / f"zh.{split}.jsonl" for split in SPLITS}


def read_items(*, half: str | None = None, language: str | None = None) -> list[Item]:
    """Return the items of a half and a language, of both where None."""
    halves, languages = (HALVES if half is None else (half,)), (LANGUAGES if language is None else (language,))
    paths = [FOLDER / f"{own}.{split}.jsonl" for own in languages for split in halves]
    return [Item.model_validate_json(line) for path in paths for line in path.read_text("utf-8").split("\n") if line]


def read_passages(language: str) -> list[HandbookPassage]:
    """Return the handbook in a language."""
    lines = (FOLDER / f"passages.{language}.jsonl").read_text("utf-8").rstrip("\n").split("\n")
    return [HandbookPassage.model_validate_json(line) for line in lines]


def item_of(dialogue: Dialogue) -> Item | None:
    """Return the item of a dialogue of the test; None of any other."""
    kept = dialogue.extra.get("handbook")
    return Item.model_validate(kept) if isinstance(kept, dict) else None
