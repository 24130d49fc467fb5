"""Wizard of Wikipedia (Dinan et al., ICLR 2019): a wizard who reads Wikipedia talks with an apprentice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel

from dialore.datasets.base import DataSet, Entry, Gold, Talk
from dialore.datasets.files import Place, read_forms

_UNUSED = "no_passages_used"


class _Message(BaseModel):
    speaker: str
    text: str
    checked_sentence: dict[str, str] | None = None
    checked_passage: dict[str, str] | None = None
    retrieved_passages: list[dict[str, list[str]]] = []


class _Talk(BaseModel):
    chosen_topic: str
    persona: str = ""
    chosen_topic_passage: list[str] = []
    dialog: list[_Message]


class _Pairs(BaseModel):
    meta: list[list[str]]
    dialogue: list[tuple[str, str]]


class WizardOfWikipedia(DataSet):
    """Two forms: ParlAI's JSON lists (`dialog`) and the few-shot bot benchmark's (`dialogue`, `meta`).

    The apprentice is `user`, the wizard `system`. A wizard who opens the dialogue answers nothing there; that turn is
    history only, as ParlAI has it. `knowledge` is the checked sentence, with its article's `title` in ParlAI's form;
    the passage that was checked is `extra["checked_topic"]`, sentence or no sentence.
    """

    name = "wizard-of-wikipedia"
    version = 2
    languages = ("en",)
    paper = "Wizard of Wikipedia (Dinan et al., ICLR 2019)"
    licence = "CC BY 4.0"
    where = "parl.ai/projects/wizard_of_wikipedia; github.com/andreamad8/FSB, data/wow"
    form = "a JSON list of {`dialog`, ...} or of {`dialogue`, `meta`}"
    has = ("knowledge",)

    def entries(self, path: Path) -> Iterator[Entry]:
        """Whole dialogues; the wizard's turns are the references."""
        for place, entry in read_forms(
            path, {"dialog": _Talk, "dialogue": _Pairs}, self.published, unused=self.report.unused_keys
        ):
            if isinstance(entry, _Talk):
                yield from _read_talk(entry)
            elif isinstance(entry, _Pairs):
                yield from _read_pairs(entry, place)


def _read_talk(entry: _Talk) -> Iterator[Entry]:
    title_of = dict.fromkeys(entry.chosen_topic_passage, entry.chosen_topic)
    for message in entry.dialog:
        for passage in message.retrieved_passages:
            for title, texts in passage.items():
                for text in texts:
                    title_of.setdefault(text, title)
    pool = tuple({"text": text, "title": title} for text, title in title_of.items())
    # Of the apprentice: the persona sentence that the topic was chosen for.
    fields = {"topic": entry.chosen_topic, "pool": pool, "user_persona": [entry.persona]}
    talk = Talk(None, "en", **{key: value for key, value in fields.items() if value != [""]})
    for message in entry.dialog:
        if "wizard" not in message.speaker.casefold():
            talk.say("user", message.text)
            continue
        used = [text for text in (message.checked_sentence or {}).values() if text != _UNUSED]
        passages = [title for title in (message.checked_passage or {}).values() if title != _UNUSED]
        checked = passages[0] if len(passages) == 1 else None
        knowledge: list[Gold] = [{"text": text, "title": checked or title_of.get(text, "")} for text in used]
        talk.answer("system", message.text, knowledge, extra={"checked_topic": checked})
    yield from talk.whole()


def _read_pairs(entry: _Pairs, place: Place) -> Iterator[Entry]:
    if len(entry.meta) != len(entry.dialogue):
        raise place.error(f"{len(entry.meta)} lists for {len(entry.dialogue)} pairs of turns", "meta")
    talk = Talk(None, "en")
    for (user, wizard), knowledge in zip(entry.dialogue, entry.meta, strict=True):
        talk.pair(user, wizard, knowledge)
    yield from talk.whole()
