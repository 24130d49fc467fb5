"""`dialore train`: parts trained on a data set's own plans and knowledge, or on rows of `dialore distill`."""

# No deferred annotations here: typer reads them.
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from typer import Argument, Context, Option

from dialore.cli.options import DATA_SETS, Json, complete, one_of, options_as, set_option
from dialore.cli.training import (
    TUNING,
    Request,
    TrainSettings,
    run_encoder,
    run_finetuning,
    run_part,
    split_files,
)
from dialore.errors import InputError, UnknownNameError
from dialore.training.generators import (
    GENERATORS,
    RECIPES,
    missing_marks,
    read_declared,
    read_targets,
    special_tokens,
    stage_targets,
)
from dialore.training.presets import PRESETS


def train(
    context: Context,
    part: Annotated[
        str,
        Argument(
            metavar="PART",
            help="planner, retriever, nli, decision, generator, stages, query or question.",
            autocompletion=complete("dialore.cli.train:part_names"),
        ),
    ],
    data: Annotated[
        str, Argument(metavar="NAME|FILE", help="The data set; of stages, the rows.", autocompletion=DATA_SETS)
    ],
    out: Annotated[Path, Option(metavar="FOLDER", help="Folder of the trained part.")],
    folder: Annotated[
        Path | None,
        Option("--data", metavar="DIR", help="Folder of the data set's train.json and dev.json, gzipped or not."),
    ] = None,
    preset: Annotated[
        str | None, Option("--as", metavar="PRESET", help=f"The settings of a paper: {', '.join(PRESETS)}.")
    ] = None,
    base: Annotated[
        str | None,
        Option(
            metavar="NAME|FOLDER|scratch",
            help="The model to start from; scratch: a small one with random weights. (default: the preset's)",
        ),
    ] = None,
    sources: Annotated[
        Path | None, Option(metavar="FILE", help="Declared sources that the generator of safari plans over.")
    ] = None,
    changes: Annotated[
        list[str] | None, set_option("dialore.cli.training:TrainSettings", "dialore settings train")
    ] = None,
    json: Json = False,
) -> None:
    """Train a part of a method from a data set, or from rows of `distill`.

    Training that was interrupted is resumed by the same command.

    [bold]Parts[/bold]
    planner    which sources a response needs: -o planning=trained:FOLDER (safari)
    retriever  ranks persona sentences and documents: -o retriever=trained:FOLDER
    nli        is a response entailed by knowledge: --set nli=trained:FOLDER (score)
    decision   is a search needed: -o decision=trained:FOLDER (scg-qp)
    generator  SAFARI's generator, or MSDP's FKG or FCM: --set recipe=fkg
    stages     one small model for the stages that `dialore distill` wrote
    query      search queries that people typed (wizard-of-internet)
    question   EDIT's open questions (coq)

    The first four are boosted trees and need no model to start from.
    `dialore models FOLDER` states how a trained part is used.

    [bold]Examples[/bold]
    dialore train planner kbp --data shared/data/kbp --out models/planner
    dialore train nli kbp --as safari-nli --data data/kbp --out models/nli
    dialore train stages rows.jsonl --base google/flan-t5-small --out models/dcrag
    dialore train generator kbp --data data/kbp --base Qwen/Qwen3-0.6B --set lora=true --out models/safari
    """
    chosen = _PARTS[one_of("part", part, [*_PARTS])]
    settings = options_as(TrainSettings, context)
    for name in settings.model_fields_set:
        if name not in chosen.settings and name != "seed":
            raise UnknownNameError(f"setting of {part}", name, [*chosen.settings, "seed"])
    if part != "stages" and folder is None:
        raise InputError("no folder of the data set is named", hint="give --data DIR")
    chosen.train(Request(part, data, folder or Path(), out, base, preset, sources, settings, json))


def part_names() -> list[str]:
    """Return the names of all parts that can be trained."""
    return [*_PARTS]


def _train_planner(request: Request) -> None:
    from dialore.learned.planner import train_planner

    request.refuse_tuning()
    run_part(partial(train_planner, context=request.settings.context), request)


def _train_decision(request: Request) -> None:
    from dialore.learned.decision import read_decisions, train_decision

    request.refuse_tuning()
    label = request.settings.label
    run_part(partial(train_decision, label=label), request, partial(read_decisions, label=label))


def _train_retriever(request: Request) -> None:
    preset, settings = request.paper, request.settings
    if _kind(request, "dual") == "trees":
        from dialore.learned.ranker import train_ranker

        request.refuse_tuning()
        run_part(train_ranker, request)
        return
    tuning = request.tuning(epochs=5, batch=32, length=96)
    run_encoder("dual", request, tuning, whole=settings.whole or preset.whole, dot=settings.dot or preset.dot)


def _train_nli(request: Request) -> None:
    negatives = request.settings.negatives
    hard = request.paper.hard if negatives is None else negatives == "hard"
    if _kind(request, "cross") == "trees":
        from dialore.learned.nli import train_nli

        request.refuse_tuning()
        run_part(partial(train_nli, hard=hard), request)
        return
    run_encoder("nli-cross", request, request.tuning(epochs=5, rate=2e-5, length=128), hard=hard)


def _kind(request: Request, encoder: str) -> str:
    """Return the kind of a retriever or NLI model: trees unless a preset or `kind` asks for an encoder."""
    default = encoder if request.preset else "trees"
    return one_of(f"kind of {request.part}", request.settings.kind or default, ("trees", encoder))


def _train_generator(request: Request) -> None:
    base = request.start
    recipe = one_of("recipe", request.settings.recipe, GENERATORS)
    declared = read_declared(request.sources)
    targets, described = read_targets(recipe, request.data, split_files(request, needed=1), declared)
    card: dict[str, Any] = {"kind": f"generator ({recipe})", "use": RECIPES[recipe].use, "data": described}
    run_finetuning("causal", base, request, targets, card, special_tokens(recipe, declared), request.tuning())


def _train_stages(request: Request) -> None:
    base = request.start
    targets, card = stage_targets(Path(request.data), whole=request.settings.whole or request.paper.whole)
    tokens = missing_marks(base, targets[0])
    tuning = request.tuning(epochs=10, length=1024)
    run_finetuning(request.settings.kind or "seq2seq", base, request, targets, card, tokens, tuning)


def _train_sequence(request: Request) -> None:
    """Train on queries or questions of a data set's train file, with those of its dev file held out."""
    base = request.start
    targets, described = read_targets(request.part, request.data, split_files(request))
    card: dict[str, Any] = {"kind": request.part, "use": RECIPES[request.part].use, "data": described}
    run_finetuning(request.settings.kind or "seq2seq", base, request, targets, card, (), request.tuning())


class _Part(NamedTuple):
    """A part that can be trained, and the settings that it takes besides the seed."""

    train: Callable[[Request], None]
    settings: tuple[str, ...]


_PARTS = {
    "planner": _Part(_train_planner, ("context",)),
    "retriever": _Part(_train_retriever, ("kind", "whole", "dot", *TUNING)),
    "nli": _Part(_train_nli, ("kind", "negatives", *TUNING)),
    "decision": _Part(_train_decision, ("label",)),
    "generator": _Part(_train_generator, ("recipe", *TUNING)),
    "stages": _Part(_train_stages, ("kind", "whole", *TUNING)),
    "query": _Part(_train_sequence, ("kind", *TUNING)),
    "question": _Part(_train_sequence, ("kind", *TUNING)),
}
