"""Results of a made-up run, for tests of reports and of sheets: known figures, awkward names, hostile texts."""

from __future__ import annotations

import base64
import gzip
import json
import math
import random

from dialore.dialogue import Dialogue
from dialore.evaluation.base import SampleScore, Score
from dialore.evaluation.report.data import ScoredResponse, SystemScores
from dialore.evaluation.report.tables import combiner
from dialore.knowledge import Fact, Knowledge
from dialore.llm.model import Usage
from dialore.response import Citation, Demands, Response, StageTrace

EVIL = "</script><script>alert('x')</script><img src=x onerror=alert(1)> & 50% of $5_{a} #1 ~ ^ \\ | *b* NaN"
COUNT = 40


class MadeUp:
    """Implements `dialore.evaluation.report.data.Results` in memory."""

    def __init__(self, systems, responses, metrics=("f1", "cdp", "kf1"), title="Made up"):
        self.title, self._systems, self._responses = title, systems, responses
        self.preferred = []
        self._metrics = [combiner(name).about for name in metrics]
        self.facts = {"run": {"name": "made-up", "about": "A test.", "config": {"dataset": {"seed": 3}}}}
        self.facts["run"] |= {"versions": {"dialore": "0.1.0"}, "prompts": {"dcrag/x.en": EVIL.replace("NaN", "")}}

    def systems(self):
        return self._systems

    def metrics(self):
        return self._metrics

    def measures(self, system, metric):
        return {
            (each.dialogue.id, each.repetition): each.measures[metric].values
            for each in self._responses[id(system)]
            if metric in each.measures and each.measures[metric].problem is None
        }

    def judged(self):
        return self.preferred

    def responses(self, system):
        yield from self._responses[id(system)]


def response_of(number, method, *, text, facts=0, failed=False):
    given = [
        Knowledge.of_fact(Fact("tea", "HasA", f"leaf {n}"), f"tea has leaf {n}", 0.5).model_copy(
            update={"used": n == 0}
        )
        for n in range(facts)
    ]
    stage = {"model": "m", "seconds": 0.5, "messages": [{"role": "user", "content": EVIL * 2}], "completion": EVIL}
    outcome = "unparsed" if number == 1 else "ok"
    return Response(
        id=f"d{number}",
        method=method,
        status="failed" if failed else "ok",
        text="" if failed else text,
        error="the endpoint broke" if failed else None,
        knowledge=given,
        citations=[Citation(start=0, end=5, knowledge=given[0].id)] if given and not failed else [],
        demands=Demands(explicit=["tea"]),
        usage=Usage(calls=2, prompt_tokens=100, completion_tokens=10),
        seconds=1.0 + number,
        trace=[StageTrace(stage="generation", outcome=outcome, notes=[EVIL], **stage)],
    )


def made_up(*, shift=0.2, models=("m",), datasets=("daily",), text="Tea is nice.", fails=True):
    """`vanilla`, `dcrag` better by `shift` on F1, and its ablation; CDP is the same for all but one dialogue."""
    systems, responses = [], {}
    for dataset in datasets:
        for model in models:
            for name, method, options, gain in (
                ("vanilla", "vanilla", {}, 0.0),
                ("dcrag", "dcrag", {}, shift),
                ("dcrag (top=5)", "dcrag", {"top": 5}, shift / 2),
            ):
                draw = random.Random(7)
                answers = []
                for number in range(COUNT):
                    base = 0.3 + 0.1 * draw.random()
                    failed = fails and name == "vanilla" and number == 2
                    response = response_of(
                        number,
                        method,
                        text=f"{text} {name} {number}",
                        facts=number % 4 * bool(options or gain),
                        failed=failed,
                    )
                    dialogue = Dialogue.model_validate(
                        {"id": f"d{number}", "language": "zh" if number == 5 else "en", "turns": ["Hi", "Hello", EVIL]}
                    )
                    measures = {
                        "f1": SampleScore((base + gain + 0.01 * draw.random(),)),
                        "cdp": SampleScore((float(number % 2),)),
                        "kf1": SampleScore(problem="unavailable", reason="the dialogue has no gold knowledge"),
                    }
                    if failed:
                        measures = {
                            x: SampleScore(problem="unavailable", reason="the response failed") for x in measures
                        }
                    answers.append(ScoredResponse(dialogue, response, measures))
                scores = {each: _score(each, answers) for each in ("f1", "cdp", "kf1")}
                system = SystemScores(name, method, options, model, dataset, "made-up", scores)
                system.totals.update(
                    {"calls": 80.0, "prompt_tokens": 4000.0, "completion_tokens": 400.0, "cached": 8.0}
                )
                systems.append(system)
                responses[id(system)] = answers
    return MadeUp(systems, responses)


def _score(metric, answers):
    found = [each.measures[metric] for each in answers]
    values = [each.values[0] for each in found if each.problem is None]
    missing = len(found) - len(values)
    problems = {"unavailable": missing} if missing else {}
    reason = f"{next(each.reason for each in found if each.problem)} ({missing})" if missing else ""
    if not values:
        return Score(metric, None, problems=problems, reason=reason)
    mean = math.fsum(values) / len(values)
    return Score(metric, mean, mean - 0.02, mean + 0.02, len(values), problems, reason)


def unpack(text):
    """What `dialore.evaluation.report.build.pack` was given."""
    return json.loads(gzip.decompress(base64.b64decode(text)))
