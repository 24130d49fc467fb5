"""Judging a run's systems: kept in the run, resumed, judged anew where a response changed."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from dialore.dialogue import Dialogue
from dialore.errors import BudgetError, ModelError
from dialore.evaluation.judges.asking import JudgeClient
from dialore.evaluation.judges.comparing import JointJudge, rate_of
from dialore.experiments.results import RunResults
from dialore.experiments.scoring import compare_systems, load_preferences, measure_jointly, measure_run
from dialore.experiments.store import Job, RunStore, System
from dialore.response import Response
from tests.evaluation.test_judges_comparing import ByLength, Opinionated, longer


@pytest.fixture
def store(tmp_path):
    with filled(tmp_path / "run") as made:
        yield made


@contextmanager
def filled(folder, mark="d"):
    """Six dialogues; system 0 says ever more, system 1 always as much, system 2 failed on the last."""
    with RunStore.create(folder) as made:
        systems = [System(number, name, "vanilla", {}, "m") for number, name in enumerate(("grows", "stays", "fails"))]
        made.set_up({}, systems, [Dialogue(id=f"{mark}{n}", turns=[f"Number {n}."]) for n in range(6)])
        for n in range(6):
            for system, text in enumerate(("x" * (n + 1), "x" * 4, "x")):
                failed = system == 2 and n == 5
                response = Response(
                    id=f"d{n}", method="m", text="" if failed else text, status="failed" if failed else "ok"
                )
                made.add(Job(n, system), response)
        yield made


async def outcomes(store, model, pair=(0, 1), criteria=("overall",), **rest):
    with store.writing():
        found = await compare_systems(store, JudgeClient(model), pair, criteria=criteria, **rest)
    return {name: [one.outcome for one in some] for name, some in found.items()}


async def test_what_is_kept_is_not_asked_again(store):
    first, second, third = Opinionated(longer), Opinionated(longer), Opinionated(longer)
    wanted = ["loss"] * 3 + ["tie"] + ["win"] * 2
    assert await outcomes(store, first) == {"overall": wanted}
    assert len(first.asked) == 10  # the fourth pair is equal
    assert await outcomes(store, second) == {"overall": wanted}
    assert not second.asked
    mirrored = [{"win": "loss", "loss": "win", "tie": "tie"}[one] for one in wanted]
    assert await outcomes(store, third, pair=(1, 0), criteria=("overall", "coherence")) == {
        "overall": mirrored,
        "coherence": mirrored,
    }
    assert len(third.asked) == 10
    assert all("- overall" not in request.messages[0].content for request in third.asked)


async def test_a_limit_looks_at_the_first_dialogues_alone(store):
    model = Opinionated(longer)
    assert await outcomes(store, model, limit=2) == {"overall": ["loss", "loss"]}
    assert len(model.asked) == 4


async def test_preferences_know_their_conversation_now_and_in_a_report(tmp_path):
    with filled(tmp_path / "run", mark="talk@") as store, store.writing():
        found = await compare_systems(store, JudgeClient(Opinionated(longer)), (0, 1), criteria=["overall"])
        kept = next(load_preferences(store, "run", "data"))
    assert {one.conversation for one in [*found["overall"], *kept.preferences]} == {"talk"}
    assert rate_of(found["overall"]).p == 1.0


async def test_a_response_that_changed_is_compared_anew(store):
    await outcomes(store, Opinionated(longer))
    store.add(Job(0, 0), Response(id="d0", method="m", text="something much longer"))
    again = Opinionated(longer)
    assert (await outcomes(store, again))["overall"][0] == "win"
    assert len(again.asked) == 2


async def test_another_judge_is_asked_anew_and_only_what_both_answered(store):
    await outcomes(store, Opinionated(longer))
    other = Opinionated(longer)
    other.name = "other"
    await outcomes(store, other)
    assert len(other.asked) == 10
    assert len((await outcomes(store, other, pair=(0, 2)))["overall"]) == 5


async def test_a_judge_that_fails_is_tried_again_and_a_budget_keeps_what_is_found(store):
    class Moody(Opinionated):
        error = ModelError("out of order")

        async def complete(self, request, on_token=None):
            if "Number 1" in request.messages[1].content:
                raise self.error
            return await super().complete(request, on_token)

    with store.writing():
        found = await compare_systems(store, JudgeClient(Moody(longer)), (0, 1), criteria=["overall"])
    assert [one.problem for one in found["overall"]] == [None, "failed", None, None, None, None]
    spent = Moody(longer)
    spent.error = BudgetError("spent")
    with pytest.raises(BudgetError):
        await outcomes(store, spent, criteria=["overall", "coherence"])
    well = Opinionated(longer)
    await outcomes(store, well, criteria=["overall", "coherence"])
    assert len(well.asked) == 2


async def test_a_system_that_the_paper_does_not_score_is_not_in_the_judges_prompt(store):
    """SCG-QP, Table 1: ChatGPT's responses have no score; EDIT, Table 2: nor have its ablations."""
    metric = JointJudge(JudgeClient(model := ByLength()), "overall")
    systems = [{"method": "vanilla", "name": name} for name in ("grows", "stays", "fails")]
    systems[2]["unscored"] = [metric.about.name]
    store.keep({"config": {"systems": systems}})
    with store.writing():
        await measure_run(store, [metric])
    assert {request.messages[1].content.count("\n[") for request in model.asked} == {2}
    assert [len(list(store.measures(metric.about.name, number))) for number in range(3)] == [6, 6, 0]


async def test_a_key_that_is_refused_stops_at_once(store):
    class Locked(Opinionated):
        async def complete(self, request, on_token=None):
            raise ModelError("no such key", configuration=True)

    with pytest.raises(ModelError, match="no such key"):
        await outcomes(store, Locked(longer))


async def test_scores_given_together_are_measures_of_the_run_asked_for_once(store):
    async def scores(model, systems, **rest):
        metric = JointJudge(JudgeClient(model), **rest)
        with store.writing():
            await measure_jointly(store, metric, systems)
        return {number: [m.values for _, m in store.measures(metric.about.name, number)] for number in systems}

    first, second, third = ByLength(), ByLength(), ByLength()
    wanted = {1: [(4.0,)] * 6, 0: [(float(n),) for n in range(1, 7)]}
    assert await scores(first, [1, 0]) == wanted
    assert await scores(second, [0, 1]) == wanted
    assert (len(first.asked), len(second.asked)) == (6, 0)
    # Scores compare within a prompt: with a third system all are asked for anew, where all three answered.
    assert {number: len(some) for number, some in (await scores(third, [0, 1, 2])).items()} == {0: 5, 1: 5, 2: 5}
    assert len(third.asked) == 5
    fourth = ByLength()
    await scores(fourth, [0, 1, 2], seed=1)
    assert len(fourth.asked) == 5


async def test_a_run_is_scored_by_a_joint_metric_like_by_any_other(store):
    with store.writing():
        await measure_run(store, [JointJudge(JudgeClient(ByLength()))])
    assert store.metrics()["together-responses-overall"]["needs"] == ["judge"]
    (found,) = [s for s in RunResults([store]).systems() if s.name == "grows"]
    score = found.scores["together-responses-overall"]
    assert (score.value, score.n) == (3.0, 5)
    assert score.low < 3 < score.high
