"""`dialore train`: small trained parts, from a data set's own plans and knowledge."""

# No deferred annotations here: typer reads them.
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dialore.cli.options import DATA_SETS, Json, SettingsGroup, one_of, takes_settings
from dialore.cli.output import console, note, print_json, progress, table
from dialore.errors import InputError

if TYPE_CHECKING:
    from dialore.sources.trained.model import Arrays
    from dialore.training import Examples
    from dialore.training.finetune import Kind, Target, Tuning

app = typer.Typer(
    cls=SettingsGroup,
    no_args_is_help=True,
    help="Train small parts that need no language model, on a laptop's processor.",
)
_Name = Annotated[
    str, typer.Argument(metavar="NAME", help="The data set: kbp has personas and plans.", autocompletion=DATA_SETS)
]
_Data = Annotated[
    Path, typer.Option("--data", metavar="DIR", help="Where its train.json lies, and dev.json, gzipped or not.")
]
_Out = Annotated[Path, typer.Option("--out", metavar="FOLDER", help="Where the model goes.")]
_Seed = Annotated[int, typer.Option("--seed", help="The same seed and data give the same files.")]
_Kind = Annotated[str, typer.Option("--kind", metavar="seq2seq|causal", help="What the model to start from is.")]
_AnyName = Annotated[str, typer.Argument(metavar="NAME", help="The data set.", autocompletion=DATA_SETS)]
_SPLITS = ("train", "dev")
_KINDS: "tuple[Kind, ...]" = ("seq2seq", "causal")


@dataclass(frozen=True, slots=True)
class TuningOptions:
    """How a model is fine-tuned; what is not given is as the recipe has it."""

    base: Annotated[
        str,
        typer.Option(
            "--base", metavar="NAME|FOLDER|scratch", help="The model to start from, or a small one of chance."
        ),
    ] = "scratch"
    epochs: Annotated[
        float | None,
        typer.Option("--epochs", min=0.01, help="Passes over the data, at most. (default: 3; stages 10; encoders 5)"),
    ] = None
    batch: Annotated[
        int | None, typer.Option("--batch", min=1, help="Targets a step and GPU. (default: 8; retrievers 32)")
    ] = None
    accumulation: Annotated[int, typer.Option("--accumulation", min=1, help="Steps before the weights change.")] = 1
    rate: Annotated[
        float | None, typer.Option("--rate", help="The greatest learning rate. (default: 3e-4; nli 2e-5)")
    ] = None
    length: Annotated[
        int | None,
        typer.Option(
            "--length",
            min=8,
            help="Tokens of a target; older turns go where it is more. "
            "(default: 512; stages 1024; retrievers 96; nli 128)",
        ),
    ] = None
    lora: Annotated[
        bool, typer.Option("--lora", help="Train low-rank adapters, merged into the weights; not of encoders.")
    ] = False
    precision: Annotated[
        str, typer.Option("--precision", metavar="auto|fp32|bf16|fp16", help="Of the calculation.")
    ] = "auto"

    def refuse(self) -> None:
        """Raise InputError where any is given: trees have no such numbers."""
        if self != type(self)():
            raise InputError(
                "trees are not fine-tuned: --base, --epochs and the like say nothing", mend="give a --kind"
            )

    def tuning(self, seed: int, **own: float) -> "Tuning":
        """How it is trained, with a recipe's own numbers where none are given."""
        from dialore.training.finetune import Tuning

        one_of("precision", self.precision, ("auto", "fp32", "bf16", "fp16"))
        given = {name: getattr(self, name) for name in ("epochs", "batch", "rate", "length")}
        said = {**own, **{name: value for name, value in given.items() if value is not None}}
        return Tuning(accumulation=self.accumulation, lora=self.lora, precision=self.precision, seed=seed, **said)  # type: ignore[arg-type]


@app.command("planner")
def planner(name: _Name, data: _Data, out: _Out, seed: _Seed = 0, json: Json = False) -> None:
    """Train a planner: which sources a response needs, without a call.

    Use it with `-o planning=trained:FOLDER` of safari. Trees and thresholds
    are chosen by cross-validation on the training file, by whole dialogues;
    of a dev.json is only made sure that none of it is in there, too.

    [bold]Example[/bold]
    dialore train planner kbp --data shared/data/kbp --out models/planner
    """
    from dialore.training import train_planner

    _train(train_planner, name, data, out, seed, json)


@app.command("retriever")
@takes_settings
def retriever(
    name: _Name,
    data: _Data,
    out: _Out,
    given: TuningOptions,
    kind: Annotated[str, typer.Option("--kind", metavar="trees|dual|cross", help="What is trained.")] = "trees",
    seed: _Seed = 0,
    json: Json = False,
) -> None:
    """Train a ranker of persona sentences and the documents under them.

    Boosted trees; or, from --base and with a dev.json, a dual encoder
    (in-batch and hard negatives; --base static for token vectors alone) or a
    cross-encoder (denoised hard negatives). Use it with
    `-o retriever=trained:FOLDER` of safari, or as the retriever of a declared
    persona; no torch is needed then. A dual encoder learns from knowledge
    without personas, too, as MSDP's DPR (wizard-of-wikipedia): use that with
    `--embedder onnx:FOLDER` of `dialore documents build`.

    [bold]Example[/bold]
    dialore train retriever kbp --data shared/data/kbp --out models/ranker
    """
    from dialore.training import train_ranker

    if one_of("kind of retriever", kind, ("trees", "dual", "cross")) == "trees":
        given.refuse()
        _train(train_ranker, name, data, out, seed, json)
        return
    tuning = given.tuning(seed, epochs=5, batch=32, length=96)
    _train_encoder(kind, name, data, out, given.base, tuning, json)


@app.command("nli")
@takes_settings
def nli(
    name: _Name,
    data: _Data,
    out: _Out,
    given: TuningOptions,
    kind: Annotated[str, typer.Option("--kind", metavar="trees|cross", help="What is trained.")] = "trees",
    seed: _Seed = 0,
    json: Json = False,
) -> None:
    """Train a consistency model: is a response entailed by knowledge (P.C, K.C).

    Positives are a response and what it stands on; negatives pair it with
    anything else (SAFARI, Appendix C), with another sentence of the persona,
    another document of the dialogue, and the same with a number or name
    exchanged. Boosted trees; or, from --base and with a dev.json, a
    cross-encoder. Use it with `--nli trained:FOLDER` of score, or with
    `-o check=trained:FOLDER` of weave, whose citations it tests.

    [bold]Example[/bold]
    dialore train nli kbp --data shared/data/kbp --out models/nli
    """
    from dialore.training import train_nli

    if one_of("kind of model", kind, ("trees", "cross")) == "trees":
        given.refuse()
        _train(train_nli, name, data, out, seed, json)
        return
    tuning = given.tuning(seed, epochs=5, rate=2e-5, length=128)
    _train_encoder("nli-cross", name, data, out, given.base, tuning, json)


@app.command("generator")
@takes_settings
def generator(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The data set.", autocompletion=DATA_SETS)],
    data: _Data,
    out: _Out,
    given: TuningOptions,
    recipe: Annotated[str, typer.Option("--recipe", metavar="safari|fkg|fcm", help="What it learns.")] = "safari",
    seed: _Seed = 0,
    json: Json = False,
) -> None:
    """Fine-tune a causal model: SAFARI's generator, MSDP's FKG or FCM.

    safari: plans and responds in one sequence (kbp); the authors' settings
    are the defaults, theirs of LoRA with --lora. fkg: topic and history to
    knowledge; fcm: with the knowledge to the response (wizard-of-wikipedia).
    `dialore models show` says how the model is used. An interrupted training
    goes on where the same command is given again; several GPUs are used under
    `accelerate launch`.

    [bold]Example[/bold]
    dialore train generator kbp --data shared/data/kbp --base Qwen/Qwen3-0.6B --lora --out models/safari
    """
    from dialore.training.generators import RECIPES, read_targets

    one_of("recipe", recipe, [*RECIPES])
    targets, described = read_targets(recipe, name, _files(name, data, needed=1))
    card: dict[str, Any] = {"kind": f"generator ({recipe})", "use": RECIPES[recipe].use, "data": described}
    _finetune("causal", given.base, targets, out, card, RECIPES[recipe].tokens, given.tuning(seed), json)


@app.command("decision")
def decision(
    name: _AnyName,
    data: _Data,
    out: _Out,
    label: Annotated[str, typer.Option("--label", metavar="search|shift", help="What is decided.")] = "search",
    seed: _Seed = 0,
    json: Json = False,
) -> None:
    """Train a decision: whether a response wants a search, or comes to another topic.

    Searches are learned from what people looked up (wizard-of-internet),
    shifts from what their knowledge is about (kdconv). Use it with
    `-o decision=trained:FOLDER` of scg-qp: no call is made for it then.

    [bold]Example[/bold]
    dialore train decision wizard-of-internet --data data/woi --out models/search
    """
    from dialore.training import read_labelled, train_decision

    _train(train_decision, name, data, out, seed, json, partial(read_labelled, label=label))


@app.command("stages")
@takes_settings
def stages(
    rows: Annotated[Path, typer.Argument(metavar="FILE", help="Rows of `dialore distill`.")],
    out: _Out,
    given: TuningOptions,
    kind: _Kind = "seq2seq",
    seed: _Seed = 0,
    json: Json = False,
) -> None:
    """Fine-tune one small model for all stages whose rows are given.

    It reads what changes in their prompts, and its answers have the shape
    that is asked for. Use it with `--stage-model STAGE=trained:FOLDER`,
    or with `--model trained:FOLDER` where it learned the response, too.

    [bold]Example[/bold]
    dialore train stages rows.jsonl --base google/flan-t5-small --out models/dcrag
    """
    from dialore.training.stages import USES, lacking, stage_targets

    targets, card = stage_targets(rows)
    card = {"kind": "stages", "use": USES["stages"], **card}
    tuning, tokens = given.tuning(seed, epochs=10, length=1024), lacking(given.base, targets[0])
    _finetune(one_of("kind", kind, _KINDS), given.base, targets, out, card, tokens, tuning, json)


@app.command("query")
@takes_settings
def query(
    name: _AnyName,
    data: _Data,
    out: _Out,
    given: TuningOptions,
    kind: _Kind = "seq2seq",
    seed: _Seed = 0,
    json: Json = False,
) -> None:
    """Fine-tune a query generator on what people typed (wizard-of-internet).

    Use it with `--stage-model query-generation=hf:FOLDER` of search-query.
    For scg-qp's, and its topic tracker, train on a model's answers:
    `dialore distill scg-qp`, then `dialore train stages`.

    [bold]Example[/bold]
    dialore train query wizard-of-internet --data data/woi --base google/flan-t5-large --out models/query
    """
    _sequence("query", name, data, out, kind, given.base, given.tuning(seed), json)


@app.command("question")
@takes_settings
def question(
    name: _AnyName,
    data: _Data,
    out: _Out,
    given: TuningOptions,
    kind: _Kind = "seq2seq",
    seed: _Seed = 0,
    json: Json = False,
) -> None:
    """Fine-tune EDIT's generator of open questions (coq).

    Use it with `--stage-model question-generation=hf:FOLDER` and
    `-o trained=true` of edit. `dialore distill edit/question-generation --coq`
    makes such data of any contexts.

    [bold]Example[/bold]
    dialore train question coq --data data/coq --base google-t5/t5-base --out models/question
    """
    _sequence("question", name, data, out, kind, given.base, given.tuning(seed), json)


def _sequence(what: str, name: str, data: Path, out: Path, kind: str, base: str, tuning: "Tuning", json: bool) -> None:
    """Train on queries or questions of a data set's train file, with those of its dev file held out."""
    from dialore.training.stages import USES, data_targets

    *targets, described = data_targets(what, name, _files(name, data))
    card = {"kind": what, "use": USES[what], "data": described}
    _finetune(one_of("kind", kind, _KINDS), base, targets, out, card, (), tuning, json)


def _train(
    recipe: "Callable[[Any, Any], tuple[dict[str, Any], Arrays]]",
    name: str,
    data: Path,
    out: Path,
    seed: int,
    json: bool,
    reader: "Callable[..., Examples] | None" = None,
) -> None:
    from dialore.sources.trained.model import check_place
    from dialore.training import read_examples, refuse_leaks, save_trained

    check_place(out)
    train, *held = _files(name, data, needed=1)
    examples = (reader or read_examples)(name, train, seed=seed)
    for path in held:
        refuse_leaks(examples, path)
    try:
        with progress("training") as step:
            card, arrays = recipe(examples, step)
    except MemoryError as error:
        message = f"not enough memory to train on {len(examples.dialogues):,} responses"
        raise InputError(message, mend="give fewer dialogues") from error
    card = save_trained(out, examples, card, arrays)
    if json:
        print_json({"path": str(out), **card})
        return
    show_measured(card)
    note(f"{out} is written; `dialore models show {out}` says what it is")


def _examples(name: str, data: Path, seed: int, needs: "Sequence[str]") -> "list[Examples]":
    """What is trained on, and what is held out; no dialogue is in both."""
    from dialore.training import read_examples, refuse_leaks

    files = _files(name, data)
    train, dev = (read_examples(name, path, needs=needs, seed=seed) for path in files)
    refuse_leaks(train, files[1])
    return [train, dev]


def _files(name: str, data: Path, needed: int = len(_SPLITS)) -> list[Path]:
    """The file that is trained on, and, where it is needed or there, that which is held out."""
    found = [path for split in _SPLITS for path in sorted(data.glob(f"{split}.json*"))[:1]]
    for split in _SPLITS[:needed]:
        if not any(path.name.startswith(split) for path in found):
            mend = f"`dialore data get {name} --split {split} --out FILE`"
            raise InputError(f"{data} has no {split}.json", mend=mend)
    return found


def _train_encoder(
    kind: str,
    name: str,
    data: Path,
    out: Path,
    base: str,
    tuning: "Tuning",
    json: bool,
) -> None:
    """Train an encoder, and say what came of it."""
    if tuning.lora:
        raise InputError("--lora is for language models, not for encoders", mend="leave it out")
    from dialore.datasets import data_set
    from dialore.training.encoders import train_encoder

    # A dual encoder learns from knowledge alone, too (MSDP, Appendix F).
    is_bare = kind == "dual" and "persona" not in data_set(name).has
    needs = ("knowledge",) if is_bare else ("persona", "plan", "knowledge")
    train, dev = _examples(name, data, tuning.seed, needs)
    with progress("training") as step:
        card = train_encoder(kind, base, train, dev, out, tuning, step)  # type: ignore[arg-type]
    _show_tuned(card, out, json)


def _finetune(
    kind: "Kind",
    base: str,
    targets: "Sequence[Sequence[Target]]",
    out: Path,
    card: "dict[str, Any]",
    tokens: "Sequence[str]",
    tuning: "Tuning",
    json: bool,
) -> None:
    """Train on the first targets, hold out the second, and say what came of it."""
    from dialore.training.finetune import finetune

    with progress("training") as step:
        card = finetune(kind, base, targets[0], targets[1], out, card, tokens=tokens, tuning=tuning, step=step)
    _show_tuned(card, out, json)


def _show_tuned(card: "dict[str, Any]", out: Path, json: bool) -> None:
    if json:
        print_json({"path": str(out), **card})
    elif card:
        loss = card["loss"]
        console().print(f"loss on held-out dialogues {loss['dev']:.3f} after {loss['epochs']} epochs")
        note(f"{out} is written; `dialore models show {out}` says what it is")


def show_measured(card: "dict[str, Any]") -> None:
    """A model's figures of cross-validation."""
    shown = table("!measure, in percent", ">mean", ">least fold", ">greatest fold", title="Cross-validation")
    for name, one in card["measured"].items():
        shown.add_row(name, *(f"{one[key]:.1f}" for key in ("mean", "low", "high")))
    console().print(shown)
