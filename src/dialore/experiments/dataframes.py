"""A run in Python: scored, and as pandas DataFrames of responses, scores and comparisons."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterable
from contextlib import closing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dialore import pages
from dialore.errors import InputError, UnknownNameError, as_path, check_type, import_optional
from dialore.evaluation.base import SampleScore
from dialore.evaluation.registry import Context, load_metrics
from dialore.evaluation.report.tables import combiner, compare, values
from dialore.evaluation.statistics import as_table
from dialore.experiments.results import RunResults, describe_unfinished
from dialore.experiments.scoring import context_of, default_metrics, measure_run, system_names
from dialore.experiments.store import RunStore
from dialore.experiments.tracking import tracking
from dialore.session import AnyModel, as_model
from dialore.sources.graph import open_graph

if TYPE_CHECKING:
    from pandas import DataFrame

    from dialore.evaluation.report.data import SystemScores

_COMPARED = (
    "metric",
    "pairs",
    "difference",
    "low",
    "high",
    "p",
    "randomisation",
    "wilcoxon",
    "uncorrected",
    "is_better",
)


def load_run(folder: str | Path) -> Run:
    """Return the run in a folder that `run_experiment` or `dialore run` left; raise InputError without one."""
    path = as_path("a run's folder", folder)
    with RunStore.open(path) as store:
        if unfinished := describe_unfinished(store):
            message = "the run in %s is not finished: %s (the same `dialore run` command continues it)"
            logging.getLogger(__name__).warning(message, path, unfinished)
    return Run(path)


class Run:
    """A run on disk; each call reads it anew, so that it may go on meanwhile. Make one with `load_run`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def score(
        self,
        *metrics: str,
        judge: AnyModel = None,
        graph: str | Path | None = None,
        again: bool = False,
        log_to: str | None = None,
        **context: Any,  # noqa: ANN401 - as Context has them
    ) -> DataFrame:
        """Measure what is not measured yet, and give `scores()`.

        Args:
            metrics: their names; without any, what the experiment names, else all that need no model.
            judge: the language model that judges, as for `create_agent`.
            graph: the commonsense graph of CDP and CDF; the starter graph where None.
            again: measure what has been measured, too.
            log_to: tell MLflow or Weights & Biases (`mlflow`, `wandb`) of the scores; the one that the run was told to
                where None.
            context: further fields of `dialore.evaluation.registry.Context`, e.g. `nli`.

        Raises:
            InputError: an unknown metric or argument; as `measure_run` besides.
        """
        for name in context.keys() - Context.__dataclass_fields__.keys():
            raise UnknownNameError("argument of score", name, Context.__dataclass_fields__)
        for name in metrics:
            check_type("a metric", name, str, 'run.score("bleu-1", "distinct-2")')
        with RunStore.open(self.folder) as store, store.writing():
            config = store.facts().get("config", {})
            names = metrics or config.get("metrics") or default_metrics()
            needed = {need for metric in load_metrics(names, Context()) for need in metric.about.needs}
            model = as_model(judge)
            with closing(open_graph(graph)) if "graph" in needed else nullcontext() as opened:
                made = context_of(store, Context(graph=opened, judge=model, **context))
                await measure_run(store, load_metrics(names, made), again=again, optional=not metrics)
            if model is not None and model is not judge:
                await model.close()
            with tracking(log_to or config.get("log_to"), store) as tracked:
                tracked.log_scores(RunResults([store]))
        return self.scores()

    def responses(self) -> DataFrame:
        """Return every response, a row each, with its own value by every metric that single responses have one of."""
        rows: list[dict[str, object]] = []
        with RunStore.open(self.folder) as store:
            names, models = system_names(store), {system.number: system.model for system in store.systems()}
            single = {name: combiner(name) for name, about in store.metrics().items() if about["level"] == "response"}
            for job, dialogue, response in store.responses():
                measured = store.measures_of(job)
                row: dict[str, object] = {"system": names[job.system], "model": models[job.system]}
                row |= {"dialogue": dialogue.id, "repetition": job.repetition, "turn": dialogue.last.text}
                row |= {"reference": dialogue.reference}
                row |= response.model_dump(include={"status", "text", "error", "seconds"})
                row |= {"used": [item.text for item in response.used], **response.usage.model_dump()}
                for name, metric in single.items():
                    score = measured.get(name, SampleScore(problem="unavailable"))
                    row[name] = None if score.problem else float(values(metric, as_table([score.values]))[0])
                rows.append(row)
        return _frame(rows)

    def scores(self) -> DataFrame:
        """Return every system's figure by every metric that is scored, a row each, with its 95% interval."""
        with RunStore.open(self.folder) as store:
            _, named = self._scored(store)
            return _frame(
                {"system": name, "model": system.model, **dataclasses.asdict(score)}
                for name, system in named.items()
                for score in system.scores.values()
            )

    def compare(self, system: str, baseline: str) -> DataFrame:
        """Two systems, called as in `scores()`, by every metric, on the dialogues that both have measures of.

        The tests are a report's: `randomisation` is p of the paired randomisation test,
        `wilcoxon` that of Wilcoxon's signed-rank test where single responses have values, `p` the larger, `uncorrected`
        Wilcoxon's as papers print it.
        """
        with RunStore.open(self.folder) as store:
            results, known = self._scored(store)
            for name in (system, baseline):
                if name not in known:
                    raise UnknownNameError("system", str(name), known)
            pair = [known[system], known[baseline]]
            return _frame(
                {name: getattr(comparison, name) for name in _COMPARED}
                | {name: known[name].scores[comparison.metric].value for name in (system, baseline)}
                for comparison in compare(results, pair, pair[1], results.metrics())
            )

    def _scored(self, store: RunStore) -> tuple[RunResults, dict[str, SystemScores]]:
        if not store.metrics():
            raise InputError(f"nothing is scored in {self.folder}", hint='first: await run.score("distinct-2")')
        results = RunResults([store])
        return results, dict(zip(system_names(store).values(), results.systems(), strict=True))

    def __repr__(self) -> str:
        return f"Run({', '.join(f'{name}={value}' for name, value in self._parts().items())})"

    def _repr_html_(self) -> str:
        return pages.environment().get_template("page/parts.html.j2").render(parts=self._parts())

    def _parts(self) -> dict[str, object]:
        with RunStore.open(self.folder) as store:
            systems, metrics = ", ".join(system_names(store).values()), ", ".join(store.metrics()) or "none yet"
            counts = {"dialogues": store.size, "responses": len(store.done())}
            return {"folder": str(self.folder), "systems": systems, **counts, "metrics": metrics}


def _frame(rows: Iterable[dict[str, object]]) -> DataFrame:
    made: DataFrame = import_optional("pandas", "a DataFrame", "evaluation").DataFrame.from_records(list(rows))
    return made
