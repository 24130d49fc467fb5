"""Training by transformers' `Trainer`: its settings, resumption, and what it leaves."""

from __future__ import annotations

import contextlib
import csv
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from dialore._version import __version__
from dialore.errors import InputError, first_line
from dialore.learned.model import FORM, replace_folder

Step = Callable[[str, int, int | None], None]

SCRATCH = "scratch"
"""In the place of a base model: a small one with random weights, and a tokenizer made of the training data."""
_MEMORY_MEND = "lower --batch (and raise --accumulation by as much), lower --length, or give --lora"


@dataclass(frozen=True, slots=True)
class Tuning:
    """How a model is trained.

    Attributes:
        epochs: passes over the training data, at most.
        batch: targets a step and device.
        accumulation: steps whose gradients are added up before the weights change.
        rate: the greatest learning rate, which then falls to 0.
        warmup: steps until then; below 1, their share.
        schedule: how it falls.
        decay: AdamW's weight decay.
        length: tokens of a target with its prompt; a longer prompt loses its beginning.
        lora: train low-rank adapters and merge them into the weights.
        rank, alpha, dropout: LoRA's r, alpha and dropout.
        modules: what LoRA adapts; all linear layers without any.
        patience: epochs without a lower loss on the held-out data, after which training ends.
        precision: `auto` for bfloat16 on a GPU that has it, else `fp32`, `bf16`, `fp16`.
        seed: of the order of the data, of dropout and of new weights.
    """

    epochs: float = 3
    batch: int = 8
    accumulation: int = 1
    rate: float = 3e-4
    warmup: float = 0.05
    schedule: Literal["linear", "cosine"] = "linear"
    decay: float = 0.0
    length: int = 512
    lora: bool = False
    rank: int = 8
    alpha: int = 32
    dropout: float = 0.1
    modules: tuple[str, ...] = ()
    patience: int = 2
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    seed: int = 0


DEFAULT = Tuning()


def arguments(work: Path, tuning: Tuning, form: type | None = None, **further: Any) -> Any:
    """Return the arguments of transformers' Trainer, or those of a form that extends them."""
    import torch
    import transformers

    on_gpu = torch.cuda.is_available()
    chosen = tuning.precision
    if chosen == "auto":
        chosen = "bf16" if on_gpu and torch.cuda.is_bf16_supported() else "fp32"
    return (form or transformers.TrainingArguments)(
        output_dir=str(work),
        num_train_epochs=tuning.epochs,
        per_device_train_batch_size=tuning.batch,
        per_device_eval_batch_size=tuning.batch,
        gradient_accumulation_steps=tuning.accumulation,
        learning_rate=tuning.rate,
        warmup_steps=tuning.warmup,
        lr_scheduler_type=tuning.schedule,
        weight_decay=tuning.decay,
        bf16=chosen == "bf16",
        use_cpu=chosen == "bf16" and not on_gpu,  # a processor knows it, too, and is told so
        fp16=chosen == "fp16",
        seed=tuning.seed,
        eval_strategy="epoch",
        save_strategy="epoch",
        logging_strategy="epoch",
        load_best_model_at_end=True,
        metric_for_best_model="eval_loss",
        greater_is_better=False,
        save_total_limit=2,
        report_to=[],
        disable_tqdm=True,
        dataloader_pin_memory=on_gpu,
        remove_unused_columns=False,
        **further,
    )


def run_trainer(kind: type, tuning: Tuning, step: Step, resumed: str | None, **parts: Any) -> Any:
    """Train by a Trainer of transformers or one that extends it, and return it; `parts` are its other arguments."""
    import transformers

    class Progress(transformers.TrainerCallback):  # type: ignore[misc]  # transformers ships no types
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            step("training", state.global_step, state.max_steps)

    trainer = kind(callbacks=[transformers.EarlyStoppingCallback(tuning.patience), Progress()], **parts)
    for unwanted in (transformers.PrinterCallback, transformers.trainer_callback.ProgressCallback):
        trainer.remove_callback(unwanted)
    trainer.train(resume_from_checkpoint=resumed)
    return trainer


@contextlib.contextmanager
def explain_errors(base: str) -> Iterator[None]:
    """Turn what loading and training raise into one line."""
    try:
        yield
    except MemoryError as error:
        raise InputError("not enough memory to train", hint=_MEMORY_MEND) from error
    except (OSError, ValueError, RuntimeError, ImportError) as error:
        if isinstance(error, InputError):
            raise
        why = first_line(error)
        if "out of memory" in why.lower() or "can't allocate memory" in why.lower():
            raise InputError(f"not enough memory to train: {why}", hint=_MEMORY_MEND) from error
        raise InputError(
            f"cannot train {base}: {why}", hint="check --base, and that its weights are safetensors"
        ) from error


def checkpoint(work: Path, signature: str) -> str | None:
    """Return the last epoch of an interrupted training of the same model, data and settings; others are removed."""
    import transformers

    marked = work / "signature"
    if marked.is_file() and marked.read_text() == signature:
        path: str | None = transformers.trainer_utils.get_last_checkpoint(str(work))
        return path
    shutil.rmtree(work, ignore_errors=True)
    try:
        work.mkdir(parents=True)
        marked.write_text(signature)
    except OSError as error:
        raise InputError(f"{work}: cannot be written: {error.strerror}", hint="choose another --out") from error
    return None


def write_finetuned(
    out: Path,
    card: Mapping[str, Any],
    base: str,
    tuning: Tuning,
    history: Sequence[Mapping[str, Any]],
    parameters: int,
    save: Callable[[Path], Mapping[str, str]],
) -> dict[str, Any]:
    """Write a fine-tuned model whole or not at all, and return its description; raises as `replace_folder`.

    The card has its `kind`, `use`, `data` and further `settings`; `save` writes weights and returns their hashes.
    """
    losses = [entry["eval_loss"] for entry in history if "eval_loss" in entry]
    whole = {
        "form": FORM,
        **card,
        "settings": {"base": base, **asdict(tuning), **card.get("settings", {})},
        "seed": tuning.seed,
        "measured": {},
        "loss": {"dev": min(losses), "epochs": len(losses), "parameters": parameters},
        "dialore": __version__,
    }

    def fill(folder: Path) -> None:
        whole.update(save(folder))
        _write_losses(folder, history)
        (folder / "README.md").write_text(_readme(whole), encoding="utf-8")
        text = json.dumps(whole, ensure_ascii=False, indent=1)
        (folder / "model.json").write_text(text + "\n", encoding="utf-8")

    replace_folder(out, fill)
    return whole


def _write_losses(folder: Path, history: Sequence[Mapping[str, Any]]) -> None:
    """Write `loss.csv`, and where matplotlib is there `loss.svg`."""
    rows: dict[float, dict[str, float]] = {}
    for entry in history:
        for key, name in (("loss", "train"), ("eval_loss", "dev")):
            if key in entry:
                rows.setdefault(entry["epoch"], {})[name] = entry[key]
    with (folder / "loss.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["epoch", "train", "dev"])
        writer.writerows([epoch, row.get("train"), row.get("dev")] for epoch, row in sorted(rows.items()))
    with contextlib.suppress(ImportError):
        from matplotlib.figure import Figure

        figure = Figure(figsize=(5, 3), layout="constrained")
        axes = figure.add_subplot(xlabel="epoch", ylabel="loss")
        for name in ("train", "dev"):
            drawn = [(epoch, row[name]) for epoch, row in sorted(rows.items()) if name in row]
            axes.plot(*zip(*drawn, strict=True), marker="o", label=name)
        axes.legend()
        figure.savefig(folder / "loss.svg", metadata={"Date": None})


def _readme(card: Mapping[str, Any]) -> str:
    """Return the model card of a fine-tuned model."""
    data, loss = card["data"], card["loss"]
    return "\n".join(
        [
            f"# A fine-tuned {card['kind']} of Dialore",
            "",
            card["use"],
            "",
            f"**Data.** `{data['dataset']}`: {data['responses']:,} targets; SHA-256 `{data['sha256']}`.",
            "",
            f"**Loss** on held-out dialogues {loss['dev']:.3f} after {loss['epochs']} epochs; {loss['parameters']:,}"
            " weights; `loss.csv`, `loss.svg`.",
            "",
            f"**Settings**, seed {card['seed']}:",
            "",
            *(f"- {name}: `{value}`" for name, value in card["settings"].items()),
            "",
        ]
    )
