"""`dialore distill`: rows to train a small model on, of what a prompted model, people or hard matching did."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from typer import Argument, Context, Option

from dialore.cli.options import (
    METHODS,
    BaseUrl,
    Changes,
    Data,
    DataSet,
    Documents,
    Graph,
    Json,
    Limit,
    MethodOption,
    Model,
    RunSet,
    Sources,
    one_of,
    read_changes,
)
from dialore.cli.output import note, print_json
from dialore.cli.run import carry_out, run_config
from dialore.errors import InputError
from dialore.experiments import distill as distilling
from dialore.experiments.config import RunConfig
from dialore.llm.distilled import write_lines
from dialore.text import count_noun

_OFF = {"dcrag": {"thoughts": False, "cross_revision": False}}
"""Options that are switched off, as hard matching has no answer for them."""


def distill(
    context: Context,
    what: Annotated[
        str, Argument(metavar="METHOD[/STAGE]", help="Stages before the response, or one.", autocompletion=METHODS)
    ],
    out: Annotated[Path, Option(metavar="FILE", help="Where the rows go (JSONL).")],
    source: Annotated[
        list[Path] | None,
        Option("--from", metavar="RUN", help="A finished run, responses with traces, a recording; several."),
    ] = None,
    by: Annotated[str, Option(metavar="model|people|matching", help="Whose answers: see below.")] = "model",
    folder: Annotated[
        Path | None, Option("--run", metavar="FOLDER", help="Where the run is kept. (default: runs/distill-...)")
    ] = None,
    dataset: DataSet = None,
    data: Data = None,
    limit: Limit = None,
    model: Model = None,
    base_url: BaseUrl = None,
    documents: Documents = None,
    graph: Graph = None,
    sources: Sources = None,
    option: MethodOption = None,
    changes: RunSet = None,
    coq: Annotated[
        bool,
        Option("--coq", help="Of edit-questions: contexts with their fit questions, as train, dev and test in --out."),
    ] = False,
    json: Json = False,
) -> None:
    """Write what was done at a method's stages as rows to train a small model on.

    `model`: a data set is answered first, as by `dialore run`: resumed, cached;
    or the answers of finished runs are taken (`--from`). `people`: what they
    searched for in wizard-of-internet. `matching`: demands, facts and needs
    that stand between history, graph and real response, without a model.

    [bold]Examples[/bold]
    dialore distill dcrag --from runs/first --out rows.jsonl
    dialore distill weave --dataset dailydialog --set dataset.split=train --limit 2000 --documents base --out rows.jsonl
    dialore distill dcrag --by matching --dataset dailydialog --data valid.json.gz --out rows.jsonl
    """
    changed = read_changes(context, RunConfig.list_settings())
    stages = distilling.stages_of(what)
    one_of("kind of answers", by, ("model", "people", "matching"))
    if source and (by != "model" or "dataset.name" in changed.values):
        raise InputError("--from takes the answers of a finished run", hint="leave --by and the data set out")
    if coq and stages != {"edit/question-generation"}:
        raise InputError("--coq is of questions", hint="dialore distill edit-questions --coq ...")
    if coq and by != "model":
        raise InputError("--coq is of a model's questions", hint="leave --by out")
    places = source or []
    config = None if source else _distill_config(what, changed, option or [], by)
    if config is None or by == "model":
        if config is not None:
            places = [folder or Path("runs") / config.name]
            ended = carry_out(config, places[0], lambda _: None)
            note(f"{ended.ok} answered, {ended.failed} failed, {ended.before} were there: {places[0]}")
        rows = [row for path in places for row in distilling.read_answers(path)]
    else:
        work = distilling.people(config, stages) if by == "people" else distilling.match_stages(config)
        rows = asyncio.run(work)
    kept = {row.fingerprint: row for row in rows if row.stage in stages}
    if coq:
        contexts = {name: context for path in places for name, context in distilling.contexts_of(path).items()}
        splits = distilling.coq_splits(distilling.coq_entries(kept.values(), contexts))
        count = sum(write_lines(out / f"{name}.jsonl", entries) for name, entries in splits.items())
    else:
        count = write_lines(out, (row.model_dump() for row in kept.values()))
    of_stages = Counter(row.stage for row in kept.values())
    if json:
        print_json({"path": str(out), "lines": count, "rows": dict(sorted(of_stages.items()))})
    else:
        stage_counts = ", ".join(f"{name} {many:,}" for name, many in sorted(of_stages.items()))
        note(f"{count_noun(count, 'lines')} in {out}: {stage_counts}")


def _distill_config(what: str, changes: Changes, options: Sequence[str], by: str) -> RunConfig:
    """Return the run that answers; without a model, what hard matching has no answer for is switched off."""
    method = what.partition("/")[0]
    config = run_config(None, changes, [method], options)
    (system,) = config.systems
    off = _OFF.get(method, {}) if by == "matching" else {}
    changed = system.model_copy(update={"options": off | system.options})
    return config.model_copy(update={"systems": [changed], "name": f"distill-{config.name}"})
