"""Judges that score one response at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dialore.evaluation.base import About, Mean, Measure, unavailable
from dialore.evaluation.judges.answers import Engagingness, Quality, picks_shape, scores_shape
from dialore.evaluation.judges.asking import Asker, queries_of, spoken
from dialore.evaluation.judges.ragas import AnswerRelevance, ContextRelevance, Faithfulness
from dialore.prompts.library import PromptLibrary

if TYPE_CHECKING:
    from dialore.evaluation.base import Metric, Sample
    from dialore.evaluation.registry import Context

_GUIDELINES = "SCG-QP (EMNLP Industry 2023), Appendix, guidelines for search queries; Tables 1 and 2"


def make(name: str, context: Context) -> Metric:
    """A judge by name; the RAGAs three too."""
    judge = None
    if context.judge is not None:
        judge = Asker(context.judge, PromptLibrary(context.judge_prompts))
    if name == "ragas-answer-relevance":
        return AnswerRelevance(judge, context.embedder or "static")
    if name == "ragas-context-relevance":
        return ContextRelevance(judge)
    if name == "ragas-faithfulness":
        return Faithfulness(judge)
    if name == "meep":
        return Meep(judge)
    if name in {"informativeness", "overall"}:
        return QualityScore(name, judge)
    return UsefulKnowledge(judge) if name == "useful-knowledge" else QueryScore(name, judge)


class _Judge(Mean):
    """A judge by one prompt file."""

    prompt = ""

    def __init__(self, judge: Asker | None) -> None:
        self._judge = judge

    @property
    def identity(self) -> str:
        """The judge and its prompt."""
        return self._judge.identity(self.prompt) if self._judge is not None else ""

    async def measure(self, sample: Sample) -> Measure:
        """The judge's score, or why there is none."""
        if self._judge is None:
            return unavailable("no judge was given")
        return await self._score(self._judge, sample)

    async def _score(self, judge: Asker, sample: Sample) -> Measure:
        raise NotImplementedError


class Meep(_Judge):
    """MEEP: how engaging a response is."""

    prompt = "meep"

    @property
    def about(self) -> About:
        """What it is."""
        return About(
            "meep",
            "Ferron et al. (EMNLP Findings 2023); DCRAG (EMNLP 2024), Table 19",
            "A judge's score of engagingness, 0 to 100: variety in context, encouraging a reply and one of quality, "
            "interestingness, specificity, a sense of belonging.",
            needs=("judge",),
            scale=100.0,
        )

    async def _score(self, judge: Asker, sample: Sample) -> Measure:
        said = await judge.ask("meep", Engagingness, sample.dialogue, response=spoken(sample.response))
        return said if isinstance(said, Measure) else Measure((said.score,))


class QualityScore(_Judge):
    """Informativeness or overall score. Both are asked for in one prompt, as in DCRAG's Table 20.

    Whichever comes second is answered by the cache of completions where there is one.
    """

    prompt = "quality"

    def __init__(self, name: str, judge: Asker | None) -> None:
        super().__init__(judge)
        self._name = name

    @property
    def about(self) -> About:
        """What it is."""
        definition = {
            "informativeness": "A judge's score, 1 to 5, of how knowledgeable the response is and how sufficient and "
            "sensible its information; the paper's tables show it times 20.",
            "overall": "A judge's score, 1 to 5, of the response on the whole: whether it makes for a satisfying "
            "interaction; the paper's tables show it times 20.",
        }[self._name]
        paper = "DCRAG (EMNLP 2024), Section 4.1.3 and Table 20"
        return About(self._name, paper, definition, needs=("judge",), scale=5.0)

    async def _score(self, judge: Asker, sample: Sample) -> Measure:
        said = await judge.ask("quality", Quality, sample.dialogue, label=self._name, response=spoken(sample.response))
        if isinstance(said, Measure):
            return said
        return Measure((float(said.overall if self._name == "overall" else said.informativeness),))


class QueryScore(_Judge):
    """What a method looked up: its overall score, relevance or specificity, on average over its queries."""

    def __init__(self, name: str, judge: Asker | None) -> None:
        super().__init__(judge)
        self.prompt = self._name = name
        self._top = 10 if name == "query-score" else 5

    @property
    def about(self) -> About:
        """What it is."""
        paper, definition = {
            "query-score": (
                "SCG-QP (EMNLP Industry 2023), Section 3.2 and Appendix, query scoring",
                "A judge's overall score, 1 to 10, of the queries that the method asked, on average over them; the "
                "paper's tables show it times 10.",
            ),
            "relevance": (
                _GUIDELINES,
                "A judge's score, 1 to 5, of how relevant the queries that the method asked are to the dialogue.",
            ),
            "specificity": (
                _GUIDELINES,
                "A judge's score, 1 to 5, of how specific the queries that the method asked are.",
            ),
        }[self._name]
        return About(self._name, paper, definition, needs=("judge", "queries"), scale=float(self._top))

    async def _score(self, judge: Asker, sample: Sample) -> Measure:
        queries = queries_of(sample.response)
        if not queries:
            return unavailable("the method asked no query")
        shape = scores_shape("QueryScores", len(queries), self._top)
        said = await judge.ask(self._name, shape, sample.dialogue, queries=queries)
        if isinstance(said, Measure):
            return said
        each = "; ".join(f"{query}: {score}" for query, score in zip(queries, said.scores, strict=True))
        return Measure((sum(said.scores) / len(said.scores),), detail=each)


class UsefulKnowledge(_Judge):
    """How many of the pieces that a response was given are useful for it."""

    prompt = "useful-knowledge"

    @property
    def about(self) -> About:
        """What it is."""
        return About(
            "useful-knowledge",
            "EDIT, Section 4.1.3 (useful knowledge); DCRAG (EMNLP 2024), Section 3.3 (relevance and usefulness)",
            "How many of the pieces of knowledge that the response was given a judge finds useful for it.",
            needs=("judge", "retrieved"),
            scale=0.0,
        )

    async def _score(self, judge: Asker, sample: Sample) -> Measure:
        pieces = [" ".join(piece.text.split()) for piece in sample.response.knowledge]
        if not pieces:
            return unavailable("the response was given no knowledge")
        shape = picks_shape("UsefulPieces", "useful", len(pieces))
        said = await judge.ask(self.prompt, shape, sample.dialogue, knowledge=pieces)
        if isinstance(said, Measure):
            return said
        useful = sorted(set(said.model_dump()["useful"]))
        numbers = f": {', '.join(map(str, useful))}" if useful else ""
        return Measure((float(len(useful)),), detail=f"{len(useful)} of {len(pieces)} useful{numbers}")
