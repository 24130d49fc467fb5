"""Weave: needs and a draft at once, one look-up in every source, one rewrite where what was found is worth it."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel

from dialore.errors import DialoreError, InputError, StageError, UnknownNameError, WindowError, is_fatal
from dialore.methods.base import OverSources, Switch, check_least
from dialore.methods.cleaning import prompt_line
from dialore.methods.selection import (
    MOST,
    SAID,
    Found,
    Need,
    Needs,
    Selection,
    has_asked_back,
    needs_schema,
    requests_information,
    select,
    show_first,
)
from dialore.methods.usefulness import already_said, probabilities_of_use
from dialore.parallel import gather
from dialore.response import Demands, Grounding, Response
from dialore.sources.base import Countable, Listed
from dialore.sources.persona import PersonaSource
from dialore.text import close_gaps

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dialore.dialogue import Dialogue
    from dialore.knowledge import Knowledge
    from dialore.llm.model import OnToken
    from dialore.methods.stages import StageContext
    from dialore.sources.base import KnowledgeSource
    from dialore.sources.declared import DeclaredSource

_SEEN, _TITLES = 200, 30  # items of a source whose titles are all listed, and titles that the needs are shown, at most
_ASKED = 0.05  # the share of the threshold that is enough for what the turn asks, as the writer sees whether it answers
_UNPLANNED = 0.2  # the share that is enough without a plan, as the turns themselves are the only query
_FACTS = 2  # the factor on the threshold for facts of the graph, most of which a model knows
_FIRST, _TURNS = 4, 8  # passages that the draft is shown, and turns that are the query for them, at most
_PLANS = ("auto", "needs", "none")
_LOCAL = ("documents", "memory")  # kinds that answer within milliseconds and hold what no model knows


class Unsupported(BaseModel):
    """The numbers of the statements that the cited passage does not support."""

    unsupported: list[int]


@dataclass(slots=True)
class _Plan:
    """The needs with the sources that are asked for them, the names of planned sources, and needs without a source."""

    needs: Needs
    asked: list[tuple[Need, DeclaredSource]]
    names: list[str]
    lost: list[str] = field(default_factory=list)

    @property
    def unclear(self) -> list[str]:
        """The needs that leave open which of several things is asked for, in words."""
        return [need.what for need in self.needs.needs if need.unclear]


@dataclass(slots=True)
class _Stream:
    """The stream of the response: what is held back until the draft is known to be the response, or not."""

    on_token: OnToken | None
    on_draft: OnToken | None
    held: list[str] = field(default_factory=list)
    is_held: bool = True
    has_begun: bool = False

    def feed(self, piece: str) -> None:
        """Send a piece of text, or hold it back."""
        if self.is_held:
            self.held.append(piece)
            if self.on_draft is not None:
                self.on_draft(piece)
        elif self.on_token is not None and piece:
            self.has_begun = True
            self.on_token(piece)

    def release(self) -> None:
        """Send what was held back, and everything from now on."""
        self.is_held = False
        held, self.held = "".join(self.held), []
        self.feed(held)

    def drop(self) -> None:
        """Drop what was held back, as another text is sent."""
        self.held, self.is_held = [], False


@dataclass(slots=True)
class _Turn:
    """The state of one response: dialogue and stages, the persona that every prompt shows, and the sources to ask."""

    dialogue: Dialogue
    stage: StageContext
    own: list[Knowledge]
    entries: list[DeclaredSource]
    is_planned: bool = True
    may_ask: bool = False

    @property
    def requests_information(self) -> bool:
        """Whether the last turn asks for something."""
        return requests_information(self.dialogue.last.text)


@dataclass(frozen=True)
class Weave(OverSources):
    """Our own, over every source: at once what the response needs to know and a draft, one look-up, one rewrite.

    The draft is written from history, persona and what documents and memory have by the words of the last turns (what
    is likely of use; where the turn asks for something, what may be), while one call says what a well-informed talker
    would have to know, where it may be found, and by which query. All named sources are searched at once. Pieces that
    the history has said go, and those that are less likely of use than `threshold`; where nothing is left that the
    draft was not shown, but for facts that are not asked for, the draft is the response, streamed as soon as that is
    certain. Otherwise it is written anew from the draft and the pieces: what was asked is answered, what was wrong is
    mended, what was asked and not found is not invented, and the rest stays as it was.

    A persona of at most `persona_limit` sentences is in every prompt and never looked up; where there is no other
    source, the draft is the response without further ado. Responses always cite by number; readers see no numbers.

    Attributes:
        persona_limit: persona sentences up to which all are shown; of a longer persona so many, and it is searched.
        top: pieces asked of a source for each need; twice as many for the first look.
        limit: pieces kept at most for what would only make the response better; each need's best comes first.
        asked_limit: pieces kept at most where the turn asks for something: what it asks for comes first.
        threshold: the calibrated probability of use under which a piece is dropped; a twentieth is enough for what
            the turn asks: the writer sees whether it answers; a fifth where nothing is planned; facts of a graph need
            twice as much.
        plan: what is looked up. `needs`: what a call says is needed, while the draft is written. `none`: what documents
            and memory have by the words of the turns, four pieces; the draft is the response, one call.
            `auto`: `needs`, but `none` once a model has shown that it is slow, and for one that this process runs.
        clarify: ask back where a question may mean several things that were found and whose answers differ; not with
            `plan=none`, for small models answer all the same.
        strict: answer from the sources alone: what none of them holds is not answered from general knowledge.
        check: have every citation tested: those that do not hold are taken out, and a sentence that rests on such a one
            alone has the response written once more. `trained:FOLDER`: tested by what `dialore train nli`
            made, without a call.
    """

    name: ClassVar[str] = "weave"
    paper: ClassVar[str] = "our own"
    summary: ClassVar[str] = "needs and a draft at once, one look-up in every source, a rewrite only where it pays"
    calls: ClassVar[str] = "3 in 2 steps (2 in 1 where the draft stands; check adds 1, or 3; trained 0, or 1)"
    stages: ClassVar[tuple[str, ...]] = ("weave/needs", "weave/draft", "weave/write", "weave/check")
    cites: ClassVar[bool] = True

    persona_limit: int = 20
    top: int = 10
    limit: int = 3
    asked_limit: int = 6
    threshold: float = 0.25
    plan: str = "auto"
    clarify: bool = True
    strict: bool = False
    check: Switch = False

    def __post_init__(self) -> None:
        check_least(self, persona_limit=1, top=1, limit=1, asked_limit=1)
        if not 0 <= self.threshold <= 1:
            raise InputError(f"option threshold of weave is a probability, not {self.threshold}", hint="0 to 1")
        if self.plan not in _PLANS:
            raise UnknownNameError("plan of weave", self.plan, _PLANS)
        if isinstance(self.check, str):
            from dialore.trained import load_trained

            load_trained(self.check, "entailment")

    async def ground(self, dialogue: Dialogue, stage: StageContext) -> Grounding:
        """Needs and look-up, without a draft."""
        turn = await self._open(dialogue, stage)
        first = None if turn.is_planned else asyncio.create_task(self._look_first(turn))
        plan, selection = await self._look_up(turn, first)
        return self._grounding(plan, selection, turn)

    async def respond(self, dialogue: Dialogue, stage: StageContext) -> Response:
        """Draft and look-up at once, then write, where there is something to write with."""
        turn = await self._open(dialogue, stage)
        stream = _Stream(stage.on_token, stage.on_draft)
        first = asyncio.create_task(self._look_first(turn))
        drafting = asyncio.create_task(self._draft(turn, first, stream))
        alone: list[str] = []
        try:
            plan, selection = await self._look_up(turn, first)
            shown = [hit.piece for hit in await first if not hit.dropped]
            settles = selection.settles and not (turn.may_ask and plan.unclear)
            if settles and not self.check:
                stream.release()
            draft = await drafting
            if settles and draft:
                alone = await self._check(draft, [*turn.own, *shown], stage, suffix="draft") if self.check else []
                if not alone:
                    stream.release()
                    return self._grounding(plan, selection, turn).drafted(draft, draft, [*turn.own, *shown])
        finally:
            for task in (first, drafting):
                task.cancel()
            await asyncio.gather(first, drafting, return_exceptions=True)
        stream.drop()
        cited = {citation.knowledge for citation in stage.citations(draft)} - {piece.id for piece in selection.kept}
        selection.kept += [piece for piece in shown if piece.id in cited]
        text = await self._write(turn, draft, plan, selection, alone, stream)
        return self._grounding(plan, selection, turn).drafted(text, draft, [*turn.own, *shown])

    # --- what there is to ask

    async def _open(self, dialogue: Dialogue, stage: StageContext) -> _Turn:
        """Return the persona that every prompt shows, and the sources that are left to be asked."""
        is_planned = self.plan == "needs" or (self.plan == "auto" and not stage.stage_runner.is_slow)
        turn = _Turn(dialogue, stage, [], [], is_planned, self.clarify and is_planned and not has_asked_back(dialogue))
        for entry in self.declared.entries:
            if isinstance(entry.source, PersonaSource):
                query = " ".join(dialogue.texts[-2:])
                sentences = await stage.search(entry.name, entry.source, query, self.persona_limit + 1, as_found=True)
                if len(sentences) > self.persona_limit:
                    turn.entries.append(entry)
                elif sentences:
                    sentences = list(entry.source.every(dialogue))
                turn.own += sentences[: self.persona_limit]
            elif _holds(entry.source, dialogue):
                turn.entries.append(entry)
        return turn

    # --- needs and draft

    async def _look_first(self, turn: _Turn) -> list[Found]:
        """Return what documents and memory have by the words of the turns: the draft need not wait for the needs."""
        texts = turn.dialogue.texts[-_TURNS:]
        whole = Need(what="the last turns", query=" ".join(texts), asked=turn.requests_information)
        local = [entry for entry in turn.entries if entry.kind in _LOCAL]
        searches = await gather(*(self._search(turn, whole, entry, also=texts[-1]) for entry in local))
        return show_first([hit for hits in searches for hit in hits], turn.own, _FIRST)

    async def _draft(self, turn: _Turn, first: asyncio.Task[list[Found]], stream: _Stream) -> str:
        """Return the draft; nothing where it failed before anything was sent."""
        try:
            shown = [hit.piece for hit in await first if not hit.dropped]
            if not turn.is_planned:  # a small model reads best what stands next to the question
                shown.reverse()
            given = _titled([*turn.own, *shown])
            return await turn.stage.text(
                "weave/draft",
                cites=given,
                on_token=None if stream.on_token is None else stream.feed,
                own=given[: len(turn.own)],
                knowledge=given[len(turn.own) :],
                may_ask=turn.may_ask,
                strict=self.strict,
                brief=not turn.is_planned,
            )
        except StageError as error:
            if isinstance(error.cause, WindowError):
                raise  # the last turn alone does not fit, and the prompt of the response is longer than the draft's
            _go_on(error, "the response is written without a draft", turn.stage, begun=stream.has_begun)
            return ""

    async def _plan(self, turn: _Turn) -> _Plan:
        """Ask for the needs, and find the source of each; what cannot be read is the last turn, asked everywhere."""
        entries, dialogue = turn.entries, turn.dialogue
        if not entries or not turn.is_planned:
            return _Plan(Needs(), [], [])
        last = dialogue.last.text
        fallback = Needs(needs=[Need(what=last, source=entry.name, query=last, asked=True) for entry in entries])
        titles = await gather(*(_titles(entry.source, dialogue) for entry in entries))
        listed = [
            {"name": entry.name, "description": entry.description[dialogue.language], "titles": own}
            for entry, own in zip(entries, titles, strict=True)
        ]
        persona = [prompt_line(piece) for piece in turn.own]
        has_graph = any(entry.kind == "graph" for entry in entries)
        schema = needs_schema([entry.name for entry in entries], topics=has_graph, unclear=turn.may_ask)
        told: dict[str, Any] = {"sources": listed, "persona": persona, "has_topics": has_graph, "may_ask": turn.may_ask}
        try:
            needs = await turn.stage.ask("weave/needs", Needs, fallback, schema=schema, **told)
        except StageError as error:
            _go_on(error, "the last turn is looked up in every source", turn.stage)
            needs = fallback
        if needs is not fallback and not turn.requests_information:
            optional = [need.model_copy(update={"asked": False, "unclear": False}) for need in needs.needs]
            needs = needs.model_copy(update={"needs": optional})
        most = len(entries) if needs is fallback else MOST
        by_title = {title.casefold(): entry for entry, own in zip(entries, titles, strict=True) for title in own}
        asked, lost = [], []
        for need in needs.needs[:most]:
            if entry := _find_source(need.source, entries) or by_title.get(" ".join(need.source.split()).casefold()):
                asked.append((need, entry))
            else:
                lost.append(f"{need.what} (in {need.source or 'no source'})")
        declared = [entry for need in needs.needs if (entry := _find_source(need.source, self.declared.entries))]
        names = dict.fromkeys(entry.name for entry in (*declared, *(entry for _, entry in asked)))
        if needs.topics and needs is not fallback:
            topics = Need(what="topics that could come next", query=", ".join(needs.topics))
            asked += [(topics, entry) for entry in entries if entry.kind == "graph"]
        return _Plan(needs, asked, list(names), lost)

    # --- look-up

    async def _look_up(self, turn: _Turn, first: asyncio.Task[list[Found]] | None) -> tuple[_Plan, Selection]:
        """Return the needs, and what is kept of what is found for them; `first` finds what the draft is shown."""
        plan = await self._plan(turn)
        searches = await gather(*(self._search(turn, need, entry) for need, entry in plan.asked))
        shown = [] if first is None else await first
        if not plan.asked and not shown and not plan.lost:
            return plan, Selection([], [], is_new=False)
        with turn.stage.step("selection") as step:
            by_need = [(need, entry.kind, hits) for (need, entry), hits in zip(plan.asked, searches, strict=True)]
            selection = select(
                by_need, shown, turn.own, limit=self.limit, asked_limit=self.asked_limit, drafted=first is not None
            )
            every = [*(hit for hits in searches for hit in hits), *shown]
            pieces = [hit.traced(prompt_line(hit.piece)) for hit in every]
            step.output = {"pieces": pieces, "not_found": selection.missing, "not_looked_up": plan.lost}
            step.notes += [f"not looked up, there is no such source: {hits}" for hits in plan.lost]
            step.summary = f"Kept {len(selection.kept)} of {len({hit.piece.id for hit in every})} pieces"
            if selection.missing:
                step.summary += f"; not found: {'; '.join(selection.missing)}"
        return plan, selection

    def _grounding(self, plan: _Plan, selection: Selection, turn: _Turn) -> Grounding:
        demands = Demands(
            explicit=[need.query for need in plan.needs.needs if need.asked],
            implicit=[need.query for need in plan.needs.needs if not need.asked],
            extended=plan.needs.topics,
        )
        kinds = {entry.name: entry.kind for entry in self.declared.entries}
        knowledge = [*selection.kept, *turn.own]
        return Grounding(knowledge=knowledge, demands=demands, plan=plan.names, kinds=kinds)

    async def _search(self, turn: _Turn, need: Need, entry: DeclaredSource, also: str = "") -> list[Found]:
        """Return what a source has for a need, each piece with the probability that it is of use.

        The first look is by two queries: all turns, and `also` the last one; where it is reranked, by all turns alone.
        """
        query, stage = need.query, turn.stage
        if entry.source is None:  # what the model knows itself is in the draft
            return []
        top = entry.top or self.top
        if also:
            queries = [query] if stage.rerank else dict.fromkeys((query, also))
            name = f"first-look-{entry.name}"
            both = await gather(*(stage.search(name, entry.source, asked, 2 * top) for asked in queries))
            pieces = [*{piece.id: piece for hits in both for piece in hits}.values()]
        else:
            pieces = await stage.search(f"look-up-{entry.name}", entry.source, query, top, summary="Looked up: {}")
        chances = await asyncio.to_thread(probabilities_of_use, pieces, query, turn.dialogue, also)
        # Memory's own ranking finds more: on LoCoMo the first holds the answer in 38% of questions, not 27.
        if entry.kind == "memory" or (stage.rerank and entry.kind != "graph"):
            pieces = sorted(pieces, key=lambda piece: -piece.score)
            chances = sorted(chances, reverse=True)
        told = await asyncio.to_thread(already_said, pieces, turn.dialogue)
        share = _ASKED if need.asked else 1 if turn.is_planned else _UNPLANNED
        least = self.threshold * share * (_FACTS if entry.kind == "graph" else 1)
        hits = []
        for piece, chance, is_said in zip(pieces, chances, told, strict=True):
            dropped = f"its probability is under {least:.3g}" if chance < least else ""
            dropped = SAID if is_said else dropped
            known = piece.model_copy(update={"probability": round(chance, 3)})
            hits.append(Found(need, entry.name, known, dropped))
        return hits

    # --- write and check

    async def _write(
        self, turn: _Turn, draft: str, plan: _Plan, selection: Selection, unsupported: Sequence[str], stream: _Stream
    ) -> str:
        """Return the response from draft and pieces; the draft where that fails."""
        stage, own = turn.stage, turn.own
        given = _titled([*own, *selection.kept])

        async def written(unsupported: Sequence[str], suffix: str = "") -> str:
            return await stage.text(
                "weave/write",
                suffix=suffix,
                cites=given,
                on_token=None if self.check or stream.on_token is None else stream.feed,
                own=given[: len(own)],
                knowledge=given[len(own) :],
                draft=draft,
                topics=plan.needs.topics,
                missing=selection.missing,
                may_ask=turn.may_ask,
                unclear=plan.unclear if turn.may_ask else [],
                strict=self.strict,
                brief=not turn.is_planned,
                # What must not be guessed where no source has it; what a graph lacks, a model may well know.
                is_documented=any(entry.kind != "graph" for entry in turn.entries),
                unsupported=list(unsupported),
            )

        try:
            text = await written(unsupported)
            if self.check:
                if alone := await self._check(text, given, stage):
                    text = await written(alone, "again") or text
                    await self._check(text, given, stage, suffix="again")
                stream.feed(text)
        except StageError as error:
            if not draft:
                raise
            _go_on(error, "the draft is sent", stage, begun=stream.has_begun)
            text = ""
        if not text.strip() and draft:
            text = draft
            stream.feed(text)
        return text

    async def _check(self, text: str, given: Sequence[Knowledge], stage: StageContext, suffix: str = "") -> list[str]:
        """Take out the citations that do not hold; gives the statements that are left without any."""
        cited = stage.citations(text)
        if not cited:
            return []
        texts = {piece.id: piece.text for piece in given}
        pairs = [
            {"statement": text[citation.start : citation.end], "piece": texts[citation.knowledge]} for citation in cited
        ]
        if isinstance(self.check, str):
            from dialore.trained import load_trained

            with stage.step(f"check-{suffix}" if suffix else "check") as step:
                given_first = [(pair["piece"], pair["statement"]) for pair in pairs]
                entailed = await asyncio.to_thread(load_trained(self.check, "entailment").entails, given_first)
                answer = Unsupported(unsupported=[at for at, holds in enumerate(entailed, start=1) if not holds])
                step.output = answer.model_dump()
        else:
            answer = await stage.ask(
                "weave/check", Unsupported, Unsupported(unsupported=[]), suffix=suffix, response=text, pairs=pairs
            )
        hold = [citation for number, citation in enumerate(cited, start=1) if number not in answer.unsupported]
        stage.cited(text, hold)
        grounded = {(citation.start, citation.end) for citation in hold}
        return list(dict.fromkeys(text[a:b] for a, b in ((e.start, e.end) for e in cited) if (a, b) not in grounded))


def _holds(source: KnowledgeSource | None, dialogue: Dialogue) -> bool:
    """Return whether there is anything to be asked; what cannot be listed may have it."""
    try:
        return source is not None and (
            not isinstance(source, Listed) or _count(source) > 0 or any(True for _ in source.every(dialogue))
        )
    except DialoreError:  # its search will say what is wrong
        return True


async def _titles(source: KnowledgeSource | None, dialogue: Dialogue) -> list[str]:
    """Return the titles of what a source can list, of a memory its statements; of a large one, the nearest."""
    if not isinstance(source, Listed):
        return []
    try:
        if _count(source) <= _SEEN:
            pieces = [*itertools.islice(source.every(dialogue), _SEEN + 1)]
            titles = _distinct(pieces)
            if len(pieces) <= _SEEN and len(titles) <= _TITLES:
                return titles
        return _distinct(await source.search(" ".join(dialogue.texts[-2:]), dialogue, _TITLES))
    except DialoreError:
        return []


def _count(source: KnowledgeSource) -> int:
    """Return how many pieces it has at least, where that can be told without listing them, which takes long."""
    return source.count() if isinstance(source, Countable) else 0


def _distinct(pieces: Iterable[Knowledge]) -> list[str]:
    titles: dict[str, None] = {}
    for piece in pieces:
        titles[close_gaps(piece.persona) or piece.title or (piece.text if piece.said else "")] = None
    return list(filter(None, titles))


def _titled(pieces: Sequence[Knowledge]) -> list[Knowledge]:
    return [piece.model_copy(update={"text": prompt_line(piece)}) for piece in pieces]


def _find_source(name: str, entries: Sequence[DeclaredSource]) -> DeclaredSource | None:
    """Return the source of that name, else of that kind; None where there is none."""
    wanted = " ".join(name.split()).casefold()
    by_name = (entry for entry in entries if entry.name.casefold() == wanted)
    return next(by_name, None) or next((entry for entry in entries if entry.kind == wanted), None)


def _go_on(error: StageError, how: str, stage: StageContext, *, begun: bool = False) -> None:
    """Note how the response goes on after a failed stage; raises what cannot be gone on after."""
    if is_fatal(error.cause) or begun:
        raise error
    next(step for step in reversed(stage.trace) if step.outcome == "failed").notes.append(how)
