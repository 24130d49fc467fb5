"""Fine-tuning: a causal or sequence-to-sequence model of transformers learns to write targets after prompts.

The folder that is written is a model for `--model hf:FOLDER`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dialore.dialogue import conversation_of
from dialore.errors import InputError, import_optional
from dialore.llm.local import pretrained_arguments
from dialore.trained import check_writable
from dialore.training.scratch import write_scratch_model
from dialore.training.trainer import SCRATCH, Job

Kind = Literal["causal", "seq2seq"]
_IGNORED = -100
"""The label of tokens that the loss is not calculated on, for transformers."""
_HEADS: dict[Kind, tuple[str, ...]] = {
    "causal": ("CausalLM", "LMHeadModel", "LMHead"),
    "seq2seq": ("ConditionalGeneration", "Seq2SeqLM", "BartModel"),  # BART's embeddings are its head
}
_KIND_NAMES: dict[Kind, str] = {"causal": "causal", "seq2seq": "sequence-to-sequence"}


@dataclass(frozen=True, slots=True)
class Target:
    """A text to be written after a prompt.

    Attributes:
        parts: Texts in order, each with whether it is learnt: whether the loss is calculated on it.
        dialogue: ID of the dialogue.
    """

    parts: tuple[tuple[str, bool], ...]
    dialogue: str

    @classmethod
    def after(cls, prompt: str, text: str, dialogue: str) -> Target:
        """Return the target of a text that is learnt completely, after a prompt."""
        return cls(((prompt, False), (text, True)), dialogue)


def finetune(
    kind: Kind,
    job: Job,
    train: Sequence[Target],
    dev: Sequence[Target],
    card: Mapping[str, Any],
    *,
    tokens: Sequence[str] = (),
) -> dict[str, Any]:
    """Train a model and write it to a folder. The weights with the least loss on the held-out data are kept.

    An interrupted training leaves its last epoch beside the folder, and the same call resumes it. Several GPUs are
    used under `accelerate launch`.

    Args:
        kind: The kind of model that the base must be.
        job: What it starts from, where it goes, and how it is trained.
        train: The training data.
        dev: The held-out data, by which training ends.
        card: `kind` (its purpose), `use` (a sentence) and `data`.
        tokens: Special tokens to add to the tokenizer.

    Returns:
        The model card; empty in all but the first process of `accelerate launch`.

    Raises:
        InputError: There is nothing to learn, the data leaks, the base model is of another kind, memory ran out, the
            folder cannot be written, or the extra `finetune` is not installed.
    """
    check_writable(job.out)
    _check_targets(train, dev)
    tuning = job.tuning
    for name in ("torch", "transformers", "accelerate", *(["peft"] if tuning.lora else [])):
        import_optional(name, "fine-tuning", "finetune")
    import torch
    import transformers

    transformers.utils.logging.disable_progress_bar()
    transformers.set_seed(tuning.seed)
    with job.explain_errors():
        tokenizer, model = _open_base(kind, job, train)
        new_tokens = _add_tokens(tokenizer, model, tokens)
        train_rows, dev_rows = (
            [encode(tokenizer, kind, target, tuning.length) for target in targets] for targets in (train, dev)
        )
        if tuning.lora:
            model = _add_adapters(model, kind, job, new_tokens)
        trainer = job.fit(
            transformers.Trainer,
            transformers.TrainingArguments,
            [kind, [target.parts for target in (*train, *dev)], list(tokens)],
            {"train_sampling_strategy": "group_by_length"},  # so that little is padding
            model=model,
            train_dataset=train_rows,
            eval_dataset=dev_rows,
            data_collator=lambda rows: collate(rows, tokenizer.pad_token_id),
        )
        if tuning.lora:
            model = model.merge_and_unload()
    if not trainer.is_world_process_zero():
        return {}

    def save(folder: Path) -> None:
        model.save_pretrained(folder, safe_serialization=True)
        tokenizer.chat_template = None  # it has learnt to continue text, and is asked to
        tokenizer.save_pretrained(folder)

    versions = {"transformers": transformers.__version__, "torch": torch.__version__}
    return job.save({**card, "settings": versions}, trainer, model.num_parameters(), save)


def _check_targets(train: Sequence[Target], dev: Sequence[Target]) -> None:
    """Raise InputError if there is nothing to learn, or a held-out dialogue is in the training data."""
    for name, targets in (("training", train), ("held-out", dev)):
        if not any(text.strip() for target in targets for text, is_learnt in target.parts if is_learnt):
            raise InputError(f"the {name} data has nothing to learn", hint="give dialogues with responses")
    seen = {target.parts for target in train}
    # Single targets are alike by chance, for example greetings. All targets of a dialogue are not.
    new = {conversation_of(target.dialogue) for target in dev if target.parts not in seen}
    for target in dev:
        dialogue = conversation_of(target.dialogue)
        if dialogue not in new:
            message = f"dialogue {dialogue} of the held-out file is in the training file, too"
            raise InputError(message, hint="train on a file without it, or figures will be too good")


def encode(tokenizer: Any, kind: Kind, target: Target, length: int) -> dict[str, list[int]]:
    """Return a target as `input_ids` and `labels`, with at most `length` tokens each.

    A causal model reads all parts after the token that its tokenizer puts before any text, up to the end-of-sequence
    token, which is learnt as well; other tokens that are not learnt have the label -100. A sequence-to-sequence model
    reads what is not learnt and writes what is. A target that is too long loses the beginning of its first part.
    """
    parts = [(tokenizer(text, add_special_tokens=False)["input_ids"], is_learnt) for text, is_learnt in target.parts]
    special = tokenizer("")["input_ids"]
    end = tokenizer.eos_token_id
    if kind == "seq2seq":
        start = special[:-1]  # BART's texts have a first token
        room = length - 1 - len(start)
        source = [token for ids, is_learnt in parts if not is_learnt for token in ids]
        written = [token for ids, is_learnt in parts if is_learnt for token in ids]
        return {"input_ids": [*start, *source[-room:], end], "labels": [*start, *written[:room], end]}
    start = [token for token in special if token == tokenizer.bos_token_id]
    excess = len(start) + sum(len(ids) for ids, _ in parts) + 1 - length
    first, is_first_learnt = parts[0]
    parts = [(start, False), (first[max(0, excess) :], is_first_learnt), *parts[1:], ([end], True)]
    input_ids: list[int] = []
    labels: list[int] = []
    for ids, is_learnt in parts:
        input_ids += ids
        labels += ids if is_learnt else [_IGNORED] * len(ids)
    return {"input_ids": input_ids[:length], "labels": labels[:length]}


def collate(rows: Sequence[Mapping[str, list[int]]], pad: int) -> dict[str, Any]:
    """Return encoded targets as tensors of shape (rows, longest row), padded at the right."""
    import torch

    def tensor(values: Sequence[Sequence[int]], filler: int) -> Any:
        longest = max(map(len, values))
        return torch.tensor([[*row, *[filler] * (longest - len(row))] for row in values])

    return {
        "input_ids": tensor([row["input_ids"] for row in rows], pad),
        "attention_mask": tensor([[1] * len(row["input_ids"]) for row in rows], 0),
        "labels": tensor([row["labels"] for row in rows], _IGNORED),
    }


# --- models


def _open_base(kind: Kind, job: Job, train: Sequence[Target]) -> tuple[Any, Any]:
    """Return tokenizer and model."""
    if job.base != SCRATCH:
        return _load_base(kind, job.base)
    with tempfile.TemporaryDirectory() as folder:
        texts = (text for target in train for text, _ in target.parts)
        write_scratch_model(kind, texts, job.tuning.length, Path(folder))
        return _load_base(kind, folder)


def _load_base(kind: Kind, base: str) -> tuple[Any, Any]:
    import transformers

    location = pretrained_arguments(base)
    config = transformers.AutoConfig.from_pretrained(**location)
    heads = config.architectures or []
    fits = not heads or any(head.endswith(_HEADS[kind]) for head in heads)
    if config.is_encoder_decoder != (kind == "seq2seq") or not fits:
        described = f" ({', '.join(heads)})" if heads else ""
        name = _KIND_NAMES[kind]
        raise InputError(f"{base}{described} is no {name} model", hint=f"give a {name} --base")
    auto = transformers.AutoModelForCausalLM if kind == "causal" else transformers.AutoModelForSeq2SeqLM
    # Pickled weights can run any code when they are loaded.
    model = auto.from_pretrained(**location, use_safetensors=True)
    tokenizer = transformers.AutoTokenizer.from_pretrained(**location)
    if "gguf_file" in location:
        # The weights are dequantised by now, but the model's settings would keep it from being trained and saved.
        model.hf_quantizer = None
        model.is_quantized = False
        del model.config.quantization_config
    if tokenizer.eos_token_id is None:
        raise InputError(f"the tokenizer of {base} has no end-of-sequence token", hint="choose another --base")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer, model


def _add_tokens(tokenizer: Any, model: Any, tokens: Sequence[str]) -> list[int]:
    """Add tokens that the vocabulary lacks, and return their IDs."""
    # Special tokens would be left out of decoded text, so these are ordinary ones.
    new = [token for token in tokens if token not in tokenizer.get_vocab()]
    tokenizer.add_tokens(new)
    if len(tokenizer) > model.get_input_embeddings().num_embeddings:
        model.resize_token_embeddings(len(tokenizer))
    ids: list[int] = tokenizer.convert_tokens_to_ids(new)
    return ids


def _add_adapters(model: Any, kind: Kind, job: Job, new_tokens: list[int]) -> Any:
    """Return the model with LoRA's adapters; raises InputError if it has no layer of a name."""
    import peft

    tuning = job.tuning
    layers = {name.rpartition(".")[2] for name, _ in model.named_modules()}
    missing = [name for name in tuning.modules if name not in layers]
    if missing:
        message = f"the model has no {' and no '.join(missing)} for LoRA to adapt"
        raise InputError(message, hint="choose another --base, or --lora without --as")
    config = peft.LoraConfig(
        task_type=peft.TaskType.CAUSAL_LM if kind == "causal" else peft.TaskType.SEQ_2_SEQ_LM,
        r=tuning.rank,
        lora_alpha=tuning.alpha,
        lora_dropout=tuning.dropout,
        target_modules=list(tuning.modules) or "all-linear",
        trainable_token_indices=new_tokens or None,  # embeddings of new tokens are learnt completely
    )
    return peft.get_peft_model(model, config)
