"""How the commands of `dialore train` read their files, run a recipe and say what came of it."""

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from typer import Argument, Option

from dialore.cli.options import DATA_SETS, Json, one_of
from dialore.cli.output import Table, console, note, print_json, progress
from dialore.datasets import data_set
from dialore.errors import InputError
from dialore.trained import check_writable
from dialore.training.finetune import Kind, Target, finetune
from dialore.training.presets import PRESETS, Preset
from dialore.training.trainer import Job, Tuning

_SPLITS = ("train", "dev")
KINDS: tuple[Kind, ...] = ("seq2seq", "causal")


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Options of a trained part."""

    out: Annotated[Path, Option(metavar="FOLDER", help="Where the model goes.")]
    seed: Annotated[int, Option(help="The same seed and data give the same files.")] = 0
    json: Json = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Work(Output):
    """Options of a part that is trained on a data set."""

    name: Annotated[str, Argument(metavar="NAME", help="The data set.", autocompletion=DATA_SETS)]
    data: Annotated[Path, Option(metavar="DIR", help="Where its train.json lies, and dev.json, gzipped or not.")]


@dataclass(frozen=True, slots=True)
class TuningOptions:
    """How a model is fine-tuned; what is not given is as the recipe has it."""

    start: Annotated[
        str | None,
        Option(
            "--base",
            metavar="NAME|FOLDER|scratch",
            help="The model to start from. `scratch` is a small one with random weights. (default: that of --as)",
        ),
    ] = None
    preset: Annotated[
        str | None,
        Option(
            "--as",
            metavar="PAPER",
            help="The settings of a paper; other options override them: safari-chatglm, safari-belle (generator); dpr, "
            "rocketqa, msdp-dpr (retriever); safari-nli (nli); scg-qp (stages).",
        ),
    ] = None
    epochs: Annotated[
        float | None, Option(min=0.01, help="Passes over the data, at most. (default: 3; stages 10; encoders 5)")
    ] = None
    batch: Annotated[int | None, Option(min=1, help="Targets a step and GPU. (default: 8; retrievers 32)")] = None
    accumulation: Annotated[int | None, Option(min=1, help="Steps before the weights change. (default: 1)")] = None
    rate: Annotated[
        float | None, Option(help="The greatest; it rises for 5% of the steps, then falls. (default: 3e-4; nli 2e-5)")
    ] = None
    length: Annotated[
        int | None,
        Option(
            min=8, help="Tokens; older turns go where it is more. (default: 512; stages 1024; retrievers 96; nli 128)"
        ),
    ] = None
    lora: Annotated[
        bool,
        Option(
            "--lora", help="Low-rank adapters (r 8, alpha 32, dropout .1, all linear layers), merged; not of encoders."
        ),
    ] = False
    precision: Annotated[str, Option(metavar="auto|fp32|bf16|fp16", help="Of the calculation.")] = "auto"

    def refuse(self) -> None:
        """Raise InputError where any is given: trees have no such numbers."""
        if self != type(self)():
            message = "trees are not fine-tuned: --base, --epochs and the like say nothing"
            raise InputError(message, hint="give a --kind")

    @property
    def base(self) -> str:
        """The model to start from: --base, or that of the preset.

        Raises:
            InputError: Neither is given. Random weights must be asked for.
        """
        if self.start:
            return self.start
        if self.preset in PRESETS:
            return PRESETS[self.preset].base
        hint = "give --base NAME or FOLDER, --as PAPER, or --base scratch for random weights"
        raise InputError("no model to start from", hint=hint)

    def preset_of(self, command: str) -> Preset:
        """Return the paper's settings that are named; raise InputError where they are of another command."""
        if self.preset is None:
            return Preset(command, "")
        known = [name for name, preset in PRESETS.items() if preset.command == command]
        return PRESETS[one_of("preset", self.preset, known)]

    def tuning(self, seed: int, command: str = "", **own: float) -> Tuning:
        """Return the settings of training: options given, else the preset's, else the recipe's defaults."""
        one_of("precision", self.precision, ("auto", "fp32", "bf16", "fp16"))
        given = {name: getattr(self, name) for name in ("epochs", "batch", "accumulation", "rate", "length")}
        options = {name: value for name, value in given.items() if value is not None}
        chosen: dict[str, Any] = {**own, "lora": self.lora, **self.preset_of(command).tuning, **options}
        return Tuning(precision=self.precision, seed=seed, preset=self.preset or "", **chosen)  # type: ignore[arg-type]


def with_dataclass_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command with the fields of its dataclasses as options in their place."""
    parameters: list[inspect.Parameter] = []
    classes: dict[str, type] = {}
    for parameter in inspect.signature(command).parameters.values():
        if isinstance(parameter.annotation, type) and is_dataclass(parameter.annotation):
            classes[parameter.name] = parameter.annotation
            hints = get_type_hints(parameter.annotation, include_extras=True)
            fields = inspect.signature(parameter.annotation).parameters.values()
            parameters += [field.replace(kind=field.KEYWORD_ONLY, annotation=hints[field.name]) for field in fields]
        else:
            parameters.append(parameter.replace(kind=parameter.KEYWORD_ONLY))

    @functools.wraps(command)
    def grouped(**values: Any) -> None:  # noqa: ANN401 - whatever the options hold
        for name, cls in classes.items():
            values[name] = cls(**{field: values.pop(field) for field in inspect.signature(cls).parameters})
        command(**values)

    grouped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    grouped.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return grouped


def run_part(recipe: Callable[..., Any], work: Work, reader: Callable[..., Any] | None = None) -> None:
    """Train a small part by a recipe, and say what came of it; what is held out is only tested for leaks."""
    from dialore.learned.examples import read_examples, refuse_leaks

    check_writable(work.out)
    train, *held = split_files(work, needed=1)
    examples = (reader or read_examples)(work.name, train, seed=work.seed)
    for path in held:
        refuse_leaks(examples, path)
    try:
        with progress("training") as step:
            part = recipe(examples, step)
    except MemoryError as error:
        message = f"not enough memory to train on {len(examples.dialogues):,} responses"
        raise InputError(message, hint="give fewer dialogues") from error
    card = part.save(work.out, examples)
    shown = Table("!measure, in percent", ">mean", ">least fold", ">greatest fold", title="Cross-validation")
    for name, figures in card["measured"].items():
        shown.add_row(name, *(f"{figures[key]:.1f}" for key in ("mean", "low", "high")))
    _show(card, work, shown)


def split_files(work: Work, needed: int = len(_SPLITS)) -> list[Path]:
    """Return the file that is trained on, and, where it is needed or there, that which is held out."""
    files = [path for split in _SPLITS for path in sorted(work.data.glob(f"{split}.json*"))[:1]]
    for split in _SPLITS[:needed]:
        if not any(path.name.startswith(split) for path in files):
            hint = f"`dialore data get {work.name} --split {split} --out FILE`"
            raise InputError(f"{work.data} has no {split}.json", hint=hint)
    return files


def run_encoder(kind: str, work: Work, base: str, tuning: Tuning, **reading: bool) -> None:
    """Train an encoder, and say what came of it; `reading` is what it reads, and how it compares."""
    if tuning.lora:
        raise InputError("--lora is for language models, not for encoders", hint="leave it out")
    from dialore.learned.examples import read_examples, refuse_leaks
    from dialore.training.encoders import train_encoder

    # A dual encoder learns from knowledge alone, too (MSDP, Appendix F).
    is_bare = kind == "dual" and "persona" not in data_set(work.name).has
    needs = ("knowledge",) if is_bare else ("persona", "plan", "knowledge")
    files = split_files(work)
    train, dev = (read_examples(work.name, path, needs=needs, seed=work.seed) for path in files)
    refuse_leaks(train, files[1])
    with progress("training") as step:
        job = Job(base, work.out, tuning, step)
        card = train_encoder(kind, job, train, dev, **reading)  # type: ignore[arg-type]
    _show_tuned(card, work)


def run_finetuning(
    kind: str,
    base: str,
    targets: Sequence[Sequence[Target]],
    output: Output,
    card: dict[str, Any],
    tokens: Sequence[str],
    tuning: Tuning,
) -> None:
    """Train on the first targets, hold out the second, and say what came of it."""
    chosen = one_of("kind", kind, KINDS)
    with progress("training") as step:
        job = Job(base, output.out, tuning, step)
        card = finetune(chosen, job, targets[0], targets[1], card, tokens=tokens)
    _show_tuned(card, output)


def _show_tuned(card: dict[str, Any], output: Output) -> None:
    loss = card.get("loss", {})  # there is no card where another process writes it
    _show(card, output, f"loss on held-out dialogues {loss['dev']:.3f} after {loss['epochs']} epochs" if loss else "")


def _show(card: dict[str, Any], output: Output, figures: Table | str) -> None:
    """Show how good a trained part is, and say where it is; nothing without a card."""
    if output.json:
        print_json({"path": str(output.out), **card})
    elif card:
        console().print(figures)
        note(f"{output.out} is written; `dialore models {output.out}` says what it is")
