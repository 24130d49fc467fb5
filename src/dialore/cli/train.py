"""`dialore train`: small trained parts, from a data set's own plans and knowledge."""

# No deferred annotations here: typer reads them.
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from dialore.cli.options import DATA_SETS, Json, SettingsGroup, one_of, takes_settings
from dialore.cli.training import KINDS, TuningOptions, run_encoder, run_finetuning, run_part, run_sequence, split_files

app = typer.Typer(
    cls=SettingsGroup,
    no_args_is_help=True,
    help="Train small parts that need no language model, on a laptop's processor.",
)
_Name = Annotated[
    str, Argument(metavar="NAME", help="The data set: kbp has personas and plans.", autocompletion=DATA_SETS)
]
_Data = Annotated[
    Path, Option("--data", metavar="DIR", help="Where its train.json lies, and dev.json, gzipped or not.")
]
_Out = Annotated[Path, Option("--out", metavar="FOLDER", help="Where the model goes.")]
_Seed = Annotated[int, Option("--seed", help="The same seed and data give the same files.")]
_Kind = Annotated[str, Option("--kind", metavar="seq2seq|causal", help="What the model to start from is.")]
_AnyName = Annotated[str, Argument(metavar="NAME", help="The data set.", autocompletion=DATA_SETS)]


@app.command("planner")
def planner(
    name: _Name,
    data: _Data,
    out: _Out,
    context: Annotated[
        bool, Option("--context", help="Read the context alone, as SAFARI's does; no persona, no documents.")
    ] = False,
    seed: _Seed = 0,
    json: Json = False,
) -> None:
    """Train a planner: which sources a response needs, without a call.

    Use it with `-o planning=trained:FOLDER` of safari. Trees and thresholds
    are chosen by cross-validation on the training file, by whole dialogues;
    of a dev.json is only made sure that none of it is in there, too.

    [bold]Example[/bold]
    dialore train planner kbp --data shared/data/kbp --out models/planner
    """
    from dialore.training import train_planner

    run_part(partial(train_planner, context=context), name, data, out, seed, json)


@app.command("retriever")
@takes_settings
def retriever(
    name: _Name,
    data: _Data,
    out: _Out,
    given: TuningOptions,
    kind: Annotated[
        str | None, Option(metavar="trees|dual|cross", help="What is trained. (default: trees; dual with --as)")
    ] = None,
    whole: Annotated[
        bool, Option("--whole", help="Encoders read the whole context with its speakers, not the last 3 turns.")
    ] = False,
    dot: Annotated[
        bool, Option("--dot", help="Dual: the dot product of first tokens' states, not the cosine of mean states.")
    ] = False,
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
    `--embedder onnx:FOLDER` of `dialore documents build` (--dot: `dot:FOLDER`).
    One of the whole context is asked with `-o turns=0`. RocketQAv2's
    checkpoint is a dual encoder, too; the cross-encoder is ours.

    [bold]Example[/bold]
    dialore train retriever kbp --data shared/data/kbp --out models/ranker
    """
    from dialore.training import train_ranker

    preset = given.preset_of("retriever")
    kind = kind or ("dual" if given.preset else "trees")
    if one_of("kind of retriever", kind, ("trees", "dual", "cross")) == "trees":
        given.refuse()
        run_part(train_ranker, name, data, out, seed, json)
        return
    tuning = given.tuning(seed, "retriever", epochs=5, batch=32, length=96)
    run_encoder(kind, name, data, out, given.base, tuning, json, whole=whole or preset.whole, dot=dot or preset.dot)


@app.command("nli")
@takes_settings
def nli(
    name: _Name,
    data: _Data,
    out: _Out,
    given: TuningOptions,
    kind: Annotated[
        str | None, Option(metavar="trees|cross", help="What is trained. (default: trees; cross with --as)")
    ] = None,
    negatives: Annotated[
        str | None, Option(metavar="hard|random", help="Random: the paper's alone. (default: hard; random with --as)")
    ] = None,
    seed: _Seed = 0,
    json: Json = False,
) -> None:
    """Train a consistency model: is a response entailed by knowledge (P.C, K.C).

    Positives are a response and what it stands on; negatives pair it with
    anything else (SAFARI, Appendix C) and, beyond the paper, with another sentence of the persona,
    another document of the dialogue, and the same with a number or name
    exchanged. Boosted trees; or, from --base and with a dev.json, a
    cross-encoder. Use it with `--nli trained:FOLDER` of score, or with
    `-o check=trained:FOLDER` of weave, whose citations it tests.

    [bold]Example[/bold]
    dialore train nli kbp --data shared/data/kbp --out models/nli
    """
    from dialore.training import train_nli

    preset = given.preset_of("nli")
    hard = preset.hard if negatives is None else one_of("negatives", negatives, ("hard", "random")) == "hard"
    if one_of("kind of model", kind or ("cross" if given.preset else "trees"), ("trees", "cross")) == "trees":
        given.refuse()
        run_part(partial(train_nli, hard=hard), name, data, out, seed, json)
        return
    tuning = given.tuning(seed, "nli", epochs=5, rate=2e-5, length=128)
    run_encoder("nli-cross", name, data, out, given.base, tuning, json, hard=hard)


@app.command("generator")
@takes_settings
def generator(
    name: _AnyName,
    data: _Data,
    out: _Out,
    given: TuningOptions,
    recipe: Annotated[str, Option(metavar="safari|fkg|fcm", help="What it learns.")] = "safari",
    sources: Annotated[Path | None, Option(metavar="FILE", help="What safari plans over; see `respond`.")] = None,
    seed: _Seed = 0,
    json: Json = False,
) -> None:
    """Fine-tune a causal model: SAFARI's generator, MSDP's FKG or FCM.

    safari: plans and responds in one sequence (kbp). What the authors set is
    --as safari-chatglm (LoRA of query_key_value, r 8, rate 5e-4) or --as
    safari-belle (of LLaMA's layers, r 16, 8e-6), both by cosine after 1000
    steps, with weight decay .1. fkg: topic and history to
    knowledge; fcm: with the knowledge to the response (wizard-of-wikipedia).
    `dialore models show` says how the model is used. An interrupted training
    goes on where the same command is given again; several GPUs are used under
    `accelerate launch`.

    [bold]Example[/bold]
    dialore train generator kbp --data shared/data/kbp --base Qwen/Qwen3-0.6B --lora --out models/safari
    """
    from dialore.training.generators import RECIPES, declared_in, read_targets, special_tokens

    one_of("recipe", recipe, [*RECIPES])
    declared = declared_in(sources)
    targets, described = read_targets(recipe, name, split_files(name, data, needed=1), declared)
    card: dict[str, Any] = {"kind": f"generator ({recipe})", "use": RECIPES[recipe].use, "data": described}
    tokens = special_tokens(recipe, declared)
    run_finetuning("causal", given.base, targets, out, card, tokens, given.tuning(seed, "generator"), json)


@app.command("decision")
def decision(
    name: _AnyName,
    data: _Data,
    out: _Out,
    label: Annotated[str, Option(metavar="search|shift", help="What is decided.")] = "search",
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

    run_part(train_decision, name, data, out, seed, json, partial(read_labelled, label=label))


@app.command("stages")
@takes_settings
def stages(
    rows: Annotated[Path, Argument(metavar="FILE", help="Rows of `dialore distill`.")],
    out: _Out,
    given: TuningOptions,
    kind: _Kind = "seq2seq",
    whole: Annotated[bool, Option("--whole", help="Read whole prompts, and sample as they say (SCG-QP).")] = False,
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

    targets, card = stage_targets(rows, whole=whole)
    card = {"kind": "stages", "use": USES["stages"], **card}
    tuning, tokens = given.tuning(seed, epochs=10, length=1024), lacking(given.base, targets[0])
    run_finetuning(one_of("kind", kind, KINDS), given.base, targets, out, card, tokens, tuning, json)


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
    run_sequence("query", name, data, out, kind, given.base, given.tuning(seed), json)


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
    `-o trained=true` of edit. `dialore distill edit-questions --coq` makes
    such data of any contexts; coq-contexts are those of the paper.

    [bold]Example[/bold]
    dialore train question coq --data data/coq --base google-t5/t5-base --out models/question
    """
    run_sequence("question", name, data, out, kind, given.base, given.tuning(seed), json)
