"""Encoders trained by sentence-transformers: dual encoders (retrievers) and cross-encoders (NLI).

A dual encoder learns from in-batch negatives and one hard negative each (DPR: Karpukhin et al., 2020), a cross-encoder
for entailment by SAFARI's Appendix C. Each is exported as int8 ONNX, which runs without torch.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dialore.errors import InputError, import_optional
from dialore.learned.encoders import query_with_context
from dialore.learned.nli import make_pairs
from dialore.methods.few_shot import TURNS, context_text, topic_of, turns_by_side
from dialore.methods.safari import query_of
from dialore.text import close_gaps
from dialore.trained import check_writable
from dialore.training.scratch import write_scratch_model
from dialore.training.trainer import SCRATCH, Job

if TYPE_CHECKING:
    from dialore.learned.examples import Examples

Kind = Literal["dual", "nli-cross"]
Row = tuple[str, str, str] | tuple[str, str, float]
USES: dict[Kind, str] = {
    "dual": "A dual encoder. Used without torch: `retriever: trained:FOLDER` of `safari`; or, if it was trained on "
    "knowledge without a persona (MSDP, Appendix F), `--embedder {embedder}:FOLDER` of `dialore documents build`.",
    "nli-cross": "A cross-encoder that tells entailment. Used without torch: `--set nli=trained:FOLDER` of `score`.",
}


def train_encoder(
    kind: Kind,
    job: Job,
    train: Examples,
    dev: Examples,
    *,
    whole: bool = False,
    dot: bool = False,
    hard: bool = True,
) -> dict[str, Any]:
    """Train an encoder and write it to a folder. The weights with the least loss on the held-out data are kept.

    Args:
        kind: The kind of encoder.
        job: What it starts from, where it goes, and how it is trained.
        train: The training data.
        dev: The held-out data, by which training ends.
        whole: Rankers read the whole context with its speakers (SAFARI, Appendix C; MSDP, Appendix F.2), and not the
            last three turns.
        dot: Dual encoders compare the states of the first tokens by dot product (DPR), not mean states by cosine.
        hard: Entailment models also learn from hard negatives.

    Returns:
        The model card.

    Raises:
        InputError: See `finetune`.
    """
    for name in ("torch", "sentence_transformers", "datasets", "accelerate", "onnx", "onnxruntime"):
        import_optional(name, "training encoders", "finetune")
    check_writable(job.out)
    import transformers

    transformers.utils.logging.disable_progress_bar()
    transformers.set_seed(job.tuning.seed)
    rows, held_out = (make_rows(kind, examples, whole=whole, hard=hard) for examples in (train, dev))
    if not rows or not held_out:
        raise InputError("no dialogue has two pieces of knowledge to tell apart", hint="give more dialogues")
    with job.explain_errors():
        model = _open_model(kind, job, rows, dot)
        trainer = _fit(kind, model, rows, held_out, job)
    use = USES[kind].format(embedder="dot" if dot else "onnx")
    card = {
        "kind": kind,
        "use": f"{use} It reads the whole context: `-o turns=0`." if whole else use,
        "data": train.summary(),
        "settings": {"whole": whole, "dot": dot, "hard": hard},
    }

    def save(folder: Path) -> None:
        model.save_pretrained(str(folder))
        export(kind, model, folder)

    return job.save(card, trainer, sum(parameter.numel() for parameter in model.parameters()), save)


# --- training data


def make_rows(kind: Kind, examples: Examples, *, whole: bool = False, hard: bool = True) -> list[Row]:
    """Return the training rows of a kind of encoder.

    Dual: query, gold piece, hard negative, see `ranking_rows`. Entailment: knowledge and response, with whether it is
    entailed.
    """
    if kind == "dual":
        return list(ranking_rows(examples, whole=whole))
    pairs = make_pairs(examples, hard=hard)
    return [(close_gaps(pair.piece), close_gaps(pair.text), float(pair.is_positive)) for pair in pairs]


def ranking_rows(examples: Examples, *, whole: bool = False) -> Iterator[tuple[str, str, str]]:
    """Yield a query, a gold piece and a hard negative each.

    Negatives are other sentences of the persona, or other documents: half of the time under the same sentence, else
    all, with the sentence in the query. For queries of the whole context they are always all documents. Without
    personas the query is topic and history (MSDP, Appendix F.2), and negatives belong to other responses.
    """
    random = np.random.default_rng(examples.seed)
    for index, (dialogue, gold) in enumerate(zip(examples.dialogues, examples.gold, strict=True)):
        last, documents = dialogue.turns[-1].text, dialogue.extra.get("documents", {})
        owners = [text for text in gold if text in dialogue.persona]
        for text in gold:
            query: str = last
            candidates: Sequence[str] = list(dialogue.persona)
            if not dialogue.persona:
                same_dialogue = np.flatnonzero(examples.numbers == examples.numbers[index])
                candidates = [piece for other in same_dialogue for piece in examples.gold[other]]
                query = context_text(topic_of(dialogue, "checked"), turns_by_side(dialogue), 0 if whole else TURNS)
            elif text not in dialogue.persona:
                candidates = [document for owner in owners for document in documents.get(owner, ())]
                if whole or random.integers(2) or not set(candidates) - set(gold):
                    candidates = [document for texts in documents.values() for document in texts]
                    query = f"{last} {' '.join(owners)}"
            if dialogue.persona:
                query = close_gaps(query_of(dialogue, 0)) if whole else query_with_context(query, dialogue)
            others = [candidate for candidate in candidates if candidate not in gold]
            if others:
                yield query, close_gaps(text), close_gaps(others[random.integers(len(others))])


# --- models


def _open_model(kind: Kind, job: Job, rows: Sequence[Row], dot: bool) -> Any:
    import sentence_transformers
    from sentence_transformers.sentence_transformer import modules

    length = job.tuning.length
    with tempfile.TemporaryDirectory() as folder:
        base = job.base
        if base == SCRATCH:
            base = folder
            texts = {text for row in rows for text in row if isinstance(text, str)}
            write_scratch_model(kind, sorted(texts), length, Path(folder))
        safe = {"use_safetensors": True}  # pickled weights can run any code when they are loaded
        if kind != "dual":
            return sentence_transformers.CrossEncoder(base, num_labels=1, max_length=length, model_kwargs=safe)
        if not dot:
            model = sentence_transformers.SentenceTransformer(base, model_kwargs=safe)
            model.max_seq_length = length
            return model
        states = modules.Transformer(base, max_seq_length=length, model_kwargs=safe)
        pooling = modules.Pooling(states.get_embedding_dimension(), "cls")
        return sentence_transformers.SentenceTransformer(modules=[states, pooling], similarity_fn_name="dot")


def _fit(kind: Kind, model: Any, rows: Sequence[Row], held_out: Sequence[Row], job: Job) -> Any:
    """Train by sentence-transformers' own trainer and return it."""
    import sentence_transformers as library
    from sentence_transformers.cross_encoder import losses as cross_losses
    from sentence_transformers.sentence_transformer import losses

    import datasets

    names = ("anchor", "positive", "negative") if kind == "dual" else ("query", "text", "label")
    train, dev = (
        datasets.Dataset.from_dict(dict(zip(names, map(list, zip(*part, strict=True)), strict=True)))
        for part in (rows, held_out)
    )
    options: dict[str, str] = {}
    similarity = ""
    if kind == "dual":
        trainer, arguments = library.SentenceTransformerTrainer, library.SentenceTransformerTrainingArguments
        similarity = model.similarity_fn_name
        settings = {"scale": 1.0, "similarity_fct": library.util.dot_score} if similarity == "dot" else {}
        loss = losses.MultipleNegativesRankingLoss(model, **settings)
        options["batch_sampler"] = "no_duplicates"  # a piece that is gold for two queries is a negative of neither
    else:
        trainer, arguments = library.CrossEncoderTrainer, library.CrossEncoderTrainingArguments
        loss = cross_losses.BinaryCrossEntropyLoss(model)
    data = [kind, similarity, rows, held_out]
    return job.fit(trainer, arguments, data, options, model=model, train_dataset=train, eval_dataset=dev, loss=loss)


# --- without torch


def export(kind: Kind, model: Any, folder: Path) -> None:
    """Write `model.onnx`, int8, and `tokenizer.json`."""
    import torch
    from onnxruntime.quantization import QuantType, quantize_dynamic

    network = model[0].auto_model
    network.set_attn_implementation("eager")
    first_only = kind == "dual" and model.similarity_fn_name == "dot"

    class Exported(torch.nn.Module):  # type: ignore[misc]  # torch ships no types
        """The first output alone: an encoder's states, or a cross-encoder's logit."""

        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, ids: Any, mask: Any, types: Any) -> Any:
            states = self.network(input_ids=ids, attention_mask=mask, token_type_ids=types)[0]
            if first_only:  # states are summed up in use: all but the first token's are set to 0
                return states * (torch.arange(states.shape[1]) == 0)[None, :, None]
            return states

    names = ["input_ids", "attention_mask", "token_type_ids"]
    mask = torch.tensor([[1, 1, 1], [1, 1, 0]])
    ids = torch.tensor([[1, 2, 3], [1, 2, 0]])
    dynamic = [*names, "found"] if kind == "dual" else names
    with tempfile.TemporaryDirectory() as temporary, warnings.catch_warnings():
        # The newer exporter needs further packages, and warnings about traced lengths do no harm here.
        warnings.simplefilter("ignore")
        path = Path(temporary) / "whole.onnx"
        torch.onnx.export(
            Exported().eval().cpu(),
            (ids, mask, torch.zeros_like(ids)),
            str(path),
            input_names=names,
            output_names=["found"],
            dynamic_axes={name: {0: "batch", 1: "length"} for name in dynamic},
            opset_version=17,
            dynamo=False,
        )
        quantize_dynamic(path, folder / "model.onnx", weight_type=QuantType.QInt8, per_channel=True)
    model.tokenizer.backend_tokenizer.save(str(folder / "tokenizer.json"))
