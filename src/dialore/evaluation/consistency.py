"""Calibrated persona and knowledge consistency: P.C and K.C (SAFARI, Appendix C, Equations 4 to 7)."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, Literal

from dialore.datasets import gold_text
from dialore.errors import InputError, MissingExtraError
from dialore.evaluation.base import About, Mean, Measure, unavailable
from dialore.evaluation.decisions import no_plan, plan_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dialore.dialogue import Dialogue
    from dialore.evaluation.base import Sample
    from dialore.evaluation.registry import Context

_SOURCES: dict[str, Literal["persona", "documents"]] = {
    "persona-consistency": "persona",
    "knowledge-consistency": "documents",
}
_models: dict[str, TransformerEntailment] = {}


def make(name: str, context: Context) -> Consistency:
    """A metric of this file by name."""
    model = None
    if context.nli is not None:
        model = _models.setdefault(context.nli, TransformerEntailment(context.nli))
    return Consistency(_SOURCES[name], model, context.nli or "")


class Consistency(Mean):
    """C(r, g) of Equation 4, averaged (Equations 6 and 7).

    1 or 0 by the NLI model where there is gold knowledge of the source and the plan uses the source; 1 where there is
    none and the plan does not use it; 0 where plan and gold disagree.
    """

    def __init__(
        self, source: Literal["persona", "documents"], model: TransformerEntailment | None, name: str = ""
    ) -> None:
        self._source, self._model, self._name = source, model, name
        short = "P.C" if source == "persona" else "K.C"
        self.about = About(
            "persona-consistency" if source == "persona" else "knowledge-consistency",
            f"SAFARI (EMNLP Findings 2023), Appendix C, Equations 4 to 7 ({short})",
            f"Share of responses that an NLI model finds to agree with the gold {source}, calibrated by whether the "
            f"plan asked for it; the model is given gold {source} first and response second, as the paper encodes them "
            "(its Equation 5 words it the other way: the response entails the gold piece).",
            needs=("plan", "knowledge", "nli"),
        )

    @property
    def identity(self) -> str:
        """The NLI model."""
        return self._name

    async def measure(self, sample: Sample) -> Measure:
        """1 or 0."""
        if self._model is None:
            # The cases that need none would make a figure of their own, which is not P.C or K.C.
            return unavailable("no NLI model was given")
        made, gold_plan = plan_of(sample)
        if made is None or gold_plan is None:
            return no_plan(gold_plan)
        gold = gold_of(sample.dialogue, self._source)
        if not gold or self._source not in made:
            return Measure((float(not gold and self._source not in made),))
        pairs = [(text, sample.response.text) for text in gold]
        found = await asyncio.to_thread(self._model.entails, pairs)
        return Measure((float(any(found)),))


def gold_of(dialogue: Dialogue, source: str) -> list[str]:
    """The gold knowledge of a dialogue that is of one source."""
    pieces = [piece for piece in dialogue.knowledge if isinstance(piece, dict) and piece.get("source") == source]
    return [gold_text(piece) for piece in pieces]


class TransformerEntailment:
    """A sequence-pair classifier of Hugging Face transformers (the `local` extra), loaded when first asked.

    The pair is given as in SAFARI: knowledge first, response second. The label that counts as entailment is the one
    called `entailment`, else the last.

    Args:
        name_or_path: a model of the hub, or a folder.
    """

    def __init__(self, name_or_path: str, *, batch: int = 32) -> None:
        self._name, self._batch = name_or_path, batch
        self._classify: Any = None
        # Many ask at once, each from a thread: one loads the model, and one uses it at a time.
        self._turn = threading.Lock()

    def entails(self, pairs: Sequence[tuple[str, str]]) -> list[bool]:
        """Whether each second text follows from its first.

        Raises:
            MissingExtraError: torch or transformers is not installed.
            InputError: there is no such model.
        """
        given = [{"text": first, "text_pair": second} for first, second in pairs]
        with self._turn:
            self._classify = self._classify or _classifier(self._name)
            labels = list(self._classify.model.config.id2label.values())
            wanted = next((label for label in labels if label.lower().startswith("entail")), labels[-1])
            found = self._classify(given, batch_size=self._batch, padding=True, truncation=True, max_length=512)
        return [each["label"] == wanted for each in found]


def _classifier(name: str) -> Any:  # noqa: ANN401 - the library is untyped
    try:
        import torch
        from transformers import pipeline
    except ImportError:
        raise MissingExtraError("an NLI model", "local") from None
    try:
        return pipeline("text-classification", model=name, device=0 if torch.cuda.is_available() else -1)
    except (OSError, ValueError) as error:
        raise InputError(f"no NLI model {name!r}: {str(error).splitlines()[0]}") from error
