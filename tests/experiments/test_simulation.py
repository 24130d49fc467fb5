"""Simulated users: conversations that end as they should, are resumed, scored and held against real ones."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path

import pytest

from dialore.cli import main
from dialore.dialogue import Dialogue
from dialore.errors import InputError, ModelError
from dialore.evaluation.base import Sample
from dialore.evaluation.conversations import METRICS, Standing
from dialore.evaluation.registry import Context, load_metric, load_metrics
from dialore.experiments.config import make_config
from dialore.experiments.feedback import as_conversations
from dialore.experiments.results import RunResults
from dialore.experiments.run import run_experiment
from dialore.experiments.scoring import measure_run
from dialore.experiments.simulation import compare_users, goals_of, import_conversations
from dialore.experiments.store import RunStore
from dialore.llm.model import Completion, Usage
from dialore.response import Response

FERRY = {"id": "ferry", "turns": ["When does the last ferry leave?"], "answer": [["18:35"]], "temper": "brisk"}
BATHS = {"id": "baths", "turns": ["Are the baths open on Mondays?"], "goal": "the baths' hours", "temper": "patient"}


class Scripted:
    """A model that says the next of its lines for each conversation, and keeps what it was asked."""

    def __init__(self, name, lines):
        self.name, self._lines, self.asked = name, {key: list(said) for key, said in lines.items()}, []

    async def complete(self, request, on_token=None):
        self.asked.append(request)
        said = self._lines[request.label.partition("@")[0]].pop(0)
        if isinstance(said, Exception):
            raise said
        return Completion(text=said, model=self.name, usage=Usage(calls=1, prompt_tokens=10, completion_tokens=5))

    async def close(self):
        """Nothing to close."""


@pytest.fixture
def simulated(tmp_path):
    """Hold the conversations of goals between two scripted models; gives the progress and the models."""

    def hold(goals, agent, user, **changes):
        data = tmp_path / "goals.jsonl"
        data.write_text("".join(json.dumps(goal) + "\n" for goal in goals), "utf-8")
        given = {"name": "talks", "dataset": {"name": "jsonl", "path": str(data)}, "systems": ["vanilla"]}
        models = {"agent": Scripted("agent", agent), "person": Scripted("person", user)}
        config = make_config({**given, "models": [{"model": "agent"}], "user": {"model": "person"}}, changes)
        ended = asyncio.run(run_experiment(config, tmp_path / "run", lambda settings, _: models[settings.model]))
        return ended, models

    return hold


def standings(folder):
    with RunStore.open(folder) as store:
        return {one.id: Standing.of(one) for one in map(store.dialogue, range(store.size))}


def scored(folder):
    with RunStore.open(folder) as store, store.writing():
        asyncio.run(measure_run(store, load_metrics(METRICS, Context())))
        return {name: score.value for name, score in RunResults([store]).systems()[0].scores.items()}


def test_ends_by_goal_or_by_the_users_word_and_is_scored(simulated, tmp_path):
    ended, models = simulated(
        [FERRY, BATHS],
        {"ferry": ["Which day do you mean?", "At 18:35."], "baths": ["They open at ten each day but Monday."]},
        {"ferry": ["When is the last boat?", "Today, please."], "baths": ["Baths on a Monday?", "DONE"]},
        **{"user.real": "handbook-en:a"},
    )
    assert (ended.ok, ended.failed) == (2, 0)
    kept = standings(tmp_path / "run")
    assert {name: one.ended for name, one in kept.items()} == {"ferry@1": "", "ferry@2": "goal", "baths@1": "done"}
    assert kept["ferry@2"].tokens == 15
    later = next(asked for asked in models["person"].asked if asked.label.startswith("ferry@2"))
    assert [(message.role, message.content) for message in later.messages[1:]] == [
        ("user", "Hello! How can I help you?"),
        ("assistant", "When is the last boat?"),
        ("user", "Which day do you mean?"),
    ]
    assert "18:35" not in later.messages[0].content  # they must not know the answer
    with RunStore.open(tmp_path / "run") as store:
        rows = {row["feature"]: row for row in store.facts()["realism"]}
    assert (rows["words a turn"]["simulated"], rows["words a turn"]["n"][0]) == (11 / 3, 3)
    scores = scored(tmp_path / "run")
    assert scores["conversation-goal"] == 1
    assert scores["conversation-turns-to-goal"] == 1.5
    assert scores["conversation-tokens"] == 22.5


@pytest.mark.parametrize(
    ("said", "ended", "goal"),
    [
        (["When?", "No, today.", "And today?"], "patience", 0),
        (["When?", "LEAVE"], "left", 0),
        (["When?", "DONE"], "done", 0),  # they believe what is wrong
        (["When?", "How can I help you?", "I can help you with that.", "Sure?"], "patience", 0),  # asks once more
        (["How can I help you?"] * 4, "left", 0),
    ],
)
def test_ends_without_the_goal(simulated, tmp_path, said, ended, goal):
    simulated([FERRY], {"ferry": ["Tomorrow.", "At noon, I think.", "Never."]}, {"ferry": said})
    assert [one.ended for one in standings(tmp_path / "run").values()][-1] == ended
    assert scored(tmp_path / "run")["conversation-goal"] == goal


def test_a_user_may_be_sorry(simulated, tmp_path):
    said = [
        "I'm sorry, but I can't climb stairs. Is there a lift?",
        "抱歉，我不懂，能再说一遍吗？",
        "And the last one?",
    ]
    simulated([FERRY], {"ferry": ["No.", "No.", "No."]}, {"ferry": said})
    with RunStore.open(tmp_path / "run") as store:
        assert [store.dialogue(place).last.text for place in range(3)] == said


def test_goes_on_after_the_last_kept_turn(simulated, tmp_path):
    agent, user = ["Which day?", "", "At 18:35."], ["The last boat?", "Today."]
    ended, _ = simulated([FERRY], {"ferry": agent[:2]}, {"ferry": user})
    assert (ended.ok, ended.failed) == (0, 1)
    ended, models = simulated([FERRY], {"ferry": agent[2:]}, {"ferry": []})
    assert (ended.ok, ended.before, models["person"].asked) == (1, 0, [])
    ended, _ = simulated([FERRY], {"ferry": []}, {"ferry": []})
    assert (ended.ok, ended.before) == (0, 1)
    with pytest.raises(InputError, match="other goals"):
        simulated([BATHS], {"baths": []}, {"baths": []})


def test_goes_on_where_an_answer_is_none(simulated, tmp_path):
    asked = "When does the last ferry leave today?"
    agent, user = [asked, asked, "Which day?"], [asked, "Please, the last ferry."]
    ended, models = simulated([FERRY], {"ferry": [*agent, ""]}, {"ferry": [*user, "Today."]})
    assert (ended.ok, ended.failed) == (0, 1)  # an answer that came out empty is asked for again
    told = next(asked for asked in models["person"].asked if asked.label.startswith("ferry@2"))
    assert told.messages[-1].content == "Sorry, I have no answer to that."
    ended, models = simulated([FERRY], {"ferry": ["No idea."]}, {"ferry": []})
    assert (ended.ok, [one.label.partition("/")[0] for one in models["agent"].asked]) == (1, ["ferry@3"])
    with RunStore.open(tmp_path / "run") as store:
        assert [store.response(job).status for job in store.jobs()] == ["failed", "ok", "ok"]
    assert (scored(tmp_path / "run")["conversation-goal"], scored(tmp_path / "run")["conversation-tokens"]) == (0, 60)


def test_a_user_whose_model_cannot_be_asked_fails_the_conversation(simulated, tmp_path):
    down = ModelError("the server is down", hint="start it", retryable=False)
    ended, _ = simulated([FERRY], {"ferry": ["Which day?"]}, {"ferry": ["When?", down]})
    assert (ended.ok, ended.failed) == (0, 1)
    assert "the server is down" in ended.failures[0]
    ended, _ = simulated([FERRY], {"ferry": ["At 18:35."]}, {"ferry": ["Today."]})
    assert (ended.ok, ended.failed) == (1, 0)
    with RunStore.open(tmp_path / "run") as store:
        assert not Standing.of(store.dialogue(1)).scripted


def test_a_conversation_whose_last_answer_is_none_counts(simulated, tmp_path):
    asked = "When does the last ferry leave today?"
    ended, _ = simulated([FERRY], {"ferry": ["No.", "No.", asked, asked]}, {"ferry": ["When?", "Sure?", asked]})
    assert (ended.ok, ended.failed) == (1, 0)
    assert scored(tmp_path / "run")["conversation-goal"] == 0


def test_opens_with_the_goals_own_words_where_the_user_fails_at_once(simulated, tmp_path):
    simulated([FERRY], {"ferry": ["At 18:35."]}, {"ferry": ["DONE"]}, **{"user.real": "handbook-en:a"})
    with RunStore.open(tmp_path / "run") as store:
        assert store.dialogue(0).last.text == FERRY["turns"][0]
        assert (store.facts()["scripted"], store.facts()["realism"]) == (1, [])  # these words are no simulation


@pytest.mark.parametrize("language", ["en", "zh"])
def test_takes_goals_from_the_handbook(language):
    dataset = {"name": f"handbook-{language}", "split": "b", "limit": 12}
    goals = [Standing.of(goal) for goal in goals_of(make_config({"name": "t", "dataset": dataset, "systems": ["rag"]}))]
    assert [goal.temper for goal in goals] == ["patient", "brisk", "doubtful"] * 4
    assert all(goal.answer and goal.goal for goal in goals)


def test_refuses_unknown_tempers(simulated):
    with pytest.raises(InputError, match="patient"):
        simulated([FERRY | {"temper": "patiant"}], {}, {})


@pytest.mark.parametrize(
    ("fields", "problem"),
    [({"answer": [[""]]}, "answer"), ({"wrong": [[{"a": 1}]]}, "wrong"), ({"temper": "patiant"}, "temper")],
)
def test_an_error_in_a_goal_names_its_line(simulated, fields, problem):
    with pytest.raises(InputError, match=problem) as caught:
        simulated([BATHS, FERRY | fields], {}, {})
    assert "goals.jsonl, line 2" in str(caught.value)
    assert "ferry" in str(caught.value)


def test_an_error_in_a_goal_of_a_log_names_its_line(tmp_path):
    path = tmp_path / "log.jsonl"
    turns = [{"speaker": "user", "text": "Hi"}, {"speaker": "system", "text": "Hello"}]
    talks = [{"turns": turns}, {"turns": [*turns, *turns], "answer": [[""]]}]
    path.write_text("".join(json.dumps(talk) + "\n" for talk in talks), "utf-8")
    with pytest.raises(InputError, match=r"log\.jsonl, line 2.*answer"):
        import_conversations(tmp_path / "run", [("", path)])


def test_logs_are_conversations(tmp_path):
    rows = [
        {"trace": f"t{count}", "good": True, "reason": "", "better": "", "result": {
            "messages": [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(said[:-1])],
            "text": said[-1], "persona": [], "instructions": []}}
        for count, said in enumerate([["Hi", "Which boat do you mean?"],
                                      ["Hi", "Which boat do you mean?", "The ferry", "Which boat do you mean?"]])
    ]  # fmt: skip
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps(one) + "\n" for one in as_conversations(rows)), "utf-8")
    assert import_conversations(tmp_path / "run", [("service", log)]).responses == 2
    assert [one.ended for one in standings(tmp_path / "run").values()] == ["", "log"]
    scores = scored(tmp_path / "run")
    assert (scores["conversation-repeated-questions"], scores["conversation-goal"]) == (1, None)


def test_thoughts_of_imported_conversations_are_removed_and_counted(tmp_path):
    log = tmp_path / "log.jsonl"
    said = ["Hi", "<think>A greeting.</think>Hello.", "And you?", "Fine."]
    turns = [{"speaker": ("user", "system")[n % 2], "text": text} for n, text in enumerate(said)]
    log.write_text(json.dumps({"id": "a", "turns": turns}) + "\n", "utf-8")
    counts = import_conversations(tmp_path / "run", [("", log)])
    assert counts == (2, 1)
    with RunStore.open(tmp_path / "run") as store:
        assert [turn.text for turn in store.dialogue(1).turns] == ["Hi", "Hello.", "And you?"]


class Judging(Scripted):
    """A judge of statements, which it believes where they stand in its prompt."""

    async def complete(self, request, on_token=None):
        asked = request.messages[-1].content
        said = {"statements": ["It is a Duo."]}
        if "Statements:" in asked:
            said = {"verdicts": ["a Duo" in asked.partition("Statements:")[0]]}
        elif "The turn:" in asked:
            said = {"contradicts": True, "forgets": False}
        return Completion(text=json.dumps(said), model=self.name)


@pytest.mark.parametrize(
    ("turns", "known", "value"),
    [
        (["I have a Duo."], ["Drums are green."], 1.0),  # the user said so
        (["Which drum?"], ["The drum is a Duo."], 1.0),  # an earlier passage has it
        (["Which drum?"], ["Drums are green."], 0.0),
    ],
)
def test_history_bears_what_is_said(turns, known, value):
    dialogue = Dialogue(turns, id="d@2", extra={"conversation": {"turn": 2, "known": known}})
    metric = load_metric("conversation-faithfulness", Context(judge=Judging("judge", {})))
    assert asyncio.run(metric.measure(Sample(dialogue, Response(text="It is a Duo.")))).values == (value,)


def test_turns_are_judged_against_earlier_ones():
    sample = Sample(Dialogue(["When?", "At six.", "Sure?"]), Response(text="At seven."))
    context = Context(judge=Judging("judge", {}))
    values = [
        asyncio.run(load_metric(f"conversation-{name}", context).measure(sample)).values
        for name in ("consistency", "memory")
    ]
    assert values == [(0.0,), (1.0,)]


def test_users_who_are_alike_have_no_distance():
    talks = [
        Dialogue(["When is it?", "At six.", "No, I meant today."]),
        Dialogue(["Hi there", "Hello", "Where is it?"]),
    ]
    other = [Dialogue(["I should be most grateful to be told when the ferry leaves"])]
    assert {row["distance"] for row in compare_users(talks, talks)} == {0.0}
    rows = {row["feature"]: row for row in compare_users(other, talks)}
    assert (rows["words a turn"]["simulated"], rows["words a turn"]["distance"]) == (12, 1.0)
    assert rows["turns of the user"]["real"] == 2


def test_the_example_is_held_scored_and_reported(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    example = Path(__file__).parents[2] / "examples" / "simulate" / "handbook.yaml"
    for command in (
        ["documents", "build", "data/handbook.en.index", "--dataset", "handbook-en"],
        ["run", str(example), "--model", "rehearsal", "--limit", "3"],
        ["score", "runs/simulate-handbook"],
        ["report", "runs/simulate-handbook", "--out", "report"],
    ):
        with contextlib.suppress(SystemExit):
            main(command)
    assert "3 answered, 0 failed" in capsys.readouterr().err
    page = (tmp_path / "report" / "report.html").read_text("utf-8")
    assert "conversation-goal" in page
    assert "words a turn" in page
