"""`dialore train retriever --kind dual|cross` and `nli --kind cross`: encoders by sentence-transformers' own trainers.

A dual encoder learns by in-batch negatives and a hard one each (DPR: Karpukhin et al., 2020), a cross-encoder in two
rounds, the second with the hard negatives that the first does not hold for right (RocketQA: Qu et al., 2021), and one
for entailment by SAFARI's Appendix C. Each is written with an int8 export, by which it is used without torch.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dialore.errors import InputError, import_optional
from dialore.learned.encoders import query_with_context
from dialore.learned.entailment import make_pairs
from dialore.learned.model import check_place
from dialore.methods.few_shot import TURNS, context_text, topic_of, turns_by_side
from dialore.methods.safari import query_of
from dialore.retrieval.static import StaticEmbedder
from dialore.text import close_gaps
from dialore.training.trainer import (
    SCRATCH,
    Step,
    Tuning,
    arguments,
    checkpoint,
    explain_errors,
    run_trainer,
    write_finetuned,
)

if TYPE_CHECKING:
    from dialore.learned.examples import Examples

Kind = Literal["dual", "cross", "nli-cross"]
Row = tuple[str, str, str] | tuple[str, str, float]
_STATIC = "static"
"""In the place of a base model: token vectors alone, which begin as those of the shipped static embedder."""
USES: dict[Kind, str] = {
    "dual": "A dual encoder. Used without torch: `retriever: trained:FOLDER` of `safari`; or, where it was trained on "
    "knowledge without a persona (MSDP, Appendix F), `--embedder onnx:FOLDER` of `dialore documents build`.",
    "cross": "A cross-encoder. Used without torch: `retriever: trained:FOLDER` of `safari`.",
    "nli-cross": "A cross-encoder that tells entailment. Used without torch: `--nli trained:FOLDER` of `score`.",
}
_SURE = 0.9
_CANDIDATES = 4
_VOCABULARY = 8000
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")


def train_encoder(
    kind: Kind,
    base: str,
    train: Examples,
    dev: Examples,
    out: Path,
    tuning: Tuning,
    step: Step = lambda _what, _done, _total: None,
    *,
    whole: bool = False,
    dot: bool = False,
    hard: bool = True,
) -> dict[str, Any]:
    """Train an encoder and write it to a folder; the weights kept are those of the least loss on the held-out data.

    Args:
        kind: what is trained.
        base: a model of the hub or a folder, with weights as safetensors; `SCRATCH`; of a dual encoder also `_STATIC`.
        train: what is learnt.
        dev: what tells when to stop.
        out: where the model goes.
        tuning: how it is trained.
        step: called with what is done, how much of it and of how much.
        whole: rankers read the whole context with its speakers (SAFARI, Appendix C; MSDP, Appendix F.2), and not the
            last three turns.
        hard: models of entailment learn hard negatives beside the paper's.
        dot: dual encoders compare first tokens' states by their dot product (DPR), and not mean states by their cosine.

    Returns:
        The model's description.

    Raises:
        InputError: as `finetune`.
    """
    for name in ("torch", "sentence_transformers", "datasets", "accelerate", "onnx", "onnxruntime"):
        import_optional(name, "training encoders", "finetune")
    check_place(out)
    import transformers

    transformers.utils.logging.disable_progress_bar()
    transformers.set_seed(tuning.seed)
    make = _RANKING.get(kind, _entailment_rows)
    reading: dict[str, bool] = {"whole": whole} if kind in _RANKING else {"hard": hard}
    rows, held = (make(parameter, **reading) for parameter in (train, dev))
    if not rows or not held:
        raise InputError("no dialogue has two pieces of knowledge to tell apart", hint="give more dialogues")
    work = out.parent / f".{out.name}.training"
    with explain_errors(base):
        model = _open_model(kind, base, [text for row in rows for text in row if isinstance(text, str)], tuning, dot)
        history = _fit(kind, model, rows, held, work / "1", tuning, step)
        if kind == "cross":
            rows = denoise(train, model, tuning.seed, whole=whole)
            history = _fit(kind, model, rows, held, work / "2", tuning, step)
    use = USES[kind].replace("onnx:FOLDER", "dot:FOLDER") if dot else USES[kind]
    card = {
        "kind": kind,
        "use": f"{use} It reads the whole context: `-o turns=0`." if whole else use,
        "data": train.described(),
        "settings": {"whole": whole, "dot": dot} if kind in _RANKING else {"hard": hard},
    }

    def save(folder: Path) -> dict[str, str]:
        model.save_pretrained(str(folder))
        export(kind, model, folder)
        paths = {"sha256": next(folder.rglob("*.safetensors")), "onnx": folder / "model.onnx"}
        return {key: hashlib.sha256(path.read_bytes()).hexdigest() for key, path in paths.items()}

    parameters = sum(parameter.numel() for parameter in model.parameters())
    described = write_finetuned(out, card, base, tuning, history, parameters, save)
    shutil.rmtree(work, ignore_errors=True)
    return described


# --- what is learnt


def make_rows(examples: Examples, *, whole: bool = False) -> list[tuple[str, str, str]]:
    """Return a query, a gold piece and a hard negative each: another sentence of the persona, or another document.

    Documents are looked for under the gold sentence as well as among all, with the sentence beside the query then; by
    the whole context, among all. Without personas: topic and history, their knowledge (MSDP, Appendix F.2), and what
    another response stands on.
    """
    draw = np.random.default_rng(examples.seed)
    rows = []
    if not any(dialogue.persona for dialogue in examples.dialogues):
        for at, (dialogue, gold) in enumerate(zip(examples.dialogues, examples.gold, strict=True)):
            of_same = np.flatnonzero(examples.numbers == examples.numbers[at])
            others = [text for other in of_same for text in examples.gold[other] if text not in gold]
            query = context_text(topic_of(dialogue, "checked"), turns_by_side(dialogue), 0 if whole else TURNS)
            rows += [(query, text, others[draw.integers(len(others))]) for text in gold if others]
        return rows
    for query, text, others in _ranking_queries(examples, draw, whole):
        rows.append((query, close_gaps(text), close_gaps(others[draw.integers(len(others))])))
    return rows


def _ranking_queries(examples: Examples, draw: np.random.Generator, whole: bool) -> list[tuple[str, str, list[str]]]:
    """Return a query, a gold piece, and the pieces it is chosen from besides."""
    queries = []
    for dialogue, gold in zip(examples.dialogues, examples.gold, strict=True):
        last, under = dialogue.turns[-1].text, dialogue.extra["documents"]
        owners = [text for text in gold if text in dialogue.persona]
        for text in gold:
            query, others = last, list(dialogue.persona)
            if text not in dialogue.persona:
                near = [document for owner in owners for document in under.get(owner, ())]
                is_free = whole or bool(draw.integers(2)) or len(set(near) - set(gold)) == 0
                query = f"{last} {' '.join(owners)}" if is_free else last
                others = [document for texts in under.values() for document in texts] if is_free else near
            if others := [document for document in others if document not in gold]:
                queries.append(
                    (close_gaps(query_of(dialogue, 0)) if whole else query_with_context(query, dialogue), text, others)
                )
    return queries


def _as_pairs(examples: Examples, *, whole: bool = False) -> list[tuple[str, str, float]]:
    """Return a query and a piece each, with whether it is the gold one."""
    rows = make_rows(examples, whole=whole)
    return [pair for query, text, other in rows for pair in ((query, text, 1.0), (query, other, 0.0))]


def denoise(examples: Examples, model: Any, seed: int, *, whole: bool = False) -> list[tuple[str, str, float]]:
    """Pairs with hard negatives: of some, the one that the model holds for likeliest, but is not sure of."""
    draw = np.random.default_rng(seed + 1)
    every = _ranking_queries(examples, draw, whole)
    tried = [[close_gaps(others[at]) for at in draw.permutation(len(others))[:_CANDIDATES]] for _, _, others in every]
    pairs = [(query, other) for (query, _, _), others in zip(every, tried, strict=True) for other in others]
    chances = iter(model.predict(pairs, batch_size=128, show_progress_bar=False).tolist())
    rows = []
    for (query, text, _), others in zip(every, tried, strict=True):
        likely = [(chance, other) for other, chance in zip(others, chances, strict=False) if chance < _SURE]
        rows.append((query, close_gaps(text), 1.0))
        if likely:
            rows.append((query, max(likely)[1], 0.0))
    return rows


def _entailment_rows(examples: Examples, *, hard: bool = True) -> list[tuple[str, str, float]]:
    """Knowledge, a response, and whether it is entailed: the paper's pairs, and the hard ones."""
    pairs = make_pairs(examples, hard=hard)
    texts = [(close_gaps(piece), close_gaps(response)) for piece, response in pairs.texts]
    return [(*text, float(label)) for text, label in zip(texts, pairs.labels, strict=True)]


_RANKING: dict[Kind, Callable[..., Sequence[Row]]] = {"dual": make_rows, "cross": _as_pairs}


# --- models


def _open_model(kind: Kind, base: str, texts: Sequence[str], tuning: Tuning, dot: bool) -> Any:
    import sentence_transformers
    from sentence_transformers.sentence_transformer import modules

    if base == _STATIC and kind == "dual":
        tokenizer = _tokenizer(texts, ends=False)
        words = [tokenizer.id_to_token(at) for at in range(tokenizer.get_vocab_size())]
        # By the shipped vectors: what is a word of several tokens there is one token here.
        vectors = StaticEmbedder().encode(["" if word in _SPECIAL else word for word in words])
        return sentence_transformers.SentenceTransformer(modules=[modules.StaticEmbedding(tokenizer, vectors)])
    with tempfile.TemporaryDirectory() as scratch:
        where = base if base != SCRATCH else _scratch(kind, texts, tuning, scratch)
        safe = {"use_safetensors": True}  # pickled weights can run any code when read
        if kind == "dual" and dot:
            states = modules.Transformer(where, max_seq_length=tuning.length, model_kwargs=safe)
            pooling = modules.Pooling(states.get_embedding_dimension(), "cls")
            return sentence_transformers.SentenceTransformer(modules=[states, pooling], similarity_fn_name="dot")
        if kind == "dual":
            model = sentence_transformers.SentenceTransformer(where, model_kwargs=safe)
            model.max_seq_length = tuning.length
            return model
        return sentence_transformers.CrossEncoder(where, num_labels=1, max_length=tuning.length, model_kwargs=safe)


def _tokenizer(texts: Sequence[str], *, ends: bool) -> Any:
    import tokenizers

    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="[UNK]"))  # noqa: S106 - no password
    tokenizer.normalizer = tokenizers.normalizers.Sequence(
        [tokenizers.normalizers.NFKC(), tokenizers.normalizers.Lowercase()]
    )
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=_VOCABULARY, special_tokens=[*_SPECIAL], show_progress=False, min_frequency=2
    )
    tokenizer.train_from_iterator(sorted(set(texts)), trainer)
    if ends:
        cls, sep = ((name, _SPECIAL.index(name)) for name in ("[CLS]", "[SEP]"))
        tokenizer.post_processor = tokenizers.processors.BertProcessing(sep, cls)
    return tokenizer


def _scratch(kind: Kind, texts: Sequence[str], tuning: Tuning, folder: str) -> str:
    """Return a small BERT with random weights and a tokenizer made of the training data, in a folder."""
    import transformers

    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=_tokenizer(texts, ends=True),
        **{f"{name[1:-1].lower()}_token": name for name in _SPECIAL},
        model_max_length=tuning.length,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )
    config = transformers.BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=192,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=512,
        max_position_embeddings=tuning.length,
        pad_token_id=0,
        num_labels=1,
    )
    chosen = transformers.BertModel if kind == "dual" else transformers.BertForSequenceClassification
    chosen(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _fit(
    kind: Kind, model: Any, rows: Sequence[Row], held: Sequence[Row], work: Path, tuning: Tuning, step: Step
) -> list[dict[str, Any]]:
    """Train by sentence-transformers' own trainer; returns its history."""
    import sentence_transformers as st
    from sentence_transformers.cross_encoder import losses as cross_losses
    from sentence_transformers.sentence_transformer import losses

    import datasets

    names = ("anchor", "positive", "negative") if kind == "dual" else ("query", "text", "label")
    splits = [
        datasets.Dataset.from_dict(dict(zip(names, map(list, zip(*part, strict=True)), strict=True)))
        for part in (rows, held)
    ]
    like = getattr(model, "similarity_fn_name", "")
    signature = hashlib.sha256(json.dumps([kind, [*rows], [*held], asdict(tuning), like]).encode()).hexdigest()
    resumed = checkpoint(work, signature)
    if kind == "dual":
        chosen, trainer_of = st.SentenceTransformerTrainingArguments, st.SentenceTransformerTrainer
        how = {"scale": 1.0, "similarity_fct": st.util.dot_score} if like == "dot" else {}
        loss = losses.MultipleNegativesRankingLoss(model, **how)
        further = {"batch_sampler": "no_duplicates"}  # a piece that is gold for two queries is no negative of either
    else:
        chosen, trainer_of = st.CrossEncoderTrainingArguments, st.CrossEncoderTrainer
        loss, further = cross_losses.BinaryCrossEntropyLoss(model), {}
    trainer = run_trainer(
        trainer_of,
        tuning,
        step,
        resumed,
        model=model,
        args=arguments(work, tuning, chosen, **further),
        train_dataset=splits[0],
        eval_dataset=splits[1],
        loss=loss,
    )
    history: list[dict[str, Any]] = trainer.state.log_history
    return history


# --- without torch


def export(kind: Kind, model: Any, folder: Path) -> None:
    """Write `model.onnx`, int8, and `tokenizer.json`."""
    import torch
    from onnxruntime.quantization import QuantType, quantize_dynamic

    first = model[0]
    is_static = not hasattr(first, "auto_model")
    is_first = kind == "dual" and model.similarity_fn_name == "dot"
    network = first.embedding if is_static else first.auto_model
    names = ["input_ids", "attention_mask", "token_type_ids"]

    class Exported(torch.nn.Module):  # type: ignore[misc]  # torch ships no types
        """The first output alone: a static embedding's rows, an encoder's states, or a cross-encoder's logit."""

        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, ids: Any, mask: Any, types: Any) -> Any:
            if is_static:
                return torch.nn.functional.embedding(ids, self.network.weight) * mask[:, :, None]
            states = self.network(input_ids=ids, attention_mask=mask, token_type_ids=types)[0]
            if is_first:  # the sum of what is not 0 is the first token's state
                return states * (torch.arange(states.shape[1]) == 0)[None, :, None]
            return states

    if not is_static:
        network.set_attn_implementation("eager")
    ids = torch.tensor([[1, 2, 3], [1, 2, 0]])
    mask = torch.tensor([[1, 1, 1], [1, 1, 0]])
    axes = {key: {0: "batch", 1: "length"} for key in (names if kind != "dual" else [*names, "found"])}
    with tempfile.TemporaryDirectory() as scratch, warnings.catch_warnings():
        # The newer exporter cannot do without further packages; that a length is traced as it is here does no harm.
        warnings.simplefilter("ignore")
        whole = Path(scratch) / "whole.onnx"
        torch.onnx.export(
            Exported().eval().cpu(),
            (ids, mask, torch.zeros_like(ids)),
            str(whole),
            input_names=names,
            output_names=["found"],
            dynamic_axes=axes,
            opset_version=17,
            dynamo=False,
        )
        quantize_dynamic(whole, folder / "model.onnx", weight_type=QuantType.QInt8, per_channel=True)
    if is_static:
        first.tokenizer.save(str(folder / "tokenizer.json"))
    else:
        model.tokenizer.backend_tokenizer.save(str(folder / "tokenizer.json"))
