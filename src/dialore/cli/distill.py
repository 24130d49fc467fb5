"""`dialore distill`: rows to train a small model on, of what a model answered at the stages of a method."""

from collections import Counter
from pathlib import Path
from typing import Annotated

from typer import Argument, Context, Option

from dialore.cli.options import (
    METHODS,
    BaseUrl,
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
    read_changes,
)
from dialore.cli.output import note, print_json
from dialore.cli.run import carry_out, run_config
from dialore.errors import InputError
from dialore.experiments import distill as distilling
from dialore.experiments.config import RunConfig
from dialore.llm.distilled import write_lines
from dialore.text import count_noun


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

    A data set is answered first, as by `dialore run`: resumed, cached; or the
    answers of finished runs are taken (`--from`).

    [bold]Examples[/bold]
    dialore distill dcrag --from runs/first --out rows.jsonl
    dialore distill weave --dataset dailydialog --set dataset.split=train --limit 2000 --documents base --out rows.jsonl
    """
    changed = read_changes(context, RunConfig.list_settings())
    stages = distilling.stages_of(what)
    if source and "dataset.name" in changed.values:
        raise InputError("--from takes the answers of a finished run", hint="leave the data set out")
    if coq and stages != {"edit/question-generation"}:
        raise InputError("--coq is of questions", hint="dialore distill edit-questions --coq ...")
    places = source or []
    if not places:
        config = run_config(None, changed, [what.partition("/")[0]], option or [])
        config = config.model_copy(update={"name": f"distill-{config.name}"})
        places = [folder or Path("runs") / config.name]
        ended = carry_out(config, places[0], lambda _: None)
        note(f"{ended.ok} answered, {ended.failed} failed, {ended.before} were there: {places[0]}")
    rows = [row for path in places for row in distilling.read_answers(path)]
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
