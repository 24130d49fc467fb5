"""One sample to prompt with, where samples come from, and which of them are good (MSDP, Sections 2 and 4.2)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from dialore.sources.graph.matching import HardMatcher, stores_of
from dialore.text import is_mentioned, normalise, words

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from dialore.dialogue import Dialogue, Utterance
    from dialore.retrieval.embedding import Embedder
    from dialore.sources.graph.several import Graphs
    from dialore.sources.graph.source import Graph
    from dialore.text import Language

Side = Literal["user", "system"]
FACTS = 3
"""Facts of an aligned sample at most, the best-ranked ones."""
_UNUSED = frozenset({"no_passages_used", "no passages used"})
"""What Wizard of Wikipedia and its readers write where a turn used no knowledge."""
_LONGEST = 20
"""Words of fit knowledge at most."""
_POINTING: dict[Language, tuple[str, ...]] = {"en": ("it", "this"), "zh": ("它", "这", "该", "此")}
_BRACKETS = frozenset("()（）")


@dataclass(frozen=True, slots=True)
class SampleTurn:
    """One turn, by side: the response is the system's."""

    side: Side
    text: str


@dataclass(frozen=True, slots=True)
class Sample:
    """A sample of MSDP's database: topic, history, knowledge and response (Section 2), each text on one line.

    Attributes:
        id: the history's id in its data set.
        language: of all its texts.
        topic: what the dialogue is about; empty where nobody said.
        turns: the history, oldest first.
        knowledge: what the response was written from.
        response: the response; empty where there is none, which leaves the sample to knowledge generation.
    """

    id: str
    language: Language
    topic: str
    turns: tuple[SampleTurn, ...]
    knowledge: str
    response: str

    @property
    def dialogue(self) -> str:
        """The id of the dialogue that the history was taken from."""
        return whole_id(self.id)

    @property
    def last_turn(self) -> str:
        """The turn that is answered."""
        return self.turns[-1].text

    def line(self) -> str:
        """The sample as JSON."""
        turns = [[turn.side, turn.text] for turn in self.turns]
        data = [self.id, self.language, self.topic, turns, self.knowledge, self.response]
        return json.dumps(data, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def of_line(cls, line: bytes) -> Sample:
        """The sample that `line` wrote; raises ValueError for anything else."""
        identifier, language, topic, turns, knowledge, response = json.loads(line)
        sides = tuple(SampleTurn(side, text) for side, text in turns)
        return cls(identifier, language, topic, sides, knowledge, response)

    @classmethod
    def of_dialogue(cls, dialogue: Dialogue, knowledge: str | None = None) -> Sample | None:
        """The sample that a history with its reference and gold knowledge is.

        Args:
            dialogue: the history.
            knowledge: in place of the dialogue's own, several pieces of which are put one after the other.

        Returns:
            The sample; None where nothing was known.
        """
        known = " ".join(_text(piece) for piece in dialogue.knowledge) if knowledge is None else knowledge
        known = one_line(known)
        if not known or known in _UNUSED:
            return None
        turns = sided(dialogue.turns, dialogue.responder)
        response = one_line(dialogue.reference or "")
        return cls(dialogue.id, dialogue.language, topic_of(dialogue), turns, known, response)


def samples_of(dialogues: Iterable[Dialogue]) -> Iterator[Sample]:
    """The samples in histories with gold knowledge; those without any are passed over."""
    for dialogue in dialogues:
        sample = Sample.of_dialogue(dialogue)
        if sample is not None:
            yield sample


def aligned_samples(
    dialogues: Iterable[Dialogue], graph: Graph | Graphs, embedder: Embedder, top: int = FACTS
) -> Iterator[Sample]:
    """Samples whose knowledge is the facts that hard matching finds, where it does (DCRAG, Appendix A.1.1).

    Args:
        dialogues: histories with their references.
        graph: the commonsense graph.
        embedder: where there are more facts, the nearest to history and reference are taken.
        top: facts of a sample at most.
    """
    matcher = HardMatcher(stores_of(graph))
    matched: list[tuple[Dialogue, list[tuple[int, int]]]] = []
    for dialogue in dialogues:
        found = matcher.match(dialogue.texts, dialogue.reference or "", dialogue.language)
        if len(found):
            matched.append((dialogue, list(dict.fromkeys((int(one), int(other)) for one, other in found))))
    between = matcher.facts({pair for _, pairs in matched for pair in pairs})
    triples = list(dict.fromkeys(fact.triple for facts in between.values() for fact in facts))
    rows = dict(zip(triples, embedder.encode(triples), strict=True))
    wholes = embedder.encode(["\n".join([*dialogue.texts, dialogue.reference or ""]) for dialogue, _ in matched])
    for (dialogue, pairs), whole in zip(matched, wholes, strict=True):
        named = dict.fromkeys(fact.triple for pair in pairs for fact in between[pair])
        best = sorted(named, key=lambda triple: (-round(float(rows[triple] @ whole), 4), triple))[:top]
        if (sample := Sample.of_dialogue(dialogue, "; ".join(best))) is not None:
            yield sample


def overlap(knowledge: str, response: str, language: Language, run: int = 1) -> float:
    """The share of a response's words that stand in its knowledge, from 0 to 1 (MSDP, Sections 2.2 and 4.2).

    Words are lower-cased and without punctuation. Chinese is taken by characters, so that two ways to tokenise the
    same phrase cannot hide it.

    Args:
        knowledge: the gold knowledge.
        response: the response.
        language: of both.
        run: words count only in a row of at least so many that all stand in the knowledge. 1 is the paper's formula;
            its authors' released code counts rows of 10.
    """
    tokens = _tokens(response, language)
    known = frozenset(_tokens(knowledge, language))
    shared = row = 0
    for token in [*tokens, None]:
        if token in known:
            row += 1
            continue
        shared += row if row >= run else 0
        row = 0
    return shared / len(tokens) if tokens else 0.0


def _tokens(text: str, language: Language) -> list[str]:
    if language == "en":
        return words(text, language)
    return [character for character in normalise(text) if character.isalnum()]


def is_fit(sample: Sample) -> bool:
    """Whether a sample's knowledge shows well what is to be generated: a short sentence about its topic.

    It names its topic, has no brackets and at most 20 words, and does not open by pointing back ("It ...", 它...). The
    paper does not say so; its authors' released code selects by this where a topic is not in the database.
    """
    text = normalise(sample.knowledge)
    pointing = _POINTING[sample.language]
    opens = text.startswith(pointing) if sample.language == "zh" else text.partition(" ")[0] in pointing
    if opens or _BRACKETS & set(sample.knowledge) or len(words(text, sample.language)) > _LONGEST:
        return False
    return not sample.topic or is_mentioned(sample.topic, [sample.knowledge], sample.language)


def topic_of(dialogue: Dialogue) -> str:
    """A dialogue's topic; where it has none, the query that was searched for its reply, as MSDP takes it (Section 3.1).

    The query is `extra["query"]`, where data sets of dialogues with search have it.
    """
    query = dialogue.extra.get("query")
    return one_line(dialogue.topic or (query if isinstance(query, str) else ""))


def sided(turns: Sequence[Utterance], responder: str) -> tuple[SampleTurn, ...]:
    """Turns by side: the responder's are the system's, everybody else's the user's."""
    return tuple(SampleTurn("system" if turn.speaker == responder else "user", one_line(turn.text)) for turn in turns)


def context_text(topic: str, texts: Sequence[str], turns: int) -> str:
    """The text by which samples and dialogues are compared: the topic, then the last turns (Section 2.1)."""
    return " ".join([topic, *texts[-turns:]] if topic else texts[-turns:])


def whole_id(identifier: str) -> str:
    """The id of the whole dialogue that a history of this id was taken from."""
    return identifier.rpartition("@")[0] or identifier


def one_line(text: str) -> str:
    """The text on one line."""
    return " ".join(text.split())


def _text(piece: str | dict[str, Any]) -> str:
    if isinstance(piece, str):
        return piece
    if "text" in piece:
        return str(piece["text"])
    return f"({', '.join(str(piece[key]) for key in ('head', 'relation', 'tail') if key in piece)})"
