"""Fine-tuning: a causal or sequence-to-sequence model of transformers learns to write targets after prompts.

The loop is transformers' own `Trainer`. A model is written as those of `dialore.learned` are, whole or not at
all: `model.json` and `README.md` beside weights as safetensors, the tokenizer, and the losses as `loss.csv` and
`loss.svg`. Any folder so written is a model for `--model hf:FOLDER`.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from dialore.dialogue import conversation_of
from dialore.errors import InputError, import_optional
from dialore.learned.model import check_place
from dialore.llm.local import pretrained_arguments
from dialore.training.trainer import (
    DEFAULT,
    SCRATCH,
    Step,
    Tuning,
    arguments,
    checkpoint,
    explain_errors,
    run_trainer,
    write_finetuned,
)

Kind = Literal["causal", "seq2seq"]
_EXTRA = "finetune"
_IGNORED = -100
"""A label that no loss is calculated on, for transformers."""
_HEADS: dict[Kind, tuple[str, ...]] = {
    "causal": ("CausalLM", "LMHeadModel", "LMHead"),
    "seq2seq": ("ConditionalGeneration", "Seq2SeqLM", "BartModel"),  # whose head is its embeddings
}
_CALLED: dict[Kind, str] = {"causal": "causal", "seq2seq": "sequence-to-sequence"}
_VOCABULARY = 8000
_PAD, _END = "<pad>", "</s>"


@dataclass(frozen=True, slots=True)
class Target:
    """A text to be written after a prompt.

    Attributes:
        parts: texts in their order, each with whether it is to be learnt (the loss is calculated on it).
        of: the dialogue that it is of.
    """

    parts: tuple[tuple[str, bool], ...]
    of: str

    @classmethod
    def after(cls, prompt: str, text: str, of: str) -> Target:
        """Return all of a text, after a prompt."""
        return cls(((prompt, False), (text, True)), of)


def finetune(
    kind: Kind,
    base: str,
    train: Sequence[Target],
    dev: Sequence[Target],
    out: Path,
    card: Mapping[str, Any],
    *,
    tokens: Sequence[str] = (),
    tuning: Tuning = DEFAULT,
    step: Step = lambda _what, _done, _total: None,
) -> dict[str, Any]:
    """Train a model and write it to a folder; the weights kept are those of the least loss on the held-out data.

    An interrupted training leaves its last epoch beside `out`, and the same call goes on from there. Several GPUs are
    used where it runs under `accelerate launch`.

    Args:
        kind: what `base` must be.
        base: a model of the hub, or a folder, with weights as safetensors; or `SCRATCH`.
        train: what is learnt.
        dev: what tells when to stop.
        out: where the model goes.
        card: its `kind` (what it is for), `use` (how it is used, a sentence) and `data`.
        tokens: special tokens that the tokenizer gets.
        tuning: how it is trained.
        step: called with what is done, how much of it and of how much.

    Returns:
        The model's description.

    Raises:
        InputError: nothing to learn; the data leaks; the base model is none of that kind; memory ran out; a place that
            cannot be written; the extra `finetune` is not installed.
    """
    check_place(out)
    _check_targets(train, dev)
    for name in ("torch", "transformers", "accelerate", *(["peft"] if tuning.lora else [])):
        import_optional(name, "fine-tuning", _EXTRA)
    import torch
    import transformers

    transformers.utils.logging.disable_progress_bar()
    transformers.set_seed(tuning.seed)
    work = out.parent / f".{out.name}.training"
    signature = _signature(kind, base, train, dev, tokens, tuning)
    resumed = checkpoint(work, signature)
    with explain_errors(base):
        tokenizer, model = _scratch(kind, train, tuning) if base == SCRATCH else _open_base(kind, base)
        added = _add_tokens(tokenizer, model, tokens)
        encoded = [[encode(tokenizer, kind, target, tuning.length) for target in split] for split in (train, dev)]
        if tuning.lora:
            model = _add_adapters(model, kind, tuning, added)
        trainer = run_trainer(
            transformers.Trainer,
            tuning,
            step,
            resumed,
            model=model,
            args=arguments(work, tuning, train_sampling_strategy="group_by_length"),  # little is filled up
            train_dataset=encoded[0],
            eval_dataset=encoded[1],
            data_collator=lambda rows: collate(rows, tokenizer.pad_token_id),
        )
        model = model.merge_and_unload() if tuning.lora else model
    if not trainer.is_world_process_zero():
        return {}

    def save(folder: Path) -> dict[str, str]:
        model.save_pretrained(folder, safe_serialization=True)
        tokenizer.chat_template = None  # it learnt to continue text, and so it is asked
        tokenizer.save_pretrained(folder)
        return {"sha256": _sha256(folder)}

    versions = {"transformers": transformers.__version__, "torch": torch.__version__}
    described = {**card, "settings": versions}
    history, parameters = trainer.state.log_history, model.num_parameters()
    whole = write_finetuned(out, described, base, tuning, history, parameters, save)
    shutil.rmtree(work, ignore_errors=True)
    return whole


def _check_targets(train: Sequence[Target], dev: Sequence[Target]) -> None:
    """Raise InputError where there is nothing to learn, or a held-out dialogue is in the training data."""
    for name, split in (("training", train), ("held-out", dev)):
        if not any(text.strip() for target in split for text, learnt in target.parts if learnt):
            raise InputError(f"the {name} data has nothing to learn", hint="give dialogues with responses")
    seen = {target.parts for target in train}
    new = {conversation_of(target.of) for target in dev if target.parts not in seen}
    # One target may be alike by chance: a greeting. All of a dialogue's are not.
    if (leak := next((name for target in dev if (name := conversation_of(target.of)) not in new), None)) is not None:
        message = f"dialogue {leak} of the held-out file is in the training file, too"
        raise InputError(message, hint="train on a file without it, or figures will be too good")


def encode(tokenizer: Any, kind: Kind, target: Target, length: int) -> dict[str, list[int]]:
    """Return a target as `input_ids` and `labels`, at most so many tokens; -100 where no loss is calculated.

    A causal model reads the parts one after the other, after the token that its tokenizer puts before any text, up to
    the end-of-sequence token, which is learnt, too. A
    sequence-to-sequence model reads what is not learnt and writes what is. What is too long loses the beginning of its
    first part.
    """
    parts = [(tokenizer(text, add_special_tokens=False)["input_ids"], learnt) for text, learnt in target.parts]
    if kind == "seq2seq":
        start, end = tokenizer("")["input_ids"][:-1], [tokenizer.eos_token_id]  # BART's texts have a beginning, too
        room = length - 1 - len(start)
        read = [token for tokens, learnt in parts if not learnt for token in tokens]
        written = [token for tokens, learnt in parts if learnt for token in tokens]
        return {"input_ids": [*start, *read[-room:], *end], "labels": [*start, *written[:room], *end]}
    (first, is_learnt), *others = parts
    rest = [(tokens, learnt) for tokens, learnt in others] + [([tokenizer.eos_token_id], True)]
    begun = [token for token in tokenizer("")["input_ids"] if token == tokenizer.bos_token_id]
    room = max(0, length - len(begun) - sum(len(tokens) for tokens, _ in rest))
    parts = [(begun, False), (first[len(first) - min(room, len(first)) :], is_learnt), *rest]
    ids = [token for tokens, _ in parts for token in tokens][:length]
    labels = [token if learnt else _IGNORED for tokens, learnt in parts for token in tokens][:length]
    return {"input_ids": ids, "labels": labels}


def collate(rows: Sequence[Mapping[str, list[int]]], pad: int) -> dict[str, Any]:
    """Return encoded targets as tensors (rows, longest), filled up at the right."""
    import torch

    def filled(name: str, value: int) -> Any:
        longest = max(len(row[name]) for row in rows)
        return torch.tensor([[*row[name], *[value] * (longest - len(row[name]))] for row in rows])

    mask = [{"mask": [1] * len(row["input_ids"])} for row in rows]
    longest = max(len(row["mask"]) for row in mask)
    attention = torch.tensor([row["mask"] + [0] * (longest - len(row["mask"])) for row in mask])
    return {"input_ids": filled("input_ids", pad), "attention_mask": attention, "labels": filled("labels", _IGNORED)}


# --- models


def _open_base(kind: Kind, base: str) -> tuple[Any, Any]:
    import transformers

    location = pretrained_arguments(base)
    config = transformers.AutoConfig.from_pretrained(**location)
    heads = config.architectures or []
    fits = any(head.endswith(_HEADS[kind]) for head in heads) or not heads
    if config.is_encoder_decoder != (kind == "seq2seq") or not fits:
        described = f" ({', '.join(heads)})" if heads else ""
        raise InputError(f"{base}{described} is no {_CALLED[kind]} model", hint=f"give a {_CALLED[kind]} --base")
    chosen = transformers.AutoModelForCausalLM if kind == "causal" else transformers.AutoModelForSeq2SeqLM
    # Pickled weights can run any code when read.
    model = chosen.from_pretrained(**location, use_safetensors=True)
    tokenizer = transformers.AutoTokenizer.from_pretrained(**location)
    if "gguf_file" in location:
        # Its weights are dequantised; what says otherwise keeps it from being trained whole, and saved.
        model.hf_quantizer = None
        model.is_quantized = False
        del model.config.quantization_config
    if tokenizer.eos_token_id is None:
        raise InputError(f"the tokenizer of {base} has no end-of-sequence token", hint="choose another --base")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer, model


def _scratch(kind: Kind, train: Sequence[Target], tuning: Tuning) -> tuple[Any, Any]:
    """Return a byte-level tokenizer of the training data, and random weights: some five million."""
    import tokenizers
    import transformers

    trained = tokenizers.ByteLevelBPETokenizer()
    texts = (text for target in train for text, _ in target.parts)
    trained.train_from_iterator(texts, _VOCABULARY, special_tokens=[_PAD, _END], show_progress=False)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=trained._tokenizer,  # noqa: SLF001 - its documented place
        pad_token=_PAD,
        eos_token=_END,
    )
    ends = {"pad_token_id": 0, "eos_token_id": 1, "vocab_size": len(tokenizer)}
    if kind == "causal":
        size = {"n_positions": tuning.length, "n_embd": 256, "n_layer": 4, "n_head": 4}
        config: Any = transformers.GPT2Config(**size, **ends, bos_token_id=1)
        return tokenizer, transformers.GPT2LMHeadModel(config)
    size = {"d_model": 256, "d_kv": 64, "d_ff": 1024, "num_layers": 3, "num_heads": 4}
    config = transformers.T5Config(**size, **ends, decoder_start_token_id=0)
    return tokenizer, transformers.T5ForConditionalGeneration(config)


def _add_tokens(tokenizer: Any, model: Any, tokens: Sequence[str]) -> list[int]:
    """Add what the vocabulary lacks; returns its ids."""
    # Ordinary added tokens: a special one would be left out of what the model is read to have written.
    new = [token for token in tokens if token not in tokenizer.get_vocab()]
    tokenizer.add_tokens(new)
    if len(tokenizer) > model.get_input_embeddings().num_embeddings:
        model.resize_token_embeddings(len(tokenizer))
    ids: list[int] = tokenizer.convert_tokens_to_ids(new)
    return ids


def _add_adapters(model: Any, kind: Kind, tuning: Tuning, added: list[int]) -> Any:
    import peft

    task = peft.TaskType.CAUSAL_LM if kind == "causal" else peft.TaskType.SEQ_2_SEQ_LM
    return peft.get_peft_model(
        model,
        peft.LoraConfig(
            task_type=task,
            r=tuning.rank,
            lora_alpha=tuning.alpha,
            lora_dropout=tuning.dropout,
            target_modules=_modules(model, tuning),
            trainable_token_indices=added or None,  # their embeddings are new, and learnt whole
        ),
    )


def _modules(model: Any, tuning: Tuning) -> list[str] | str:
    """Return what LoRA adapts; raise InputError where the model has nothing of the name."""
    last = {name.rpartition(".")[2] for name, _ in model.named_modules()}
    if missing := [name for name in tuning.modules if name not in last]:
        message = f"the model has no {' and no '.join(missing)} for LoRA to adapt"
        raise InputError(message, hint="choose another --base, or --lora without --as")
    return [*tuning.modules] or "all-linear"


def _signature(
    kind: Kind, base: str, train: Sequence[Target], dev: Sequence[Target], tokens: Sequence[str], tuning: Tuning
) -> str:
    whole = json.dumps([kind, base, [target.parts for target in (*train, *dev)], [*tokens], asdict(tuning)])
    return hashlib.sha256(whole.encode()).hexdigest()


def _sha256(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()
