"""Settings of papers for `dialore train ... --as NAME`: what they print, and what their releases set."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

_SAFARI = {"epochs": 3, "length": 512, "lora": True, "schedule": "cosine", "warmup": 1000, "decay": 0.1}
_DENSE = {"epochs": 5, "length": 512}


@dataclass(frozen=True, slots=True)
class Preset:
    """Settings of a paper.

    Attributes:
        command: the command that they are of.
        tuning: fields of `Tuning`.
        base: the model that the paper starts from, where it can be loaded.
        whole: encoders read the whole context, not its last turns.
        dot: encoders compare first tokens' states by their dot product, not mean states by their cosine.
        hard: models of entailment learn hard negatives beside random ones.
    """

    command: str
    tuning: dict[str, Any] = field(default_factory=dict)
    base: str = ""
    whole: bool = False
    dot: bool = False
    hard: bool = True


PRESETS = {
    # SAFARI, Section 5.1 (batch 8, 3 epochs), and its release: lora/train.py and lora/train_belle.py.
    "safari-chatglm": Preset(
        "generator",
        {**_SAFARI, "batch": 1, "accumulation": 8, "rate": 5e-4, "rank": 8, "alpha": 32, "dropout": 0.1}
        | {"modules": ("query_key_value",)},
    ),
    "safari-belle": Preset(
        "generator",
        {**_SAFARI, "batch": 4, "accumulation": 2, "rate": 8e-6, "rank": 16, "alpha": 32, "dropout": 0.05}
        | {"modules": ("q_proj", "k_proj", "v_proj", "o_proj", "down_proj", "gate_proj", "up_proj")},
    ),
    # SAFARI, Appendix C; rate and batch are not printed. RocketQAv2's zh_dureader_de_v2 is in Paddle's form.
    "dpr": Preset("retriever", {**_DENSE, "rate": 2e-5}, "google-bert/bert-base-chinese", whole=True, dot=True),
    "rocketqa": Preset("retriever", {**_DENSE, "rate": 2e-5}, whole=True, dot=True),
    # SAFARI, Appendix C.
    "safari-nli": Preset("nli", {**_DENSE, "batch": 8, "rate": 2e-5}, "google-bert/bert-base-chinese", hard=False),
    # MSDP, Appendix F.2: DPR's own training (Karpukhin et al., 2020, Section 5) on topic and history.
    "msdp-dpr": Preset("retriever", {"epochs": 40, "batch": 128, "rate": 1e-5, "length": 256}, whole=True, dot=True),
}
"""The presets by name."""
