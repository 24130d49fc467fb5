"""What `dialore train` is asked for, and how its parts read files, run a recipe and report the result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from dialore.cli.options import one_of
from dialore.cli.output import Table, console, note, print_json, progress
from dialore.datasets import data_set
from dialore.errors import InputError
from dialore.settings import Strict
from dialore.trained import check_writable
from dialore.training.finetune import Kind, Target, finetune
from dialore.training.presets import PRESETS, Preset
from dialore.training.trainer import Job, Tuning

_SPLITS = ("train", "dev")
KINDS: tuple[Kind, ...] = ("seq2seq", "causal")
TUNING = ("epochs", "batch", "accumulation", "rate", "length", "lora", "precision")
"""The settings of fine-tuning, which trees do not have."""


class TrainSettings(Strict):
    """What `--set` takes. None stands for the value of the preset, or else of the part."""

    seed: int = Field(default=0, description="The same seed and data give the same files.")
    context: bool = Field(
        default=False, description="planner: reads the context alone, as SAFARI's does, and no persona or document."
    )
    label: Literal["search", "shift"] = Field(
        default="search",
        description="decision: search (learned from wizard-of-internet) or shift of the topic (from kdconv).",
    )
    recipe: str = Field(default="safari", description="generator: safari, fkg or fcm.")
    kind: str | None = Field(
        default=None,
        description="retriever: trees or dual; nli: trees or cross; stages, query, question: seq2seq or causal.",
    )
    whole: bool = Field(
        default=False,
        description="retriever: encoders read the whole context, not three turns; stages: reads whole prompts.",
    )
    dot: bool = Field(
        default=False, description="dual: the dot product of first tokens' states, not the cosine of mean states."
    )
    negatives: Literal["hard", "random"] | None = Field(
        default=None, description="nli: random are the paper's alone. Default: hard; random with a preset."
    )
    epochs: float | None = Field(default=None, ge=0.01, description="Maximum number of passes over the data.")
    batch: int | None = Field(default=None, ge=1, description="Targets per step and GPU.")
    accumulation: int | None = Field(default=None, ge=1, description="Steps before the weights change.")
    rate: float | None = Field(default=None, gt=0, description="Largest learning rate, reached after 5% of the steps.")
    length: int | None = Field(default=None, ge=8, description="Tokens; a longer context loses its oldest turns.")
    lora: bool = Field(
        default=False, description="Train low-rank adapters of all linear layers and merge them; not of encoders."
    )
    precision: Literal["auto", "fp32", "bf16", "fp16"] = Field(default="auto", description="Of the calculation.")


@dataclass(frozen=True, slots=True)
class Request:
    """A part to be trained, as the command line asks for it.

    Attributes:
        part: Name of the part.
        data: Name of the data set, or the file of rows.
        folder: Folder of the data set's files.
        out: Folder of the trained part.
        base: The model to start from, or None for the preset's.
        preset: Name of a preset, or None.
        sources: File of declared sources, or None.
        settings: The settings of training.
        json: Print the card as JSON.
    """

    part: str
    data: str
    folder: Path
    out: Path
    base: str | None
    preset: str | None
    sources: Path | None
    settings: TrainSettings
    json: bool

    @property
    def paper(self) -> Preset:
        """The settings of the preset; empty without one.

        Raises:
            UnknownNameError: There is no such preset of this part.
        """
        if self.preset is None:
            return Preset(self.part, "")
        known = [name for name, preset in PRESETS.items() if preset.command == self.part]
        return PRESETS[one_of(f"preset of {self.part}", self.preset, known)]

    @property
    def start(self) -> str:
        """The model to start from: `base`, or that of the preset.

        Raises:
            InputError: Neither is given. Random weights must be asked for.
        """
        start = self.base or self.paper.base
        if not start:
            hint = "give --base NAME or FOLDER, --as PRESET, or --base scratch for random weights"
            raise InputError("no model to start from", hint=hint)
        return start

    def tuning(self, **own: float) -> Tuning:
        """Return the settings of fine-tuning: those that were set, else the preset's, else the part's `own`."""
        values: dict[str, Any] = {**own, **self.paper.tuning}
        for name in TUNING:
            if name in self.settings.model_fields_set:
                values[name] = getattr(self.settings, name)
        return Tuning(seed=self.settings.seed, preset=self.preset or "", **values)

    def refuse_tuning(self) -> None:
        """Raise InputError if anything is set that trees do not have."""
        names = [name for name in TUNING if name in self.settings.model_fields_set]
        if self.base or self.preset or names:
            message = "trees are not fine-tuned: --as, --base, epochs and the like have no effect"
            raise InputError(message, hint="leave them out, or set another kind")


def run_part(recipe: Callable[..., Any], request: Request, reader: Callable[..., Any] | None = None) -> None:
    """Train a small part by a recipe and report the result. Held-out files are only tested for leaks."""
    from dialore.learned.examples import read_examples, refuse_leaks

    check_writable(request.out)
    train, *held = split_files(request, needed=1)
    examples = (reader or read_examples)(request.data, train, seed=request.settings.seed)
    for path in held:
        refuse_leaks(examples, path)
    try:
        with progress("training") as step:
            part = recipe(examples, step)
    except MemoryError as error:
        message = f"not enough memory to train on {len(examples.dialogues):,} responses"
        raise InputError(message, hint="give fewer dialogues") from error
    card = part.save(request.out, examples)
    table = Table("!measure, in percent", ">mean", ">least fold", ">greatest fold", title="Cross-validation")
    for name, figures in card["measured"].items():
        table.add_row(name, *(f"{figures[key]:.1f}" for key in ("mean", "low", "high")))
    _show(card, request, table)


def split_files(request: Request, needed: int = len(_SPLITS)) -> list[Path]:
    """Return the training file and, if it exists or is needed, the held-out file."""
    files = [path for split in _SPLITS for path in sorted(request.folder.glob(f"{split}.json*"))[:1]]
    for split in _SPLITS[:needed]:
        if not any(path.name.startswith(split) for path in files):
            hint = f"`dialore data get {request.data} --split {split} --out FILE`"
            raise InputError(f"{request.folder} has no {split}.json", hint=hint)
    return files


def run_encoder(kind: str, request: Request, tuning: Tuning, **reading: bool) -> None:
    """Train an encoder and report the result; `reading` is what it reads and how it compares."""
    base = request.start
    if tuning.lora:
        raise InputError("LoRA is for language models, not for encoders", hint="leave lora out")
    from dialore.learned.examples import read_examples, refuse_leaks
    from dialore.training.encoders import train_encoder

    # A dual encoder also learns from knowledge without personas (MSDP, Appendix F).
    is_bare = kind == "dual" and "persona" not in data_set(request.data).has
    needs = ("knowledge",) if is_bare else ("persona", "plan", "knowledge")
    files = split_files(request)
    train, dev = (read_examples(request.data, path, needs=needs, seed=tuning.seed) for path in files)
    refuse_leaks(train, files[1])
    with progress("training") as step:
        job = Job(base, request.out, tuning, step)
        card = train_encoder(kind, job, train, dev, **reading)  # type: ignore[arg-type]
    _show_tuned(card, request)


def run_finetuning(
    kind: str,
    base: str,
    request: Request,
    targets: Sequence[Sequence[Target]],
    card: dict[str, Any],
    tokens: Sequence[str],
    tuning: Tuning,
) -> None:
    """Train on the first targets, hold out the second, and report the result."""
    chosen = one_of("kind", kind, KINDS)
    with progress("training") as step:
        job = Job(base, request.out, tuning, step)
        card = finetune(chosen, job, targets[0], targets[1], card, tokens=tokens)
    _show_tuned(card, request)


def _show_tuned(card: dict[str, Any], request: Request) -> None:
    loss = card.get("loss")  # there is no card if another process writes it
    text = f"loss on held-out dialogues {loss['dev']:.3f} after {loss['epochs']} epochs" if loss else ""
    _show(card, request, text)


def _show(card: dict[str, Any], request: Request, figures: Table | str) -> None:
    """Show how good a trained part is and where it is; nothing without a card."""
    if request.json:
        print_json({"path": str(request.out), **card})
    elif card:
        console().print(figures)
        note(f"{request.out} is written; `dialore models {request.out}` states how it is used")
