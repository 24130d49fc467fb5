"""SAFARI: a language model as planner of sources (Wang et al., Findings of EMNLP 2023), Sections 4.1 to 4.3."""

from __future__ import annotations

import asyncio
import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel, Field

from dialore.datasets import gold_text
from dialore.errors import DialoreError, InputError, UnknownNameError
from dialore.knowledge import Knowledge, Passage, stable_id
from dialore.llm.structured import UnparsedError, parse
from dialore.methods.base import OURS, OverSources, check_least
from dialore.methods.cleaning import prompt_line, read_answer
from dialore.parallel import gather
from dialore.prompts.history import on_one_line, render_history
from dialore.response import Grounding, Response
from dialore.sources.declared import DeclaredSource, DeclaredSources, default_sources
from dialore.sources.persona import PersonaSource
from dialore.text import close_gaps
from dialore.trained import PREFIX, load_trained

if TYPE_CHECKING:
    from dialore.dialogue import Dialogue
    from dialore.methods.stages import StageContext
    from dialore.text import Language

_SUPERVISED = "supervised"
_CHOICES = {
    "planning": ("model", "persona", "all", "gold"),
    "plan_parser": ("names", "substring"),
    "retrieval": ("found", "gold"),
    "on_invalid_plan": ("repair", "null"),
}
Given = tuple[str, Knowledge]  # a piece after the name of its source, in capitals
_SPEAKERS = {"en": ("User: ", "System: "), "zh": ("用户：", "系统：")}


class Plan(BaseModel):
    """Planning: the names of the sources that the response needs, in the order in which to ask them; none for NULL."""

    sources: list[str] = Field(description="names of sources in order")


@dataclass(frozen=True)
class Safari(OverSources):
    """The model plans which sources the response needs and in which order, and answers from what they give.

    This is the unsupervised setting (Section 4.3); a model that `dialore train generator` made is asked for both plan
    and response by `prompt_variant=supervised` (Section 4.3, Equations 1 to 3), and continues its own sequence. Sources
    are declared, any number, with descriptions and dependencies as a directed acyclic graph; undeclared, they are the
    paper's, persona -> documents, and by our own prompts what else is open.

    The paper's setting is `prompt_variant=paper, plan_parser=substring, on_invalid_plan=null, turns=0, max_chars=128`
    with a retriever that ranks by the query alone (`okapi` is its BM25); `docs/fidelity.md` has every difference.

    Attributes:
        prompt_variant: `ours`: prompts with guidance, and plans in JSON; `paper`: what Tables 2, 3 and 12 say, and no
            more; `supervised`: the sequence of special tokens that a model was trained on.
        planning: `model`; `persona`: always the persona ("- Planning*"); `all`: always every source, for the paper's
            two "- Planning**"; `gold`: as the data set says ("+ Ground Planning"); `trained:FOLDER`: by a model that
            `dialore train planner` made, without a call.
        plan_parser: how an answer is read as a plan: `names`, separated in any way, in JSON, between [SOURCE] and
            [EOS], or in a sentence without a denial; or `substring`, as the authors' code does: a source is planned
            whose name stands anywhere before a blank line, in capitals.
        demonstrations: examples before the dialogue: 0 (zero-shot) or 3 (in-context), in planning and assembling.
        on_invalid_plan: what becomes of a plan with a source whose dependencies it does not name: `repair`, or `null`,
            which leaves the source out (footnote 14).
        retrieval: `found`, or `gold`: all that the data set says that the response stands on, once the plan is not NULL
            ("+ Ground Retrieval").
        top: pieces of each source that does not say (Section 5.1: 1; Table 8: 2, 3).
        turns: how many of the last turns make the query; 0: the whole context, with its speakers.
        retriever: ranks the persona and its documents where nothing is declared: `dialogue`, `trained:FOLDER` (a ranker
            that `dialore train retriever` made), or a reranker's spec.
        dependency: off: "- Dependency"; no source is narrowed by another, whose pieces are joined to the query instead.
        use_documents: off: "- Documents"; sources of the kind `documents` are planned, but give nothing.
        max_chars: characters that are kept of a response; 0: all.
    """

    name: ClassVar[str] = "safari"
    paper: ClassVar[str] = "SAFARI (Findings of EMNLP 2023), Sections 4.1 to 4.3"
    summary: ClassVar[str] = "the model plans which sources to ask in which order, and answers from what they give"
    optional_sources: ClassVar[tuple[str, ...]] = ("sources", "persona", "documents", "graph", "web")
    calls: ClassVar[str] = "2 (1 more for a source of the kind model)"
    forms: ClassVar[tuple[str, ...]] = (_SUPERVISED,)
    stages: ClassVar[tuple[str, ...]] = ("safari/planning", "safari/model-knowledge", "safari/response-generation")

    prompt_variant: str = OURS
    planning: str = "model"
    plan_parser: str = "names"
    demonstrations: int = 0
    on_invalid_plan: str = "repair"
    retrieval: str = "found"
    top: int = 1
    turns: int = 1
    retriever: str = "dialogue"
    dependency: bool = True
    use_documents: bool = True
    max_chars: int = 0

    def __post_init__(self) -> None:
        for option, known in _CHOICES.items():
            if getattr(self, option) not in known and not (option == "planning" and self.planning.startswith(PREFIX)):
                raise UnknownNameError(f"{option} of safari", getattr(self, option), known)
        if self.planning.startswith(PREFIX):
            load_trained(self.planning, "planner")
        check_least(self, top=1, turns=0, demonstrations=0, max_chars=0)
        if not self._always("persona") and self.planning == "persona":
            raise InputError("planning=persona needs a source of the kind persona", hint="declare one")
        if self.demonstrations and not self._demonstrations("en") and not self._demonstrations("zh"):
            message = "no demonstration names declared sources alone"
            raise InputError(message, hint="add some to the declaration, or set demonstrations=0")

    @functools.cached_property
    def declared(self) -> DeclaredSources:
        """The sources that are planned over: the paper plans over PERSONA and DOCUMENTS alone."""
        is_ours = self.prompt_variant == OURS
        opened = self.opened if is_ours else {"persona": self.persona}
        return self.sources or default_sources(opened, retriever=self.retriever, paper=not is_ours)

    async def ground(self, dialogue: Dialogue, stage: StageContext) -> Grounding:
        """Planning and Retrieval (Section 4.2, Equations 1 and 2)."""
        return (await self._ground(dialogue, stage))[0]

    async def respond(self, dialogue: Dialogue, stage: StageContext) -> Response:
        """Ground, then Assembling: the response from context, sources and what they gave (Equation 3, Table 3)."""
        grounding, given = await self._ground(dialogue, stage)
        shown = self._demonstrations(dialogue.language)
        text = await stage.write(
            "safari/response-generation",
            knowledge=[piece.model_copy(update={"text": prompt_line(piece)}) for _, piece in given],
            names={piece.id: name for name, piece in given},
            about_you=[entry.name.upper() for entry in self.declared.entries if entry.kind == "persona"],
            demonstrations=shown,
            dialogues=[*shown, assemble_line(grounding.plan or (), given)],
        )
        return grounding.response(text[: self.max_chars] if self.max_chars else text)

    async def _ground(self, dialogue: Dialogue, stage: StageContext) -> tuple[Grounding, list[Given]]:
        """Plan and knowledge, and each piece with its source."""
        plan = await self.plan(dialogue, stage)
        given = each_once(await self.retrieve(dialogue, plan, stage))
        kinds = {entry.name: entry.kind for entry in self.declared.entries}
        return Grounding(knowledge=[piece for _, piece in given], plan=plan, kinds=kinds), given

    async def plan(self, dialogue: Dialogue, stage: StageContext) -> list[str]:
        """Planning (Equation 1, Tables 2 and 12). Where nothing can be read, the plan is NULL."""
        if self.planning == "model":
            names = (await self._ask_planner(dialogue, stage)).sources
        else:
            with stage.step("planning") as step:
                if self.planning.startswith(PREFIX):
                    planner, entry = load_trained(self.planning, "planner"), _of_kind("persona", self.declared)
                    persona = entry.source.of(dialogue) if entry and isinstance(entry.source, PersonaSource) else {}
                    probabilities = planner.probabilities(dialogue, persona)
                    entries = [_of_kind(kind, self.declared) for kind in planner.choose(probabilities)]
                    names = [entry.name for entry in entries if entry is not None]
                    shares = {", ".join(plan) or "null": round(share, 4) for plan, share in probabilities.items()}
                    step.output = {"sources": names, "probabilities": shares}
                else:
                    gold = self.planning == "gold"
                    names = gold_plan(dialogue, self.declared) if gold else self._always(self.planning)
                    step.output = {"sources": names}
        plan, notes = mend_plan(names, self.declared, drop=self.on_invalid_plan == "null")
        if notes:
            with stage.step("plan-mending") as step:
                step.output, step.notes, step.summary = {"sources": plan}, notes, f"Plan mended: {'; '.join(notes)}"
        return plan

    async def _ask_planner(self, dialogue: Dialogue, stage: StageContext) -> Plan:
        """Ask for a plan: in JSON with a repair turn by our own prompt, in plain text by the paper's."""
        read = functools.partial(read_plan if self.plan_parser == "names" else read_substrings, declared=self.declared)
        shown = self._demonstrations(dialogue.language)
        sources = []
        for entry in self.declared.entries:
            needs = [name.upper() for name in entry.depends_on]
            told = entry.description[dialogue.language]
            sources.append({"name": entry.name.upper(), "description": told, "depends_on": needs})
        variables: dict[str, Any] = {"sources": sources, "demonstrations": shown, "dialogues": [*shown, {}]}
        variables["dependency"] = any(entry.depends_on for entry in self.declared.entries)
        if self.prompt_variant != OURS:
            return await stage.read("safari/planning", read, Plan(sources=[]), **variables)
        return await stage.ask("safari/planning", Plan, Plan(sources=[]), parser=read, **variables)

    async def retrieve(
        self, dialogue: Dialogue, plan: Sequence[str], stage: StageContext
    ) -> dict[str, list[Knowledge]]:
        """Return results in plan order (Equation 2): a source waits for those it depends on, and for no other."""
        if self.retrieval == "gold":
            with stage.step("retrieval-gold") as step:
                gold = gold_knowledge(dialogue, self.declared) if plan else {}
                if not self.use_documents:
                    gold = {name: pieces for name, pieces in gold.items() if pieces[0].source != "documents"}
                step.output = {"found": [piece.id for pieces in gold.values() for piece in pieces]}
            return gold
        tasks: dict[str, asyncio.Task[list[Knowledge]]] = {}
        for name in plan:
            entry = self.declared[name]
            before = [tasks[other] for other in entry.depends_on if other in tasks]
            tasks[name] = asyncio.create_task(self._ask_source(entry, before, stage))
        return dict(zip(tasks, await gather(*tasks.values()), strict=True))

    async def _ask_source(
        self, entry: DeclaredSource, before: Sequence[asyncio.Task[list[Knowledge]]], stage: StageContext
    ) -> list[Knowledge]:
        preceding = [piece for pieces in await asyncio.gather(*before) for piece in pieces]
        narrowed = self.dependency and entry.join == "filter" and bool(entry.depends_on)
        is_withheld = entry.kind == "documents" and not self.use_documents
        if is_withheld or (narrowed and not preceding):
            under = f"{' and '.join(entry.depends_on)} gave nothing to look under"
            with stage.step(f"retrieval-{entry.name}") as step:
                step.output = {"source": entry.name, "found": []}
                step.notes = ["its pieces are withheld" if is_withheld else under]
            return []
        query = query_of(stage.dialogue, self.turns)
        if preceding and not narrowed:
            query = " ".join([query.rstrip(), *(close_gaps(piece.text) for piece in preceding)])
        if entry.source is not None:
            top = entry.top or self.top
            scope = preceding if narrowed else ()
            return (await stage.search(f"retrieval-{entry.name}", entry.source, query, top, scope))[:top]
        # What the model knows itself, which may be nothing.
        known = list(map(prompt_line, preceding))
        text = await stage.text("safari/model-knowledge", suffix=entry.name, query=query, knowledge=known)
        text = read_answer(text)
        made = Knowledge(id=stable_id("passage", "model", text), kind="passage", text=text, source="model")
        return [made] if text else []

    def _always(self, which: str) -> list[str]:
        """Return the plan that is the same for every dialogue, with what its sources depend on."""
        if which == "all":
            return list(self.declared.names)
        entry = _of_kind("persona", self.declared)
        return [] if entry is None else [*self.declared.needed_by(entry.name), entry.name]

    def _demonstrations(self, language: Language) -> list[dict[str, object]]:
        """Return the demonstrations as prompts have them; one that names an undeclared source is left out."""
        given = self.declared.demonstrations.get(language, ()) if self.demonstrations else ()
        fitting = [sample for sample in given if all(self.declared.find(name) for name in sample.plan)]
        shown: list[dict[str, object]] = []
        for sample in fitting[: self.demonstrations]:
            texts = [(name.upper(), text) for name in sample.plan for text in sample.knowledge.get(name, ())]
            plan = [name.upper() for name in sample.plan]
            history = render_history(sample.dialogue)
            shown.append({"history": history, "plan": plan, "knowledge": texts, "response": sample.response})
        return shown


def query_of(dialogue: Dialogue, turns: int) -> str:
    """Return the query: the last turns; for 0 the whole context as the authors write it, with its speakers."""
    if turns:
        return " ".join(dialogue.texts[-turns:])
    user, system = _SPEAKERS[dialogue.language]
    sides = [system if turn.speaker == dialogue.responder else user for turn in dialogue.turns]
    return "".join(f"{side}{on_one_line(turn.text)} " for side, turn in zip(sides, dialogue.turns, strict=True))


def each_once(found: Mapping[str, Sequence[Knowledge]]) -> list[Given]:
    """Return what was found, each piece once, with the name of the source that gave it first, in capitals."""
    pieces: dict[str, Given] = {}
    for name, given in found.items():
        for piece in given:
            pieces.setdefault(piece.id, (name.upper(), piece))
    return list(pieces.values())


def assemble_line(plan: Sequence[str], given: Sequence[Given]) -> dict[str, Any]:
    """Return plan and results as prompts show them, in training and use: names in capitals, a line a piece."""
    return {"plan": [name.upper() for name in plan], "knowledge": [(name, prompt_line(piece)) for name, piece in given]}


# --- plans: read from what a model wrote, and mended where they break a dependency

_NULL = r"(?:null|none|nothing|无|没有|不需要|空)(?![a-z0-9])"
_BETWEEN = r"(?:and|then)(?![a-z0-9])|然后|再|[1-9][.)、]|[\s,，、;；>→|.。\"'“”‘’`*(){}（）<>\[\]-]"
_MARKED = re.compile(r"\[SOURCE\](.*?)(?:\[EOS\]|\Z)", re.DOTALL | re.IGNORECASE)
_BLANK = re.compile(r"\n[^\S\n]*\n")
_DENIED = re.compile(r"(?i)[不无没别勿或]|n't|\b(?:no|not|none|neither|nor|or|without|null|nothing|cannot)\b")
_SENTENCES = re.compile(r"[.。!！?？\n]\s{0,9}\S")
_LABEL = re.compile(r'^[^\n:：{\["]{0,30}[:：]\s*')


def read_plan(text: str, declared: DeclaredSources) -> Plan | None:
    """Return a plan from an answer: names (`A, B`, `A B`, `[SOURCE] A, B [EOS]`), NULL, or JSON; else None.

    A label before it ("Answer: ") is no harm, nor a reason after a blank line. Of prose, one sentence is a plan that
    names sources in capitals and has no word by which it may say not to use them.
    """
    marked, first = _MARKED.search(text), _first_block(text)
    plain = marked[1] if marked else text
    for line in (plain, _LABEL.sub("", plain), first):
        if (written := _names_in(line, declared)) is not None:
            return Plan(sources=written)
    try:
        plan = parse(text, Plan)
    except UnparsedError:
        if _DENIED.search(first) or _SENTENCES.search(first):
            return None
        capitals = sorted((name.upper() for name in declared.names if name.isascii()), key=len, reverse=True)
        pattern = rf"(?<![A-Za-z0-9_-])(?:{'|'.join(map(re.escape, capitals))})(?![A-Za-z0-9_-])"
        entries_named = re.findall(pattern, first)
        return Plan(sources=entries_named) if entries_named else None
    names: list[str] = []
    for given in plan.sources:
        read = _names_in(given, declared)
        names += [given] if read is None else read
    return Plan(sources=names)


def read_substrings(text: str, declared: DeclaredSources) -> Plan:
    """Return a plan as the authors' code reads it: the sources named in capitals before a blank line."""
    return Plan(sources=[name for name in declared.names if name.upper() in _first_block(text)])


def _first_block(text: str) -> str:
    return _BLANK.split(text.strip(), maxsplit=1)[0]


def _names_in(text: str, declared: DeclaredSources) -> list[str] | None:
    """Return the names of a text that has nothing but names and what may stand between; None for any other."""
    names = "|".join(
        r"\s+".join(map(re.escape, name.split())) for name in sorted(declared.names, key=len, reverse=True)
    )
    words = list(re.finditer(rf"({names})(?![a-z0-9])|({_NULL})|{_BETWEEN}", text, re.IGNORECASE))
    has_more = "".join(word[0] for word in words) != text
    is_plan = not has_more and any(word[1] or word[2] for word in words)
    return [word[1] for word in words if word[1]] if is_plan else None


def mend_plan(names: Sequence[str], declared: DeclaredSources, *, drop: bool = False) -> tuple[list[str], list[str]]:
    """Return a plan of declared sources, each once, after those it depends on; and what was changed for it.

    With `drop`, a source whose dependencies are not planned is left out, so that DOCUMENTS alone counts as NULL
    (footnote 14 of the paper); else those that it needs are put before it.
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
    plan: dict[str, None] = {}
    for name in known:
        needed = declared.needed_by(name)
        missing = [before for before in needed if before not in known]
        if missing and drop:
            notes.append(f"source {name!r} depends on {_listed(missing)}, which is not planned: dropped")
            continue
        if missing := [before for before in missing if before not in plan]:
            notes.append(f"source {name!r} depends on {_listed(missing)}: put before it")
        elif late := [before for before in needed if before not in plan]:
            notes.append(f"source {name!r} depends on {_listed(late)}: asked after it")
        plan |= dict.fromkeys((*needed, name))
    return list(plan), notes


def _listed(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names)


# --- what a data set says


def _of_kind(kind: str, declared: DeclaredSources) -> DeclaredSource | None:
    return next((entry for entry in declared.entries if entry.kind == kind.casefold()), None)


def gold_plan(dialogue: Dialogue, declared: DeclaredSources) -> list[str]:
    """Return the data set's plan ("+ Ground Planning"), in names or kinds; raise DialoreError without one."""
    if not dialogue.sources and "sources" not in dialogue.model_fields_set:
        message = f"dialogue {dialogue.id} has no gold plan"
        raise DialoreError(message, hint='it is its field "sources"; or planning=model')
    plan = []
    for name in dialogue.sources:
        entry = declared.find(name) or _of_kind(name, declared)
        if entry is None:
            message = f"dialogue {dialogue.id}: its gold plan names {name!r}, which is not declared"
            raise DialoreError(message, hint=f"declared: {', '.join(declared.names)}")
        plan.append(entry.name)
    return plan


def gold_knowledge(dialogue: Dialogue, declared: DeclaredSources) -> dict[str, list[Knowledge]]:
    """Return the gold knowledge of a data set by source ("+ Ground Retrieval").

    A piece that names no source is the persona's where it is one of its sentences, else the documents'. Raises
    DialoreError where there is neither gold knowledge nor a gold plan that says that none is needed.
    """
    if not dialogue.knowledge and (dialogue.sources or "sources" not in dialogue.model_fields_set):
        message = f"dialogue {dialogue.id} has no gold knowledge"
        raise DialoreError(message, hint='it is its field "knowledge"; or set retrieval=found')
    by_source: dict[str, list[Knowledge]] = {}
    for given in dialogue.knowledge:
        item: dict[str, Any] = {} if isinstance(given, str) else given
        text = gold_text(given)
        name = str(item.get("source") or ("persona" if text in dialogue.persona else "documents"))
        entry = declared.find(name) or _of_kind(name, declared)
        kind = entry.kind if entry is not None else name
        if kind == "persona":
            piece = Knowledge(id=stable_id("persona", text), kind="persona", text=text, source="persona")
        else:
            source = kind if kind in {"graph", "web", "model"} else "documents"
            passage = Passage(text, str(item.get("title") or ""))
            piece = Knowledge.of_passage(passage, source, persona=str(item.get("persona") or ""))
        if text.strip():
            by_source.setdefault(entry.name if entry is not None else name, []).append(piece)
    return by_source
