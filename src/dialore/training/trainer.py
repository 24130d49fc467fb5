"""Training by transformers' `Trainer`: its settings, resumption, errors, and the folder that it leaves."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from dialore.errors import InputError, first_line
from dialore.trained import write_trained

OnStep = Callable[[str, int, int | None], None]

SCRATCH = "scratch"
"""In place of a base model: a small one with random weights, see `scratch`."""
_MEMORY_HINT = "lower batch (and raise accumulation by as much), lower length, or set lora"


@dataclass(frozen=True, slots=True)
class Tuning:
    """How a model is trained.

    Attributes:
        epochs: Maximum number of passes over the training data.
        batch: Targets per step and device.
        accumulation: Steps whose gradients are added up before the weights change.
        rate: Largest learning rate.
        warmup: Number of steps until the learning rate is reached; below 1, their share.
        schedule: How the learning rate falls to 0 afterwards.
        decay: Weight decay of AdamW.
        length: Maximum number of tokens of a target with its prompt. A longer prompt loses its beginning.
        lora: Train low-rank adapters and merge them into the weights.
        rank: LoRA's r.
        alpha: LoRA's alpha.
        dropout: LoRA's dropout.
        modules: Layers that LoRA adapts; all linear layers if empty.
        patience: Epochs without a lower loss on the held-out data after which training ends.
        precision: `auto` is bfloat16 on a GPU that has it, and `fp32` otherwise.
        seed: Seed of the order of the data, of dropout and of new weights.
        preset: Name of the published settings that these are based on, for the model card.
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
    preset: str = ""


DEFAULT = Tuning()


@dataclass(frozen=True, slots=True)
class Job:
    """A training, whatever the kind of model.

    Attributes:
        base: A model of the hub or a folder, with weights as safetensors; or `SCRATCH`.
        out: Folder of the trained model.
        tuning: How the model is trained.
        on_step: Called with the activity, the number of finished steps and of all steps.
    """

    base: str
    out: Path
    tuning: Tuning = DEFAULT
    on_step: OnStep = lambda _activity, _done, _total: None

    @property
    def work(self) -> Path:
        """Folder of checkpoints, from which the same job resumes."""
        return self.out.parent / f".{self.out.name}.training"

    def fit(
        self, trainer_class: type, arguments_class: type, data: object, options: Mapping[str, Any], **parts: Any
    ) -> Any:
        """Train, or resume an interrupted training, and return the trainer with the best weights.

        Args:
            trainer_class: `transformers.Trainer` or a subclass.
            arguments_class: The class of its arguments.
            data: Everything besides the job that the result depends on, as JSON: with other data, training starts anew.
            options: Further arguments of `arguments_class`.
            parts: Further arguments of `trainer_class`.
        """
        import transformers

        class Progress(transformers.TrainerCallback):  # type: ignore[misc]  # transformers ships no types
            def on_step_end(_, args: Any, state: Any, control: Any, **__: Any) -> None:  # noqa: N805 - `self` is the job
                self.on_step("training", state.global_step, state.max_steps)

        checkpoint = self._checkpoint(json.dumps([self.base, asdict(self.tuning), data]))
        trainer = trainer_class(
            args=arguments_class(**self._arguments(), **options),
            callbacks=[transformers.EarlyStoppingCallback(self.tuning.patience), Progress()],
            **parts,
        )
        for callback in (transformers.PrinterCallback, transformers.trainer_callback.ProgressCallback):
            trainer.remove_callback(callback)
        trainer.train(resume_from_checkpoint=checkpoint)
        return trainer

    def _arguments(self) -> dict[str, Any]:
        """Return the arguments that all trainers share."""
        import torch

        tuning, on_gpu = self.tuning, torch.cuda.is_available()
        precision: str = tuning.precision
        if precision == "auto":
            precision = "bf16" if on_gpu and torch.cuda.is_bf16_supported() else "fp32"
        return {
            "output_dir": str(self.work),
            "num_train_epochs": tuning.epochs,
            "per_device_train_batch_size": tuning.batch,
            "per_device_eval_batch_size": tuning.batch,
            "gradient_accumulation_steps": tuning.accumulation,
            "learning_rate": tuning.rate,
            "warmup_steps": tuning.warmup,
            "lr_scheduler_type": tuning.schedule,
            "weight_decay": tuning.decay,
            "bf16": precision == "bf16",
            "fp16": precision == "fp16",
            "use_cpu": precision == "bf16" and not on_gpu,  # otherwise bfloat16 is refused on a processor
            "seed": tuning.seed,
            "eval_strategy": "epoch",
            "save_strategy": "epoch",
            "logging_strategy": "epoch",
            "load_best_model_at_end": True,
            "metric_for_best_model": "eval_loss",
            "greater_is_better": False,
            "save_total_limit": 2,
            "report_to": [],
            "disable_tqdm": True,
            "dataloader_pin_memory": on_gpu,
            "remove_unused_columns": False,
        }

    def _checkpoint(self, signature: str) -> str | None:
        """Return the last checkpoint of the same training; checkpoints of another one are removed."""
        import transformers

        digest = hashlib.sha256(signature.encode()).hexdigest()
        marker = self.work / "signature"
        if marker.is_file() and marker.read_text(encoding="utf-8") == digest:
            checkpoint: str | None = transformers.trainer_utils.get_last_checkpoint(str(self.work))
            return checkpoint
        shutil.rmtree(self.work, ignore_errors=True)
        try:
            self.work.mkdir(parents=True)
            marker.write_text(digest, encoding="utf-8")
        except OSError as error:
            message = f"{self.work}: cannot be written: {error.strerror}"
            raise InputError(message, hint="choose another --out") from error
        return None

    @contextlib.contextmanager
    def explain_errors(self) -> Iterator[None]:
        """Convert errors of loading and training to InputError."""
        try:
            yield
        except InputError:
            raise
        except (MemoryError, OSError, ValueError, RuntimeError, ImportError) as error:
            reason = first_line(error)
            text = reason.lower()
            if isinstance(error, MemoryError) or "out of memory" in text or "can't allocate memory" in text:
                raise InputError(f"not enough memory to train: {reason}", hint=_MEMORY_HINT) from error
            hint = "check --base, and that its weights are safetensors"
            raise InputError(f"cannot train {self.base}: {reason}", hint=hint) from error

    def save(
        self, card: Mapping[str, Any], trainer: Any, parameters: int, save: Callable[[Path], None]
    ) -> dict[str, Any]:
        """Write the trained model, remove the checkpoints, and return the card; raises as `write_trained`.

        Args:
            card: `kind`, `use`, `data` and further `settings`.
            trainer: The result of `fit`.
            parameters: Number of weights.
            save: Writes the weights into a folder.
        """
        history = trainer.state.log_history
        losses = [entry["eval_loss"] for entry in history if "eval_loss" in entry]
        complete = {
            **card,
            "settings": {"base": self.base, **asdict(self.tuning), **card.get("settings", {})},
            "seed": self.tuning.seed,
            "measured": {},
            "loss": {"dev": min(losses), "epochs": len(losses), "parameters": parameters},
        }

        def write(folder: Path) -> None:
            save(folder)
            _write_losses(folder, history)

        written = write_trained(self.out, complete, write)
        shutil.rmtree(self.work, ignore_errors=True)
        return written


def _write_losses(folder: Path, history: Sequence[Mapping[str, Any]]) -> None:
    """Write the losses of each epoch as `loss.csv`."""
    rows: dict[float, dict[str, float]] = {}
    for entry in history:
        for key, name in (("loss", "train"), ("eval_loss", "dev")):
            if key in entry:
                rows.setdefault(entry["epoch"], {})[name] = entry[key]
    with (folder / "loss.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["epoch", "train", "dev"])
        for epoch, losses in sorted(rows.items()):
            writer.writerow([epoch, losses.get("train"), losses.get("dev")])
