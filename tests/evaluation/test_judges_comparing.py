"""Judges that compare: both orders, what agrees and what does not, and several systems in one prompt."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from dataclasses import replace

import pytest

from dialore.dialogue import Dialogue
from dialore.errors import InputError, ModelError, UnknownNameError
from dialore.evaluation.judges.asking import JudgeClient
from dialore.evaluation.judges.comparing import CRITERIA, JointJudge, Preference, compare, position_bias, rate_of
from dialore.llm.model import Completion
from dialore.response import Demands, Response
from dialore.text import is_chinese
from tests.llm.models import Scripted

TALK = {
    "en": Dialogue(id="rain", turns=["It rains again."]),
    "zh": Dialogue(id="rain-zh", turns=["又下雨了。"]),
}


def said(text, *queries):
    return Response(id="rain", method="m", text=text, demands=Demands(explicit=list(queries)))


class Opinionated:
    """Picks, for each criterion of the prompt, by a rule over the two texts shown as A and B."""

    name = "opinionated"

    def __init__(self, rule):
        self.rule, self.asked = rule, []

    async def complete(self, request, on_token=None):
        self.asked.append(request)
        system, user = (message.content for message in request.messages)
        a, b = re.search(r"^A[:：] ?(.+)\n\nB[:：] ?(.+)$", user, re.MULTILINE).groups()
        criteria = re.findall(r'"(\w+)":', system.splitlines()[-1])
        return Completion(text=json.dumps({name: self.rule(a, b) for name in criteria}))

    async def close(self):
        """Nothing."""


def longer(a, b):
    return "A" if len(a) > len(b) else "B"


PAIR = {"short": said("Oh."), "long": said("Then let us stay in and bake.")}


@pytest.mark.parametrize(
    ("rule", "winner", "bias"),
    [
        (longer, "long", 0),
        (lambda a, b: longer(b, a), "short", 0),
        (lambda a, b: "A", "", 1),
        (lambda a, b: "B", "", -1),
        (lambda a, b: "same", "", 0),
        (lambda a, b: "A" if a == "Oh." else "same", "", 0),
    ],
    ids=["longer", "shorter", "first", "second", "same", "half sure"],
)
@pytest.mark.parametrize("language", ["en", "zh"])
async def test_a_win_wants_both_orders(rule, winner, bias, language):
    model = Opinionated(rule)
    found = await compare(JudgeClient(model), TALK[language], PAIR, criteria=["overall"])
    assert [one.winner for one in found] == [winner]
    assert found[0].outcome == {"long": "loss", "short": "win", "": "tie"}[winner]
    assert position_bias(found) == bias
    orders = {re.search(r"^A[:：] ?(.+)$", r.messages[1].content, re.MULTILINE)[1] for r in model.asked}
    assert orders == {"Oh.", "Then let us stay in and bake."}
    assert all(is_chinese(r.messages[0].content) == (language == "zh") for r in model.asked)
    assert {r.label for r in model.asked} == {
        f"{TALK[language].id}/judge/pairwise-responses/short/long",
        f"{TALK[language].id}/judge/pairwise-responses/long/short",
    }


@pytest.mark.parametrize("judged", ["responses", "queries"])
@pytest.mark.parametrize("language", ["en", "zh"])
async def test_criteria_are_asked_in_one_prompt_and_defined_there(judged, language):
    model = Opinionated(longer)
    pair = {"a": said("x", "rain"), "b": said("xy", "rain in May", "wet socks")}
    found = await compare(JudgeClient(model), TALK[language], pair, criteria=CRITERIA[judged], judged=judged)
    assert [one.criterion for one in found] == list(CRITERIA[judged])
    assert {one.winner for one in found} == {"b"}
    assert len(model.asked) == 2
    system = model.asked[0].messages[0].content
    assert all(f"- {name}" in system for name in CRITERIA[judged])
    one = Opinionated(longer)
    await compare(JudgeClient(one), TALK[language], pair, criteria=["overall"], judged=judged)
    assert f"- {CRITERIA[judged][0]}" not in one.asked[0].messages[0].content
    shown = one.asked[0].messages[1].content
    assert ("wet socks" in shown) == (judged == "queries")


async def test_every_two_of_several_are_compared():
    systems = {"a": said("1"), "b": said("12"), "c": said("123")}
    found = await compare(JudgeClient(Opinionated(longer)), TALK["en"], systems)
    assert [(one.first, one.second, one.winner) for one in found] == [
        ("a", "b", "b"),
        ("a", "c", "c"),
        ("b", "c", "c"),
    ]


async def test_equal_answers_tie_and_nobody_is_asked():
    model = Opinionated(longer)
    found = await compare(JudgeClient(model), TALK["en"], {"a": said("Oh."), "b": said(" Oh.\n")})
    assert (found[0].outcome, found[0].problem, model.asked) == ("tie", None, [])


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        (["Sorry, I cannot compare these."], "refused"),
        (["Both are fine."], "unparsed"),
        (['{"overall": "A"}', '{"overall": "C"}'], "unparsed"),
        ([ModelError("x refuses to answer: no", refused=True)], "refused"),
    ],
)
async def test_what_is_not_answered_in_both_orders_is_no_preference(script, problem):
    found = await compare(JudgeClient(Scripted(*script)), TALK["en"], PAIR)
    assert (found[0].problem, found[0].winner) == (problem, "")
    assert math.isnan(position_bias(found))


async def test_a_system_without_an_answer_is_not_compared():
    model = Scripted("never")
    failed = Response(id="rain", method="m", status="failed", error="down")
    found = await compare(JudgeClient(model), TALK["en"], {"a": said("Oh."), "b": failed})
    assert (found[0].problem, model.asked) == ("unavailable", [])
    found = await compare(
        JudgeClient(model), TALK["en"], {"a": said("Oh.", "rain"), "b": said("Ah.")}, judged="queries"
    )
    assert "b has no query" in found[0].reason


@pytest.mark.parametrize(("texts", "winner"), [(("Oh.", ""), "a"), (("", "Oh."), "b"), (("", ""), "")])
async def test_an_answer_that_says_nothing_loses_without_a_call(texts, winner):
    model = Scripted("never")
    found = await compare(JudgeClient(model), TALK["en"], {"a": said(texts[0]), "b": said(texts[1])})
    assert (found[0].winner, found[0].problem, model.asked) == (winner, None, [])


async def test_of_scores_together_an_answer_that_says_nothing_has_the_lowest():
    systems = {"a": said("x"), "b": said(""), "c": said("xyz")}
    found = await JointJudge(JudgeClient(ByLength())).measure_together(TALK["en"], systems)
    assert found["b"].values == (1.0,)
    assert found["a"].values < found["c"].values


def test_turns_of_one_conversation_count_as_one_in_the_sign_test():
    apart = [Preference("overall", "a", "b", ("a", "a"), conversation=f"talk {n}") for n in range(8)]
    one_talk = [replace(preference, conversation="talk") for preference in apart]
    assert rate_of(apart).p == pytest.approx(2 / 2**8)
    assert (rate_of(one_talk).p, rate_of(one_talk).wins) == (1.0, 8)
    assert rate_of(one_talk).low < rate_of(apart).low
    unknown = [replace(preference, conversation="") for preference in apart]
    assert rate_of(unknown) == rate_of(apart)


@pytest.mark.parametrize("judged", ["responses", "queries"])
async def test_an_unknown_criterion_is_refused(judged):
    with pytest.raises(UnknownNameError, match="criterion"):
        await compare(JudgeClient(Scripted()), TALK["en"], PAIR, criteria=["beauty"], judged=judged)
    with pytest.raises(UnknownNameError, match="criterion"):
        JointJudge(None, "beauty", judged)
    with pytest.raises(InputError, match="at least two"):
        await compare(JudgeClient(Scripted()), TALK["en"], {"a": said("x")}, judged=judged)


class ByLength:
    """Scores each candidate that it is shown by its length."""

    name = "by-length"

    def __init__(self):
        self.asked = []

    async def complete(self, request, on_token=None):
        self.asked.append(request)
        shown = re.findall(r"^\[\d+\] (.+)$", request.messages[1].content, re.MULTILINE)
        return Completion(text=json.dumps({"scores": [len(text) for text in shown]}))

    async def close(self):
        """Nothing."""


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize(
    ("judged", "criterion"), [("responses", "overall"), ("responses", "useful-knowledge"), ("queries", "overall")]
)
async def test_scores_go_to_whom_they_belong_in_any_order(judged, criterion, language):
    systems = {name: said("x" * size, "q" * size) for size, name in enumerate(("one", "two", "three", "four"), start=1)}
    orders = Counter()
    for seed in range(12):
        model = ByLength()
        found = await JointJudge(JudgeClient(model), criterion, judged, seed).measure_together(TALK[language], systems)
        assert {name: measure.values for name, measure in found.items()} == {
            "one": (1.0,),
            "two": (2.0,),
            "three": (3.0,),
            "four": (4.0,),
        }
        orders[tuple(re.findall(r"^\[\d+\] (.+)$", model.asked[0].messages[1].content, re.MULTILINE))] += 1
        again = ByLength()
        reversed_systems = dict(reversed(systems.items()))
        await JointJudge(JudgeClient(again), criterion, judged, seed).measure_together(TALK[language], reversed_systems)
        assert again.asked[0].messages == model.asked[0].messages
    assert len(orders) > 4
    assert is_chinese(model.asked[0].messages[0].content) == (language == "zh")


async def test_edits_judge_is_told_what_the_paper_says_and_no_more():
    """EDIT, Section 4.1.3: all responses at once, scored by "whether the answer provide more useful knowledge"."""
    model = ByLength()
    await JointJudge(JudgeClient(model), "useful-knowledge").measure_together(
        TALK["en"], {"a": said("x"), "b": said("xy")}
    )
    instruction = model.asked[0].messages[0].content.lower()
    assert "more useful knowledge" in instruction
    for more in ("correct", "new to", "relevant", "bears on", "before you score", "influence", "quality"):
        assert more not in instruction


async def test_of_scores_together_a_wrong_number_is_unparsed_and_a_refusal_refused():
    for answer, problem in (('{"scores": [3]}', "unparsed"), ("I'm sorry, I can't score these.", "refused")):
        found = await JointJudge(JudgeClient(Scripted(answer))).measure_together(TALK["en"], PAIR)
        assert {measure.problem for measure in found.values()} == {problem}


async def test_who_has_nothing_to_score_is_left_out():
    model = ByLength()
    systems = {"a": said("x", "rain"), "b": said("x"), "c": said("x", "sun")}
    together = JointJudge(JudgeClient(model), judged="queries")
    found = await together.measure_together(TALK["en"], systems)
    assert (found["a"].values, found["b"].problem, found["c"].values) == ((4.0,), "unavailable", (3.0,))
    alone = await together.measure_together(TALK["en"], {"a": systems["a"], "b": systems["b"]})
    assert {measure.problem for measure in alone.values()} == {"unavailable"}


@pytest.mark.parametrize(
    ("word", "picks"),
    [
        ("tie", ("", "")),
        ("Tie.", ("", "")),
        ("neither", ("", "")),
        ("Response A", ("short", "much longer")),
        ("[[B]]", ("much longer", "short")),
        ("assistant b", ("much longer", "short")),
    ],
)
async def test_what_judges_say_for_a_pick_counts(word, picks):
    judge = JudgeClient(Opinionated(lambda *_: word))
    (found,) = await compare(judge, TALK["en"], {"short": said("Yes."), "much longer": said("Yes, it does.")})
    assert (found.problem, found.picks) == (None, picks)
