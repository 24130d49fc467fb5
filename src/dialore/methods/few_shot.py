"""Samples to prompt with (MSDP, Section 2): what one is, which are good, and the database they are selected from."""

from __future__ import annotations

import hashlib
import json
import random
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from zipfile import BadZipFile

import numpy as np
from pydantic import BaseModel, TypeAdapter, ValidationError

from dialore.dialogue import conversation_of
from dialore.errors import InputError, SourceError, first_line
from dialore.files import whole_file
from dialore.retrieval.fusion import DECIMALS
from dialore.retrieval.graph.matching import HardMatcher, stores_of
from dialore.text import LANGUAGES, Language, is_mentioned, normalise, words

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dialore.dialogue import Dialogue
    from dialore.retrieval.embedding import Embedder
    from dialore.sources.graph import Graph, MultiGraph

    _Rows = NDArray[np.int64]

_VERSION = 5
TOPICS = ("chosen", "checked", "none")  # the ways to tell a dialogue's topic; see `topic_of`
TURNS = 3  # last turns of a history that are encoded, as in MSDP's released code
_GROUNDED = (0.6, 0.9)  # the overlap of response and knowledge that MSDP prompts with (Section 2.2)
_BATCH = 1024
_SPARE = 16  # rows looked at beyond those wanted, as some may be of the very dialogue that is answered
_BROKEN = (OSError, ValueError, EOFError, KeyError, BadZipFile, zlib.error, ValidationError)
_MEND = "build it again with `dialore samples build`"
_Side = Literal["user", "system"]
_UNUSED = frozenset({"no_passages_used", "no passages used"})  # Wizard of Wikipedia's, for turns without knowledge
_LONGEST = 20  # words of fit knowledge at most
_POINTING: dict[Language, tuple[str, ...]] = {"en": ("it", "this"), "zh": ("它", "这", "该", "此")}
_BRACKETS = frozenset("()（）")


@dataclass(frozen=True, slots=True)
class _SampleTurn:
    """One turn, by side: the response is the system's."""

    side: _Side
    text: str


@dataclass(frozen=True, slots=True)
class Sample:
    """A sample of MSDP's database: topic, history, knowledge and response (Section 2), each text on one line.

    Its id is the history's in its data set. A topic that nobody said is empty, as is a response that there is not,
    which leaves the sample to knowledge generation.
    """

    id: str
    language: Language
    topic: str
    turns: tuple[_SampleTurn, ...]
    knowledge: str
    response: str

    @property
    def last_turn(self) -> str:
        """The turn that is answered."""
        return self.turns[-1].text

    @classmethod
    def of_dialogue(cls, dialogue: Dialogue, knowledge: str | None = None) -> Sample | None:
        """Return the sample that a history, its reference and its gold knowledge (or this) are; None without any."""
        known = " ".join(map(_text, dialogue.knowledge)) if knowledge is None else knowledge
        known = " ".join(known.split())
        if not known or known in _UNUSED:
            return None
        turns = turns_by_side(dialogue)
        response = _end_turn(dialogue.reference or "", dialogue.language)
        return cls(dialogue.id, dialogue.language, topic_of(dialogue, "checked"), turns, known, response)


_SAMPLE = TypeAdapter(Sample)


def samples_of(dialogues: Iterable[Dialogue]) -> Iterator[Sample]:
    """Yield the samples in histories with gold knowledge; those without any are passed over."""
    yield from filter(None, map(Sample.of_dialogue, dialogues))


def align_samples(
    dialogues: Iterable[Dialogue], graph: Graph | MultiGraph, embedder: Embedder, top: int = 3
) -> Iterator[Sample]:
    """Yield samples whose knowledge is the facts nearest to them that hard matching finds (DCRAG, Appendix A.1.1)."""
    matcher = HardMatcher(stores_of(graph))
    matched: list[tuple[Dialogue, list[tuple[int, int]]]] = []
    for dialogue in dialogues:
        alignment = matcher.match(dialogue.texts, dialogue.reference or "", dialogue.language)
        if len(alignment):
            matched.append((dialogue, list(dict.fromkeys((int(ours), int(other)) for ours, other in alignment))))
    between = matcher.facts({pair for _, pairs in matched for pair in pairs})
    triples = list(dict.fromkeys(fact.triple for facts in between.values() for fact in facts))
    rows = dict(zip(triples, embedder.encode(triples), strict=True))
    wholes = embedder.encode(["\n".join([*dialogue.texts, dialogue.reference or ""]) for dialogue, _ in matched])
    for (dialogue, pairs), whole in zip(matched, wholes, strict=True):
        named = dict.fromkeys(fact.triple for pair in pairs for fact in between[pair])
        best = sorted(named, key=lambda triple: (-round(float(rows[triple] @ whole), 4), triple))[:top]
        if (sample := Sample.of_dialogue(dialogue, "; ".join(best))) is not None:
            yield sample


def overlaps(knowledge: str, response: str, language: Language, run: int = 1) -> tuple[float, float]:
    """Return the words of a response that stand in its knowledge, as shares of both (MSDP, Sections 2.2 and 4.2).

    Chinese is taken by characters, as a phrase may be cut into words in two ways. Words count in rows of at least `run`
    that all stand in the knowledge: 1 is the paper's formula; its authors' released code counts rows of 10.
    """
    tokens, known = _tokens(response, language), _tokens(knowledge, language)
    shared = row = 0
    for token in [*tokens, None]:
        if token in known:
            row += 1
            continue
        shared += row if row >= run else 0
        row = 0
    return shared / max(len(tokens), 1), shared / max(len(known), 1)


def _tokens(text: str, language: Language) -> list[str]:
    if language == "en":
        return words(text, language)
    return [character for character in normalise(text) if character.isalnum()]


def _grams(sample: Sample, size: int) -> set[tuple[str, ...]]:
    tokens = _tokens(sample.knowledge, sample.language)
    return {tuple(tokens[at : at + size]) for at in range(len(tokens) - size + 1)}


def is_fit(sample: Sample) -> bool:
    """Return whether a sample's knowledge shows well what is to be generated: a short sentence about its topic.

    It names its topic, has no brackets and at most 20 words, and does not open by pointing back ("It ...", 它...). The
    paper does not say so; its authors' released code selects by this where a topic is not in the database.
    """
    text = normalise(sample.knowledge)
    pointing = _POINTING[sample.language]
    opens = text.startswith(pointing) if sample.language == "zh" else text.partition(" ")[0] in pointing
    if opens or _BRACKETS & set(sample.knowledge) or len(words(text, sample.language)) > _LONGEST:
        return False
    return not sample.topic or is_mentioned(sample.topic, [sample.knowledge], sample.language)


def filter_marks(sample: Sample) -> int:
    """Return what the released code's filters say of a sample's knowledge, letter by letter: 1 plain, 2 short."""
    text = sample.knowledge
    is_plain = sample.topic in text and not {"(", ")"} & set(text)
    is_short = len(text.split()) <= _LONGEST and not text.startswith(("It", "it", "This", "this"))
    return is_plain + 2 * is_short


def topic_of(dialogue: Dialogue, which: str = "chosen") -> str:
    """Return a dialogue's topic, empty where it has none.

    Args:
        dialogue: of a data set with search, its `extra["query"]` is the query that was typed for its reply.
        which: `chosen`, the dialogue's own, else the query; `checked`, as MSDP's released code takes it: the query, or
            the `extra["checked_topic"]` that a reader gives (the passage that was checked, the last search before this
            turn), else the title of the gold knowledge, else the dialogue's own. That tells what the reply will be
            about, which nobody knows before it is written. `none`: empty.
    """
    noted = map(dialogue.extra.get, ("query", "checked_topic"))
    asked, given = (value if isinstance(value, str) else "" for value in noted)
    titles = [str(piece.get("title") or "") for piece in dialogue.knowledge or () if isinstance(piece, dict)]
    checked = asked or given or next(filter(None, titles), "") or dialogue.topic
    topic = {"chosen": dialogue.topic or asked, "checked": checked, "none": ""}[which] or ""
    return " ".join(topic.split())


def turns_by_side(dialogue: Dialogue) -> tuple[_SampleTurn, ...]:
    """Return turns by side: the responder's are the system's, everybody else's the user's."""
    sides: dict[bool, _Side] = {True: "system", False: "user"}
    responder, language = dialogue.responder, dialogue.language
    return tuple(
        _SampleTurn(sides[turn.speaker == responder], _end_turn(turn.text, language)) for turn in dialogue.turns
    )


def _end_turn(text: str, language: Language) -> str:
    """Return a turn on one line; an English one gets a full stop where it ends in no mark, as in the released code."""
    line = " ".join(text.split())
    return f"{line}." if line and language == "en" and not line.endswith((".", "?", "!")) else line


def context_text(topic: str, turns: Sequence[_SampleTurn], count: int) -> str:
    """Return the text by which samples and dialogues are compared: `( topic ) turns`, the last ones (released code)."""
    return " ".join([*([f"( {topic} )"] if topic else []), *(turn.text for turn in turns[-count:])])


def is_own_sample(sample: Sample, dialogue: Dialogue) -> bool:
    """Return whether a sample was cut from the very dialogue that is answered.

    Its turns decide: ids of two files may be alike by chance. As far as both go, with the reference and the response as
    the last turns, they must be the same. If only one turn can be compared, which may be a greeting, the ids must agree
    as well.
    """
    ours = [turn.text for turn in turns_by_side(dialogue)]
    theirs = [turn.text for turn in sample.turns]
    if reference := _end_turn(dialogue.reference or "", dialogue.language):
        ours.append(reference)
    if sample.response:
        theirs.append(sample.response)
    compared = min(len(ours), len(theirs))
    if ours[:compared] != theirs[:compared]:
        return False
    return compared > 1 or conversation_of(sample.id) == conversation_of(dialogue.id)


def _number(topic: str) -> int:
    """Return what a topic is found by, whatever its case."""
    return int.from_bytes(hashlib.blake2b(normalise(topic).encode(), digest_size=8).digest())


def _text(piece: str | dict[str, Any]) -> str:
    if isinstance(piece, str):
        return piece
    if "text" in piece:
        return str(piece["text"])
    return f"({', '.join(str(piece[key]) for key in ('head', 'relation', 'tail') if key in piece)})"


class _SamplesMeta(BaseModel):
    """The settings of a database (see `build_samples`), and how many samples are `fit` (`is_fit`) and `grounded`."""

    version: int = _VERSION
    samples: int
    fit: int
    grounded: int
    languages: dict[Language, int]
    embedder: str
    fingerprint: str
    turns: int
    overlap_run: int = 1
    perplexity_by: str = ""
    graph: str = ""


class SampleDatabase:
    """A database of samples in a file. A dialogue gets none of its own samples (`is_own_sample`).

    Raises InputError if the file is no whole database.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = path = Path(path)
        self.name = path.name
        build = "build one with `dialore samples build`"
        if not path.exists():
            raise InputError(f"no such sample database: {path}", hint=build)
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
                self.meta = _SamplesMeta.model_validate_json(archive["meta"].tobytes())
                self._columns: dict[str, NDArray[Any]] = {name: archive[name] for name in archive if name != "meta"}
                self._lines = self._columns.pop("lines").tobytes().split(b"\n")
        except _BROKEN as error:
            reason = "" if "pickle" in str(error) else f": {first_line(error)}"  # numpy takes any other file for one
            raise InputError(f"{path} is no sample database, or a damaged one{reason}", hint=build) from None
        if self.meta.version != _VERSION:
            raise InputError(f"{path} is of version {self.meta.version}; this program reads {_VERSION}", hint=_MEND)
        if {len(self._lines), *map(len, self._columns.values())} != {len(self)}:
            raise InputError(f"the sample database {path} is damaged: its parts do not fit", hint=_MEND)

    def __len__(self) -> int:
        return self.meta.samples

    @cached_property
    def embedder(self) -> Embedder:
        """The embedder that made the database; raises InputError as `recorded_embedder` does."""
        from dialore.retrieval.embedding import recorded_embedder

        return recorded_embedder(self.meta.embedder, self.meta.fingerprint, f"the sample database {self.path}")

    def close(self) -> None:
        """Nothing is held open."""

    def sample(self, row: int) -> Sample:
        """Return the sample in a row; raise SourceError where it is damaged."""
        try:
            return _SAMPLE.validate_json(self._lines[row])
        except ValidationError as error:
            reason = str(error).partition("\n")[0]
            raise SourceError(f"sample {row} of {self.path} cannot be read: {reason}", hint=_MEND) from None

    def nearest(
        self, dialogue: Dialogue, top: int = 10, *, topic: str = "chosen", fit: bool = True
    ) -> list[tuple[Sample, float]]:
        """Return the samples most like a dialogue's topic and history (Section 2.1), with scores, the best first.

        Encodings are without topics where the dialogue has none (see `topic_of`). With `fit` the samples are of the
        dialogue's own topic, be they few, where the database has it; else fit, and each of another topic.
        """
        named, rows = topic_of(dialogue, topic), self._rows(dialogue)
        scores = self._scores(dialogue, named, with_topics=bool(named))
        fitting = [(False, self._same(rows, named)), (bool(named), rows[self._columns["fit"][rows]])] if fit else []
        return self._first(dialogue, [*fitting, (False, rows)], scores, top)

    def released(
        self, dialogue: Dialogue, top: int = 10, *, topic: str = "checked", seen: bool = False
    ) -> list[tuple[Sample, float]]:
        """Return selection as MSDP's released code does it, which is not what the paper says, in `nearest`'s order.

        Of the dialogue's own topic the most similar samples; without any, the *least* similar of all short ones, each
        of another topic. Its `wow_seen` alone lets unfit knowledge pass and encodes samples without their topics.
        """
        named, rows = topic_of(dialogue, topic), self._rows(dialogue)
        scores = self._scores(dialogue, named, with_topics=not seen)
        marks = self._columns["marks"]
        rows = rows if seen else rows[marks[rows] & 1 == 1]
        if samples := self._first(dialogue, [(False, self._same(rows, named))], scores, top):
            return samples
        least = self._first(dialogue, [(True, rows[marks[rows] & 2 == 2])], -scores, top)
        return [(sample, -score) for sample, score in least]

    def sampled(
        self,
        dialogue: Dialogue,
        count: int,
        seed: int = 0,
        overlap: tuple[float, float] | None = None,
        *,
        covered: float = 0.0,
        answered: bool = True,
    ) -> list[Sample]:
        """Return random samples, the same for every dialogue of a language but its own (Section 2.2, Tables 5, 8).

        `overlap` bounds how much their responses overlap their knowledge, `covered` how much of that they hold.
        """
        rows = self._rows(dialogue)
        rows = rows[self._columns["covered"][rows] >= np.float32(covered)]
        if overlap is not None:
            rows = rows[_within(self._columns["overlaps"][rows], overlap)]
        sampler = random.Random(seed)  # noqa: S311 - a sample, not a secret
        places = sampler.sample(range(len(rows)), min(len(rows), count + _SPARE))
        return self._but_own(rows[places], dialogue, count, answered=answered)

    def clearest(self, dialogue: Dialogue, top: int = 10) -> list[Sample]:
        """Perplexity-based selection (Appendix A): least surprising prompts first; InputError without perplexities."""
        if not self.meta.perplexity_by:
            hint = "build it with `dialore samples build ... --perplexity hf:gpt2`"
            raise InputError(f"the sample database {self.path} has no perplexities", hint=hint)
        rows = self._rows(dialogue)
        order = np.argsort(self._columns["perplexities"][rows], kind="stable")[: top + _SPARE]
        return self._but_own(rows[order], dialogue, top)

    def compare(self, dialogues: Iterable[Dialogue], grams: int = 13) -> dict[str, float]:
        """Return which shares of other data's knowledge, by rows of words, and topics are here (MSDP, Section 3.1)."""
        samples = list({sample.knowledge: sample for sample in samples_of(dialogues)}.values())
        topics = {_number(sample.topic) for sample in samples}
        others = {gram for sample in samples for gram in _grams(sample, grams)}
        shared = {gram for row in range(len(self)) for gram in _grams(self.sample(row), grams) & others}
        met = [sample for sample in samples if _grams(sample, grams) & shared]
        known = topics.intersection(self._columns["topics"].tolist())
        shares: dict[str, float] = {}
        for name, every, here in (("rows", others, shared), ("pieces", samples, met), ("topics", topics, known)):
            shares |= {name: len(every), f"{name} known": len(here) / max(len(every), 1)}
        return shares

    # --- helpers

    def _rows(self, dialogue: Dialogue) -> _Rows:
        return np.flatnonzero(self._columns["languages"] == LANGUAGES.index(dialogue.language))

    def _same(self, rows: _Rows, topic: str) -> _Rows:
        return rows[self._columns["topics"][rows] == _number(topic)] if topic else rows[:0]

    def _scores(self, dialogue: Dialogue, topic: str, *, with_topics: bool) -> NDArray[np.float32]:
        text = context_text(topic, turns_by_side(dialogue), self.meta.turns)
        encodings = self._columns["vectors" if with_topics else "bare"]
        scores: NDArray[np.float32] = np.round(encodings @ self.embedder.encode([text])[0], DECIMALS)
        return scores

    def _first(
        self, dialogue: Dialogue, groups: Sequence[tuple[bool, _Rows]], scores: NDArray[np.float32], top: int
    ) -> list[tuple[Sample, float]]:
        """Return the best of the first group of rows with any but the dialogue's own; one a topic if it says so."""
        for spread, group in groups:
            chosen: dict[str, tuple[Sample, float]] = {}
            for row in group[np.argsort(-scores[group], kind="stable")].tolist():
                if len(chosen) >= top:
                    break
                sample = self.sample(row)
                if not is_own_sample(sample, dialogue):
                    chosen.setdefault((spread and sample.topic) or sample.id, (sample, float(scores[row])))
            if chosen:
                return list(chosen.values())
        return []

    def _but_own(self, rows: _Rows, dialogue: Dialogue, count: int, *, answered: bool = False) -> list[Sample]:
        fitting: list[Sample] = []
        for row in rows.tolist():
            if len(fitting) == count:
                break
            sample = self.sample(row)
            if is_own_sample(sample, dialogue) or (answered and not sample.response):
                continue
            fitting.append(sample)
        return fitting


def _within(shares: NDArray[np.float32], bounds: tuple[float, float]) -> NDArray[np.bool_]:
    low, high = map(np.float32, bounds)
    return (shares >= low) & (shares <= high)


def build_samples(
    samples: Iterable[Sample],
    out: Path,
    embedder: Embedder,
    *,
    turns: int = TURNS,
    overlap_run: int = 1,
    perplexities: Mapping[str, float] | None = None,
    perplexity_by: str = "",
    graph: str = "",
    on_step: Callable[[str, int, int | None], None] | None = None,
) -> _SamplesMeta:
    """Write a database of samples; an old one stays in place until the new one is whole. Raises InputError.

    It is a NumPy archive: samples as JSON Lines, encodings of topic and last turns, and of turns alone (Section 2.1).
    `perplexities` has each sample's as a prompt, by its id (Appendix A); knowledge aligned with a `graph` is fit as it
    is. `on_step` is told what is being done, how much of it is done, and of how much.
    """
    rows = list(samples)
    if not rows:
        raise InputError("no sample has any knowledge", hint="take dialogues whose replies come with their knowledge")
    check_out(out)
    shares, covered = np.array([overlaps(s.knowledge, s.response, s.language, overlap_run) for s in rows], np.float32).T
    lines = "\n".join(json.dumps(asdict(sample), ensure_ascii=False, separators=(",", ":")) for sample in rows)
    given = perplexities or {}
    arrays: dict[str, NDArray[Any]] = {
        "lines": np.frombuffer(lines.encode("utf-8", "replace"), np.uint8),
        "languages": np.array([LANGUAGES.index(sample.language) for sample in rows], np.int8),
        "topics": np.array([_number(sample.topic) for sample in rows], np.uint64),
        "fit": np.array([bool(graph) or is_fit(sample) for sample in rows], np.bool_),
        "vectors": _encode(rows, embedder, turns, on_step),
        "bare": _encode([replace(sample, topic="") for sample in rows], embedder, turns, on_step),
        "marks": np.array([3 if graph else filter_marks(sample) for sample in rows], np.uint8),
        "overlaps": shares,
        "covered": covered,
        "perplexities": np.array([given.get(sample.id, np.inf) for sample in rows], np.float64),
    }
    meta = _SamplesMeta(
        samples=len(rows),
        fit=int(arrays["fit"].sum()),
        grounded=int(_within(shares, _GROUNDED).sum()),
        languages=dict(Counter(sample.language for sample in rows)),
        embedder=embedder.name,
        fingerprint=embedder.fingerprint,
        turns=turns,
        overlap_run=overlap_run,
        perplexity_by=perplexity_by if perplexities is not None else "",
        graph=graph,
    )
    with whole_file(out) as path, path.open("wb") as file:
        np.savez(file, meta=np.frombuffer(meta.model_dump_json().encode(), np.uint8), **arrays)  # type: ignore[arg-type]
    return meta


def check_out(out: Path) -> None:
    """Check that a path is free for a database, or holds one; raises InputError where it does not."""
    if out.is_dir() or (out.exists() and out.read_bytes()[:2] != b"PK"):
        raise InputError(f"{out} is there and is no sample database", hint="name another file, or delete it")


def _encode(
    rows: Sequence[Sample], embedder: Embedder, turns: int, on_step: Callable[[str, int, int | None], None] | None
) -> NDArray[np.float32]:
    vectors = np.empty((len(rows), embedder.dimension), np.float32)
    for start in range(0, len(rows), _BATCH):
        some = rows[start : start + _BATCH]
        texts = [context_text(sample.topic, sample.turns, turns) for sample in some]
        vectors[start : start + len(some)] = embedder.encode(texts)
        if on_step is not None:
            on_step("embedding samples", start + len(some), len(rows))
    return vectors
