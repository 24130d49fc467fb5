"""Published training settings, selected by `dialore train ... --as NAME`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

_SAFARI = {
    "epochs": 3,
    "length": 512,
    "lora": True,
    "schedule": "cosine",
    "warmup": 1000,
    "decay": 0.1,
}
_DENSE = {"epochs": 5, "length": 512}


@dataclass(frozen=True, slots=True)
class Preset:
    """Training settings of a paper.

    Attributes:
        command: The `dialore train` command that the preset belongs to.
        base: Hub name of the model that training starts from.
        tuning: Values for fields of `Tuning`.
        whole: Read the whole context (encoders) or the whole prompt (stages).
        dot: Encoders compare the states of the first token by dot product, not mean states by cosine.
        hard: Entailment models also learn from hard negatives.
    """

    command: str
    base: str
    tuning: dict[str, Any] = field(default_factory=dict)
    whole: bool = False
    dot: bool = False
    hard: bool = True


PRESETS = {
    # SAFARI, Section 5.1 (batch 8, 3 epochs), and its release: lora/train.py and lora/train_belle.py.
    "safari-chatglm": Preset(
        "generator",
        "THUDM/chatglm-6b",
        {
            **_SAFARI,
            "batch": 1,
            "accumulation": 8,
            "rate": 5e-4,
            "rank": 8,
            "alpha": 32,
            "dropout": 0.1,
            "modules": ("query_key_value",),
        },
    ),
    "safari-belle": Preset(
        "generator",
        "BelleGroup/BELLE-LLAMA-7B-2M",
        {
            **_SAFARI,
            "batch": 4,
            "accumulation": 2,
            "rate": 8e-6,
            "rank": 16,
            "alpha": 32,
            "dropout": 0.05,
            "modules": ("q_proj", "k_proj", "v_proj", "o_proj", "down_proj", "gate_proj", "up_proj"),
        },
    ),
    # SAFARI, Appendix C. The paper does not state rate and batch size.
    "dpr": Preset("retriever", "google-bert/bert-base-chinese", {**_DENSE, "rate": 2e-5}, whole=True, dot=True),
    "rocketqa": Preset("retriever", "PaddlePaddle/zh_dureader_de_v2", {**_DENSE, "rate": 2e-5}, whole=True, dot=True),
    # SAFARI, Appendix C.
    "safari-nli": Preset(
        "nli",
        "google-bert/bert-base-chinese",
        {**_DENSE, "batch": 8, "rate": 2e-5},
        hard=False,
    ),
    # MSDP, Appendix F.2: DPR's checkpoint is trained further on topic and history, by DPR's own
    # procedure (Karpukhin et al., 2020, Section 5). One encoder serves questions and passages here.
    "msdp-dpr": Preset(
        "retriever",
        "sentence-transformers/facebook-dpr-question_encoder-single-nq-base",
        {"epochs": 40, "batch": 128, "rate": 1e-5, "length": 256},
        whole=True,
        dot=True,
    ),
    # SCG-QP: README of the authors' repository, gangiswag/dialog-search-query.
    "scg-qp": Preset(
        "stages",
        "google/flan-t5-large",
        {"epochs": 2, "batch": 4, "accumulation": 16, "rate": 1e-5},
        whole=True,
    ),
}
"""The presets by name."""
