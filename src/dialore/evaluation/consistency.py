"""Consistency with persona and knowledge, P.C and K.C (SAFARI, Appendix C), and the rejection rate (Section 6.3)."""

from __future__ import annotations

import asyncio
import functools
import re
import threading
from collections.abc import Sequence
from typing import Any, Protocol

from dialore.errors import InputError, import_optional
from dialore.evaluation.base import Mean, Sample, SampleScore, unavailable
from dialore.evaluation.decisions import gold_texts, no_plan, plan_of
from dialore.evaluation.judges.asking import is_refusal
from dialore.evaluation.registry import Context, OwnMetric
from dialore.text import close_gaps
from dialore.trained import PREFIX, load_trained


class Consistency(OwnMetric, Mean):
    """C(r, g) of Equation 4, averaged (Equations 6 and 7).

    1 or 0 by the NLI model where there is gold knowledge of the kind of source and the plan uses it; 1 where there is
    none and the plan does not use it; 0 where plan and gold disagree.
    """

    def __init__(self, name: str, context: Context) -> None:
        super().__init__(name, context)
        self._source = "persona" if name == "persona-consistency" else "documents"
        self._model, self.identity = None if context.nli is None else _load(context.nli), context.nli or ""

    async def measure(self, sample: Sample) -> SampleScore:
        """1 or 0."""
        if self._model is None:
            # The cases that need none would make a figure of their own, which is not P.C or K.C.
            return unavailable("no NLI model was given")
        made, gold_plan = plan_of(sample)
        if made is None or gold_plan is None:
            return no_plan(gold_plan)
        gold = gold_texts(sample, self._source)
        if not gold or self._source not in made:
            return SampleScore((float(not gold and self._source not in made),))
        pairs = [(text, sample.response.text) for text in gold]
        entailed = await asyncio.to_thread(self._model.entails, pairs)
        return SampleScore((float(any(entailed)),))


_MACHINE_EN = r"(?:ai|artificial intelligence|(?:large )?language model|chatbot|computer program|virtual assistant)"
_MACHINE_ZH = r"(?:ai|人工智能|(?:大型?)?语言模型|聊天机器人|机器人|虚拟助手|计算机程序)"
# What a machine is called must end there: "an AI researcher" is a person.
_MACHINE = re.compile(
    rf"\b(?:as|being|i(?:'m| am)) (?:\w+ ){{0,2}}?{_MACHINE_EN}(?: {_MACHINE_EN})*(?: assistant| model)?"
    r"(?=\W*(?:$|[,.;!?]|(?:and|so|that|which|without|by|developed|trained|created|designed)\b))"
    rf"|(?:作为|我(?:只|仅|其实)?是)(?:一个|一名|一款|一种)?{_MACHINE_ZH}+(?:助手|模型)?(?=[，,。.！!？?；;\s]|$|没有|不|无法|我)"
    r"|\bi (?:don't|do not) have (?:a |any )?(?:persona\b|personal\b|feelings\b|emotions\b)"
    r"|我(?:并?没有|不具备)(?:人设|情感|感情|个人)",
    re.IGNORECASE,
)


class RejectionRate(OwnMetric, Mean):
    """How often a response steps out of its part: it declines to answer, or says that it is a machine."""

    async def measure(self, sample: Sample) -> SampleScore:
        """1 or 0."""
        text = " ".join(sample.response.text.replace("’", "'").split())
        return SampleScore((float(is_refusal(text) or _MACHINE.search(text) is not None),))


class Entailment(Protocol):
    """Anything that tells whether one text follows from another."""

    def entails(self, pairs: Sequence[tuple[str, str]]) -> list[bool]:
        """Return whether each second text follows from its first."""


class TransformerEntailment:
    """A sequence-pair classifier of Hugging Face transformers (the `local` extra), loaded when first asked.

    The pair is given as in SAFARI: knowledge first, response second, without the spaces between KBP's words. The label
    that counts as entailment is the one called `entailment`, else the last. `name_or_path` is a model of the hub, or a
    folder.
    """

    def __init__(self, name_or_path: str, *, batch: int = 32) -> None:
        self._name, self._batch = name_or_path, batch
        # Many ask at once, each from a thread: one loads the model, and one uses it at a time.
        self._turn = threading.Lock()

    def entails(self, pairs: Sequence[tuple[str, str]]) -> list[bool]:
        """Return whether each second text follows from its first; raise InputError where there is no such model."""
        given = [{"text": close_gaps(first), "text_pair": close_gaps(second)} for first, second in pairs]
        with self._turn:
            labels = list(self._classify.model.config.id2label.values())
            wanted = next((label for label in labels if label.lower().startswith("entail")), labels[-1])
            verdicts = self._classify(given, batch_size=self._batch, padding=True, truncation=True, max_length=512)
        return [verdict["label"] == wanted for verdict in verdicts]

    @functools.cached_property
    def _classify(self) -> Any:  # noqa: ANN401 - the library is untyped
        torch, transformers = (import_optional(name, "an NLI model", "local") for name in ("torch", "transformers"))
        device = 0 if torch.cuda.is_available() else -1
        try:
            return transformers.pipeline("text-classification", model=self._name, device=device)
        except (OSError, ValueError) as error:
            raise InputError(f"no NLI model {self._name!r}: {str(error).splitlines()[0]}") from error


@functools.cache
def _load(name: str) -> Entailment:
    """Return the model of a name, or of `trained:FOLDER`; one serves both metrics."""
    model: Entailment = load_trained(name, "entailment") if name.startswith(PREFIX) else TransformerEntailment(name)
    return model
