"""`dialore train`: small trained parts, from a data set's own plans and knowledge."""

# No deferred annotations here: typer reads them.
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dialore.cli.options import DATA_SETS, Json, one_of
from dialore.cli.output import console, note, print_json, progress, table
from dialore.errors import InputError

if TYPE_CHECKING:
    from dialore.sources.trained.model import Arrays
    from dialore.training import Examples
    from dialore.training.finetune import Kind, Target, Tuning

app = typer.Typer(no_args_is_help=True, help="Train small parts that need no language model, on a laptop's processor.")
_Name = Annotated[
    str, typer.Argument(metavar="NAME", help="The data set, with personas and plans: kbp.", autocompletion=DATA_SETS)
]
_Data = Annotated[
    Path, typer.Option("--data", metavar="DIR", help="Where its train.json lies, and dev.json, gzipped or not.")
]
_Out = Annotated[Path, typer.Option("--out", metavar="FOLDER", help="Where the model goes.")]
_Seed = Annotated[int, typer.Option("--seed", help="The same seed and data give the same files.")]
_Base = Annotated[
    str,
    typer.Option("--base", metavar="NAME|FOLDER|scratch", help="The model to start from, or a small one of chance."),
]
_Epochs = Annotated[float, typer.Option("--epochs", min=0.01, help="Passes over the training file, at most.")]
_Batch = Annotated[int, typer.Option("--batch", min=1, help="Targets a step and GPU.")]
_Accumulation = Annotated[int, typer.Option("--accumulation", min=1, help="Steps before the weights change.")]
_Rate = Annotated[float, typer.Option("--rate", help="The greatest learning rate.")]
_Length = Annotated[int, typer.Option("--length", min=8, help="Tokens of a target; older turns go where it is more.")]
_Lora = Annotated[bool, typer.Option("--lora", help="Train low-rank adapters, merged into the weights at the end.")]
_Precision = Annotated[str, typer.Option("--precision", metavar="auto|fp32|bf16|fp16", help="Of the calculation.")]
_Kind = Annotated[str, typer.Option("--kind", metavar="seq2seq|causal", help="What the model to start from is.")]
_AnyName = Annotated[str, typer.Argument(metavar="NAME", help="The data set.", autocompletion=DATA_SETS)]
_SPLITS = ("train", "dev")
_KINDS: "tuple[Kind, ...]" = ("seq2seq", "causal")


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
def retriever(
    name: _Name,
    data: _Data,
    out: _Out,
    kind: Annotated[str, typer.Option("--kind", metavar="trees|dual|cross", help="What is trained.")] = "trees",
    base: _Base = "scratch",
    epochs: _Epochs = 5,
    batch: _Batch = 32,
    rate: _Rate = 3e-4,
    length: _Length = 96,
    precision: _Precision = "auto",
    seed: _Seed = 0,
    json: Json = False,
) -> None:
    """Train a ranker of persona sentences and the documents under them.

    Boosted trees; or, from --base and with a dev.json, a dual encoder
    (in-batch and hard negatives; --base static for token vectors alone) or a
    cross-encoder (denoised hard negatives). Use it with
    `-o retriever=trained:FOLDER` of safari, or as the retriever of a declared
    persona; no torch is needed then.

    [bold]Example[/bold]
    dialore train retriever kbp --data shared/data/kbp --out models/ranker
    """
    from dialore.training import train_ranker

    if one_of("kind of retriever", kind, ("trees", "dual", "cross")) == "trees":
        _train(train_ranker, name, data, out, seed, json)
        return
    tuning = _tuning(epochs, batch, 1, rate, length, False, precision, seed)
    _train_encoder(kind, name, data, out, base, tuning, json)


@app.command("nli")
def nli(
    name: _Name,
    data: _Data,
    out: _Out,
    kind: Annotated[str, typer.Option("--kind", metavar="trees|cross", help="What is trained.")] = "trees",
    base: _Base = "scratch",
    epochs: _Epochs = 5,
    batch: _Batch = 8,
    rate: _Rate = 2e-5,
    length: _Length = 128,
    precision: _Precision = "auto",
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
        _train(train_nli, name, data, out, seed, json)
        return
    tuning = _tuning(epochs, batch, 1, rate, length, False, precision, seed)
    _train_encoder("nli-cross", name, data, out, base, tuning, json)


@app.command("generator")
def generator(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The data set.", autocompletion=DATA_SETS)],
    data: _Data,
    out: _Out,
    recipe: Annotated[str, typer.Option("--recipe", metavar="safari|fkg|fcm", help="What it learns.")] = "safari",
    base: _Base = "scratch",
    epochs: _Epochs = 3,
    batch: _Batch = 8,
    accumulation: _Accumulation = 1,
    rate: _Rate = 3e-4,
    length: _Length = 512,
    lora: _Lora = False,
    precision: _Precision = "auto",
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
    paths = [path for split in _SPLITS for path in sorted(data.glob(f"{split}.json*"))[:1]]
    if not paths or not paths[0].name.startswith("train"):
        raise InputError(f"{data} has no train.json", mend=f"`dialore data get {name} --split train --out FILE`")
    targets, described = read_targets(recipe, name, paths)
    tuning = _tuning(epochs, batch, accumulation, rate, length, lora, precision, seed)
    card: dict[str, Any] = {"kind": f"generator ({recipe})", "use": RECIPES[recipe].use, "data": described}
    _finetune("causal", base, targets, out, card, RECIPES[recipe].tokens, tuning, json)


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
def stages(
    rows: Annotated[Path, typer.Argument(metavar="FILE", help="Rows of `dialore distill`.")],
    out: _Out,
    kind: _Kind = "seq2seq",
    base: _Base = "scratch",
    epochs: _Epochs = 10,
    batch: _Batch = 8,
    accumulation: _Accumulation = 1,
    rate: _Rate = 3e-4,
    length: _Length = 1024,
    lora: _Lora = False,
    precision: _Precision = "auto",
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
    tuning = _tuning(epochs, batch, accumulation, rate, length, lora, precision, seed)
    card = {"kind": "stages", "use": USES["stages"], **card}
    _finetune(one_of("kind", kind, _KINDS), base, targets, out, card, lacking(base, targets[0]), tuning, json)


@app.command("query")
def query(
    name: _AnyName,
    data: _Data,
    out: _Out,
    kind: _Kind = "seq2seq",
    base: _Base = "scratch",
    epochs: _Epochs = 3,
    batch: _Batch = 8,
    accumulation: _Accumulation = 1,
    rate: _Rate = 3e-4,
    length: _Length = 512,
    lora: _Lora = False,
    precision: _Precision = "auto",
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
    tuning = _tuning(epochs, batch, accumulation, rate, length, lora, precision, seed)
    _sequence("query", name, data, out, kind, base, tuning, json)


@app.command("question")
def question(
    name: _AnyName,
    data: _Data,
    out: _Out,
    kind: _Kind = "seq2seq",
    base: _Base = "scratch",
    epochs: _Epochs = 3,
    batch: _Batch = 8,
    accumulation: _Accumulation = 1,
    rate: _Rate = 3e-4,
    length: _Length = 512,
    lora: _Lora = False,
    precision: _Precision = "auto",
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
    tuning = _tuning(epochs, batch, accumulation, rate, length, lora, precision, seed)
    _sequence("question", name, data, out, kind, base, tuning, json)


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
    found = {split: path for split in _SPLITS for path in data.glob(f"{split}.json*")}
    if "train" not in found:
        raise InputError(f"{data} has no train.json", mend=f"`dialore data get {name} --split train --out FILE`")
    examples = (reader or read_examples)(name, found["train"], seed=seed)
    if "dev" in found:
        refuse_leaks(examples, found["dev"])
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


def _examples(name: str, data: Path, seed: int) -> "list[Examples]":
    """What is trained on, and what is held out; no dialogue is in both."""
    from dialore.training import read_examples, refuse_leaks

    files = _files(name, data)
    train = read_examples(name, files[0], seed=seed)
    refuse_leaks(train, files[1])
    return [train, read_examples(name, files[1], seed=seed)]


def _files(name: str, data: Path) -> list[Path]:
    """The file that is trained on, and that which is held out."""
    found = {split: path for split in _SPLITS for path in data.glob(f"{split}.json*")}
    for split in _SPLITS:
        if split not in found:
            mend = f"`dialore data get {name} --split {split} --out FILE`"
            raise InputError(f"{data} has no {split}.json", mend=mend)
    return [found[split] for split in _SPLITS]


def _tuning(
    epochs: float, batch: int, accumulation: int, rate: float, length: int, lora: bool, precision: str, seed: int
) -> "Tuning":
    from dialore.training.finetune import Tuning

    one_of("precision", precision, ("auto", "fp32", "bf16", "fp16"))
    return Tuning(epochs, batch, accumulation, rate, length, lora, precision=precision, seed=seed)  # type: ignore[arg-type]


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
    from dialore.training.encoders import train_encoder

    train, dev = _examples(name, data, tuning.seed)
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
