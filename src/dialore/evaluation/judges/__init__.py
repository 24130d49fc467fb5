"""Judges: language models that score or compare responses, by prompt files (`prompts/judge/`)."""

from __future__ import annotations

from dialore.evaluation.judges.asking import Asker
from dialore.evaluation.judges.comparing import Bias, Preference, compare, position_bias
from dialore.evaluation.judges.refusals import is_refusal
from dialore.evaluation.judges.together import score_together

__all__ = ["Asker", "Bias", "Preference", "compare", "is_refusal", "position_bias", "score_together"]
