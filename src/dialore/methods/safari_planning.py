"""SAFARI's plans: read from what a model wrote, mended where they break a dependency; and a data set's gold ones."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field

from dialore.errors import DialoreError
from dialore.knowledge import Knowledge, Passage, PassageDetail, stable_id

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dialore.dialogue import Dialogue
    from dialore.knowledge import Source
    from dialore.sources.declared import DeclaredSource, DeclaredSources

_NOTHING = frozenset({"", "null", "none", "nothing", "无", "没有", "不需要", "空"})
_PARTS = re.compile(r"\s*(?:[,，、;；>→\n|]|->|=>|\s+(?:and|then)\s+|然后|再)\s*", re.IGNORECASE)
_LABEL = re.compile(r"^[^\n:：]{0,30}[:：]\s*")
_AROUND = " .。\"'“”‘’`*[]()（）{}<>-"


def _names(value: Any) -> Any:  # noqa: ANN401 - what a model wrote
    """Names in order; text such as `PERSONA, DOCUMENTS`, null and NULL are plans too."""
    if value is None or isinstance(value, str):
        value = _PARTS.split(value or "")
    if not isinstance(value, list):
        return value
    named = (str(item.get("name", "") if isinstance(item, dict) else item or "").strip(_AROUND) for item in value)
    return [name for name in named if name.casefold() not in _NOTHING]


class Plan(BaseModel):
    """Planning: the names of the sources that the response needs, in the order in which to ask them; none for NULL."""

    sources: Annotated[list[str], BeforeValidator(_names)] = Field(description="names of sources in order")


def read_plan(text: str, declared: DeclaredSources) -> Plan | None:
    """A plan in the paper's own form, `PERSONA, DOCUMENTS` or `NULL`; None where the text says anything besides.

    A label before it ("Answer: ") is no harm; prose that mentions a source is no plan: it may say not to use it.
    """
    for line in (text, _LABEL.sub("", text)):
        stripped = line.strip(_AROUND + "\n")
        if stripped.casefold() in _NOTHING - {""}:
            return Plan(sources=[])
        named = [part.strip(_AROUND) for part in _PARTS.split(stripped) if part.strip(_AROUND)]
        if named and all(declared.find(name) is not None for name in named):
            return Plan(sources=named)
    return None


def mend_plan(
    names: Sequence[str], declared: DeclaredSources, *, dependency: bool = True, drop: bool = False
) -> tuple[list[str], list[str]]:
    """A plan of declared sources, each once, each after those that it depends on.

    Args:
        names: the plan as it was made.
        declared: the sources.
        dependency: off: dependencies are not looked at ("- Dependency").
        drop: a source whose dependencies are not planned is left out, so that DOCUMENTS alone counts as NULL (footnote
            14 of the paper); else those that it needs are put before it.

    Returns:
        A plan that can be followed, and what was changed, one sentence each.
    """
    notes: list[str] = []
    known: dict[str, None] = {}
    for name in names:
        entry = declared.find(name)
        if entry is None:
            notes.append(f"source {name!r} is not declared: dropped")
        elif entry.name in known:
            notes.append(f"source {entry.name!r} was planned more than once: the repeat is dropped")
        else:
            known[entry.name] = None
    if not dependency:
        return list(known), notes
    plan: dict[str, None] = {}
    for name in known:
        needed = declared.needed_by(name)
        missing = [before for before in needed if before not in known]
        if missing and drop:
            notes.append(f"source {name!r} depends on {_listed(missing)}, which is not planned: dropped")
            continue
        if missing := [before for before in needed if before not in known and before not in plan]:
            notes.append(f"source {name!r} depends on {_listed(missing)}: put before it")
        elif late := [before for before in needed if before not in plan]:
            notes.append(f"source {name!r} depends on {_listed(late)}: asked after it")
        plan |= dict.fromkeys((*needed, name))
    return list(plan), notes


def _listed(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names)


def gold_plan(dialogue: Dialogue, declared: DeclaredSources) -> list[str]:
    """The plan that a data set gives ("+ Ground Planning"); its names are those of sources, or else of kinds.

    Raises:
        DialoreError: the dialogue has no gold plan, or one with a source that is not declared.
    """
    if not dialogue.sources and "sources" not in dialogue.model_fields_set:
        raise DialoreError(
            f"dialogue {dialogue.id} has no gold plan", mend='it is its field "sources"; or planning=model'
        )
    plan = []
    for name in dialogue.sources:
        entry = declared.find(name) or _of_kind(name, declared)
        if entry is None:
            message = f"dialogue {dialogue.id}: its gold plan names {name!r}, which is not declared"
            raise DialoreError(message, mend=f"declared: {', '.join(declared.names)}")
        plan.append(entry.name)
    return plan


def gold_knowledge(dialogue: Dialogue, entry: DeclaredSource) -> list[Knowledge]:
    """The gold knowledge of one source in a data set ("+ Ground Retrieval").

    Raises:
        DialoreError: the dialogue has no gold knowledge, nor a gold plan that says that none is needed.
    """
    if not dialogue.knowledge and (dialogue.sources or "sources" not in dialogue.model_fields_set):
        message = f"dialogue {dialogue.id} has no gold knowledge"
        raise DialoreError(message, mend='it is its field "knowledge"; or set retrieval=found')
    return [piece for name, piece in _gold(dialogue) if name.casefold() in {entry.name.casefold(), entry.kind}]


def _gold(dialogue: Dialogue) -> Iterator[tuple[str, Knowledge]]:
    """Each piece with the name of its source; what names none is the persona's where it is one of its sentences."""
    for given in dialogue.knowledge:
        item: dict[str, Any] = {"text": given} if isinstance(given, str) else given
        text = str(item.get("text") or " ".join(str(item[key]) for key in ("head", "relation", "tail") if key in item))
        name = str(item.get("source") or ("persona" if text in dialogue.persona else "documents"))
        if not text.strip():
            continue
        if name == "persona":
            yield name, Knowledge(id=stable_id("persona", text), kind="persona", text=text, source="persona")
            continue
        source: Source = "documents"
        for kind in ("graph", "web", "model"):
            source = kind if name == kind else source
        detail = PassageDetail(title=str(item.get("title") or ""), persona=str(item.get("persona") or ""))
        yield name, Knowledge(id=Passage(text).id, kind="passage", text=text, source=source, detail=detail)


def _of_kind(kind: str, declared: DeclaredSources) -> DeclaredSource | None:
    return next((entry for entry in declared.entries if entry.kind == kind.casefold()), None)
