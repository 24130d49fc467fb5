"""`dialore train`: small trained parts, from a data set's own plans and knowledge."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from dialore.cli.options import one_of
from dialore.cli.training import (
    Output,
    TuningOptions,
    Work,
    run_encoder,
    run_finetuning,
    run_part,
    split_files,
    with_dataclass_options,
)
from dialore.training.generators import (
    GENERATORS,
    RECIPES,
    missing_marks,
    read_declared,
    read_targets,
    special_tokens,
    stage_targets,
)

app = typer.Typer(no_args_is_help=True)
_Kind = Annotated[str, Option("--kind", metavar="seq2seq|causal", help="What the model to start from is.")]


@app.command("planner")
@with_dataclass_options
def planner(
    work: Work,
    context: Annotated[
        bool, Option("--context", help="Read the context alone, as SAFARI's does; no persona, no documents.")
    ] = False,
) -> None:
    """Train a planner: which sources a response needs, without a call.

    Use it with `-o planning=trained:FOLDER` of safari. Trees and thresholds
    are chosen by cross-validation on the training file, by whole dialogues;
    of a dev.json is only made sure that none of it is in there, too.

    [bold]Example[/bold]
    dialore train planner kbp --data shared/data/kbp --out models/planner
    """
    from dialore.learned.planner import train_planner

    run_part(partial(train_planner, context=context), work)


@app.command("retriever")
@with_dataclass_options
def retriever(
    work: Work,
    given: TuningOptions,
    kind: Annotated[str | None, Option(metavar="trees|dual", help="(default: trees; dual with --as)")] = None,
    whole: Annotated[
        bool, Option("--whole", help="Encoders read the whole context with its speakers, not the last 3 turns.")
    ] = False,
    dot: Annotated[
        bool, Option("--dot", help="Dual: the dot product of first tokens' states, not the cosine of mean states.")
    ] = False,
) -> None:
    """Train a ranker of persona sentences and the documents under them.

    Boosted trees; or, from --base and with a dev.json, a dual encoder
    (in-batch and hard negatives). Use it with
    `-o retriever=trained:FOLDER` of safari, or as the retriever of a declared
    persona; no torch is needed then. A dual encoder learns from knowledge
    without personas, too, as MSDP's DPR (wizard-of-wikipedia): use that with
    `--embedder onnx:FOLDER` of `dialore documents build` (--dot: `dot:FOLDER`).
    One of the whole context is asked with `-o turns=0`.

    [bold]Example[/bold]
    dialore train retriever kbp --data shared/data/kbp --out models/ranker
    """
    preset = given.preset_of("retriever")
    kind = kind or ("dual" if given.preset else "trees")
    if one_of("kind of retriever", kind, ("trees", "dual")) == "trees":
        from dialore.learned.ranker import train_ranker

        given.refuse()
        run_part(train_ranker, work)
        return
    tuning = given.tuning(work.seed, "retriever", epochs=5, batch=32, length=96)
    run_encoder("dual", work, given.base, tuning, whole=whole or preset.whole, dot=dot or preset.dot)


@app.command("nli")
@with_dataclass_options
def nli(
    work: Work,
    given: TuningOptions,
    kind: Annotated[str | None, Option(metavar="trees|cross", help="(default: trees; cross with --as)")] = None,
    negatives: Annotated[
        str | None, Option(metavar="hard|random", help="Random: the paper's alone. (default: hard; random with --as)")
    ] = None,
) -> None:
    """Train a consistency model: is a response entailed by knowledge (P.C, K.C).

    Positives are a response and what it stands on; negatives pair it with
    anything else (SAFARI, Appendix C) and, beyond the paper, with another sentence of the persona,
    another document of the dialogue, and the same with a number or name
    exchanged. Boosted trees; or, from --base and with a dev.json, a
    cross-encoder. Use it with `--set nli=trained:FOLDER` of score, or with
    `-o check=trained:FOLDER` of weave, whose citations it tests.

    [bold]Example[/bold]
    dialore train nli kbp --data shared/data/kbp --out models/nli
    """
    preset = given.preset_of("nli")
    hard = preset.hard if negatives is None else one_of("negatives", negatives, ("hard", "random")) == "hard"
    if one_of("kind of model", kind or ("cross" if given.preset else "trees"), ("trees", "cross")) == "trees":
        from dialore.learned.nli import train_nli

        given.refuse()
        run_part(partial(train_nli, hard=hard), work)
        return
    tuning = given.tuning(work.seed, "nli", epochs=5, rate=2e-5, length=128)
    run_encoder("nli-cross", work, given.base, tuning, hard=hard)


@app.command("generator")
@with_dataclass_options
def generator(
    work: Work,
    given: TuningOptions,
    recipe: Annotated[str, Option(metavar="safari|fkg|fcm", help="What it learns.")] = "safari",
    sources: Annotated[Path | None, Option(metavar="FILE", help="What safari plans over; see `respond`.")] = None,
) -> None:
    """Fine-tune a causal model: SAFARI's generator, MSDP's FKG or FCM.

    safari: plans and responds in one sequence (kbp). What the authors set is
    --as safari-chatglm (LoRA of query_key_value, r 8, rate 5e-4) or --as
    safari-belle (of LLaMA's layers, r 16, 8e-6), both by cosine after 1000
    steps, with weight decay .1. fkg: topic and history to
    knowledge; fcm: with the knowledge to the response (wizard-of-wikipedia).
    `dialore models` says how the model is used. An interrupted training
    goes on where the same command is given again; several GPUs are used under
    `accelerate launch`.

    [bold]Example[/bold]
    dialore train generator kbp --data shared/data/kbp --base Qwen/Qwen3-0.6B --lora --out models/safari
    """
    one_of("recipe", recipe, GENERATORS)
    declared = read_declared(sources)
    targets, described = read_targets(recipe, work.name, split_files(work, needed=1), declared)
    card: dict[str, Any] = {"kind": f"generator ({recipe})", "use": RECIPES[recipe].use, "data": described}
    tokens = special_tokens(recipe, declared)
    run_finetuning("causal", given.base, targets, work, card, tokens, given.tuning(work.seed, "generator"))


@app.command("decision")
@with_dataclass_options
def decision(
    work: Work, label: Annotated[str, Option(metavar="search|shift", help="What is decided.")] = "search"
) -> None:
    """Train a decision: whether a response wants a search, or comes to another topic.

    Searches are learned from what people looked up (wizard-of-internet),
    shifts from what their knowledge is about (kdconv). Use it with
    `-o decision=trained:FOLDER` of scg-qp: no call is made for it then.

    [bold]Example[/bold]
    dialore train decision wizard-of-internet --data data/woi --out models/search
    """
    from dialore.learned.decision import read_decisions, train_decision

    run_part(partial(train_decision, label=label), work, partial(read_decisions, label=label))


@app.command("stages")
@with_dataclass_options
def stages(
    rows: Annotated[Path, Argument(metavar="FILE", help="Rows of `dialore distill`.")],
    output: Output,
    given: TuningOptions,
    kind: _Kind = "seq2seq",
    whole: Annotated[bool, Option("--whole", help="Read whole prompts, and sample as they say (SCG-QP).")] = False,
) -> None:
    """Fine-tune one small model for all stages whose rows are given.

    It reads what changes in their prompts, and its answers have the shape
    that is asked for. Use it with `--set model.stages.STAGE=trained:FOLDER`,
    or with `--model trained:FOLDER` where it learned the response, too.

    [bold]Example[/bold]
    dialore train stages rows.jsonl --base google/flan-t5-small --out models/dcrag
    """
    preset = given.preset_of("stages")
    targets, card = stage_targets(rows, whole=whole or preset.whole)
    tuning = given.tuning(output.seed, "stages", epochs=10, length=1024)
    tokens = missing_marks(given.base, targets[0])
    run_finetuning(kind, given.base, targets, output, card, tokens, tuning)


@app.command("query")
@with_dataclass_options
def query(work: Work, given: TuningOptions, kind: _Kind = "seq2seq") -> None:
    """Fine-tune a query generator on what people typed (wizard-of-internet).

    Use it with `--set model.stages.query-generation=hf:FOLDER` of search-query.
    For scg-qp's, and its topic tracker, train on a model's answers:
    `dialore distill scg-qp`, then `dialore train stages`.

    [bold]Example[/bold]
    dialore train query wizard-of-internet --data data/woi --base google/flan-t5-large --out models/query
    """
    _train_sequence("query", work, given, kind)


@app.command("question")
@with_dataclass_options
def question(work: Work, given: TuningOptions, kind: _Kind = "seq2seq") -> None:
    """Fine-tune EDIT's generator of open questions (coq).

    Use it with `--set model.stages.question-generation=hf:FOLDER` and
    `-o trained=true` of edit. `dialore distill edit-questions --coq` makes
    such data of any contexts; coq-contexts are those of the paper.

    [bold]Example[/bold]
    dialore train question coq --data data/coq --base google-t5/t5-base --out models/question
    """
    _train_sequence("question", work, given, kind)


def _train_sequence(what: str, work: Work, given: TuningOptions, kind: str) -> None:
    """Train on queries or questions of a data set's train file, with those of its dev file held out."""
    targets, described = read_targets(what, work.name, split_files(work))
    card: dict[str, Any] = {"kind": what, "use": RECIPES[what].use, "data": described}
    run_finetuning(kind, given.base, targets, work, card, (), given.tuning(work.seed, what))
