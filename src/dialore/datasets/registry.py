"""Data sets by name, imported when asked for: ours, and those that other packages add by `dialore.datasets`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from dialore.datasets.base import DataSet, gold_text
from dialore.errors import InputError
from dialore.knowledge import Passage
from dialore.plugins import find, loadable, names_of

GROUP = "dialore.datasets"
_SETS = {
    "cmu-dog": "dialore.datasets.cmu_dog:CMUDoG",
    "commonsense-dialogues": "dialore.datasets.commonsense_dialogues:CommonsenseDialogues",
    "coq": "dialore.datasets.coq:COQ",
    "coq-contexts": "dialore.datasets.coq:CoqContexts",
    "dailydialog": "dialore.datasets.dailydialog:DailyDialog",
    "diamante": "dialore.datasets.diamante:Diamante",
    "everyday": "dialore.datasets.plain:Everyday",
    "handbook-en": "dialore.datasets.handbook:HandbookEn",
    "handbook-zh": "dialore.datasets.handbook:HandbookZh",
    "holl-e": "dialore.datasets.holl_e:HollE",
    "jsonl": "dialore.datasets.plain:Jsonl",
    "kbp": "dialore.datasets.kbp:KBP",
    "kdconv": "dialore.datasets.kdconv:KdConv",
    "locomo": "dialore.datasets.locomo:LoCoMo",
    "locomo-adversarial": "dialore.datasets.locomo:LoCoMoAdversarial",
    "mtrag": "dialore.datasets.mtrag:Mtrag",
    "multi-session-chat": "dialore.datasets.multi_session_chat:MultiSessionChat",
    "opendialkg": "dialore.datasets.opendialkg:OpenDialKG",
    "personachat": "dialore.datasets.personachat:PersonaChat",
    "topical-chat": "dialore.datasets.topical_chat:TopicalChat",
    "wizard-of-internet": "dialore.datasets.wizard_of_internet:WizardOfInternet",
    "wizard-of-wikipedia": "dialore.datasets.wizard_of_wikipedia:WizardOfWikipedia",
    "xdailydialog-en": "dialore.datasets.dailydialog:XDailyDialogEn",
    "xdailydialog-zh": "dialore.datasets.dailydialog:XDailyDialogZh",
}


def data_set_names() -> list[str]:
    """Return the names of all data sets, sorted."""
    return names_of(GROUP, _SETS)


def data_set(name: str) -> DataSet:
    """Return the data set of that name, or of the file that has its class.

    Raises:
        UnknownNameError: no data set is called that.
        InputError: it cannot be loaded.
    """
    made: DataSet = find("data set", name, GROUP, _SETS, lambda value: DataSet in getattr(value, "__mro__", ()))()
    return made


def knowledge_pieces(name: str, path: Path) -> Iterator[Passage]:
    """Yield the distinct sentences of a data set's knowledge as passages, to build an index of.

    They are all that the responders could draw on where the file has it, else the gold knowledge of their turns.

    Raises:
        InputError: an unknown data set, one without knowledge, or a file that is not in its published form.
    """
    reader = data_set(name)
    if "knowledge" not in reader.has:
        others = (other.name for other in loadable(data_set_names(), data_set) if "knowledge" in other.has)
        raise InputError(f"{name} comes without knowledge", hint=f"these have some: {', '.join(others)}")
    seen: set[bytes] = set()
    for piece in reader.knowledge(path):
        known = {} if isinstance(piece, str) else piece
        text = gold_text(piece).strip()
        title, url = (str(known.get(key) or "").strip() for key in ("title", "url"))
        # A digest, so that a data set of millions of sentences is not held in memory.
        digest = hashlib.blake2b(f"{url}\n{title}\n{text}".encode(), digest_size=12).digest()
        if text and digest not in seen:
            seen.add(digest)
            yield Passage(text, title, url)
