"""Sheets filled in over the service: codes, answers, agreement, and who may see what."""

from __future__ import annotations

import json

import pytest

from dialore.errors import InputError
from dialore.evaluation.human.reading import read_answers
from dialore.server.middleware import new_key
from tests.server.hostile import CODES
from tests.server.sheets import HOSTILE, write_sheets


class Desk:
    """A service with sheets, its owner's key and the codes of two annotators."""

    def __init__(self, serving, folder, **given):
        self.key, self.folder = write_sheets(folder, **given), folder
        (owner, mark), (other, mark2) = new_key(), new_key()
        keys = [{"name": "owner", "sha256": mark, "knowledge": True}, {"name": "app", "sha256": mark2}]
        self.running = serving(server={"annotate": str(folder), "keys": keys})
        self.owner, self.other = ({"Authorization": f"Bearer {key}"} for key in (owner, other))
        self.first, self.second = (each["code"] for each in self.overview()["annotators"])

    def overview(self):
        answer = self.running.http.get("/v1/annotate", headers=self.owner)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def sheet(self, code):
        answer = self.running.http.post("/v1/annotate/sheet", json={"code": code})
        assert answer.status_code == 200, answer.text
        return answer.json()

    def say(self, code, item, answers, **further):
        return self.running.http.post(
            "/v1/annotate/answers", json={"code": code, "item": item, "answers": answers, **further}
        )

    def side(self, item, system):
        return "AB"[self.key.items[item].systems.index(system)]


@pytest.fixture
def desk(serving, tmp_path):
    return Desk(serving, tmp_path / "sheets")


def test_answers_of_two_annotators_become_agreement(desk):
    pytest.importorskip("scipy", reason="the evaluation extra is not installed")
    for code in (desk.first, desk.second):
        for item in desk.sheet(code)["items"]:
            answers = dict.fromkeys(item["columns"], desk.side(item["id"], "rich"))
            assert desk.say(code, item["id"], answers, comment="=2+2").status_code == 200
    found = read_answers(desk.folder)
    assert {each.winner for each in found.annotations} == {"rich"}
    assert (len(found.annotations), found.empty) == (2 * 3 * 4, 0)
    told = desk.overview()
    assert [(each["done"], each["total"]) for each in told["annotators"]] == [(3, 3)] * 2
    contests, agreement = told["tables"]
    assert contests["rows"][0][1] == "plain / rich"
    assert agreement["rows"][0][3] == "100.0%"
    assert desk.sheet(desk.first)["items"][0]["comment"] == "=2+2"
    assert "'=2+2" in (desk.folder / "annotator-1.csv").read_text("utf-8")


def test_each_annotator_has_his_own_order_and_answers_and_never_sees_who_wrote_what(desk):
    mine, other = desk.sheet(desk.first), desk.sheet(desk.second)
    orders = [[item["id"] for item in sheet["items"]] for sheet in (mine, other)]
    assert sorted(orders[0]) == sorted(orders[1])
    assert HOSTILE in json.dumps(mine, ensure_ascii=False).replace('\\"', '"')
    item = mine["items"][0]["id"]
    assert desk.say(desk.first, item, {"naturalness": "A"}).status_code == 200
    assert desk.sheet(desk.first)["items"][0]["answers"] == {"naturalness": "A"}
    sheet = desk.sheet(desk.second)
    assert all(not each["answers"] for each in sheet["items"])
    for word in ("plain", "rich", "systems", "seed", "batch", desk.first):
        assert word not in json.dumps(sheet)
    assert desk.say(desk.first, item, {"naturalness": ""}).status_code == 200
    assert not desk.sheet(desk.first)["items"][0]["answers"]


@pytest.mark.parametrize("code", CODES)
def test_a_code_that_is_none_gets_nothing(desk, code):
    for path, further in {"sheet": {}, "answers": {"item": "i", "answers": {}}}.items():
        answer = desk.running.http.post(f"/v1/annotate/{path}", json={"code": code, **further})
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "invalid_code")
        assert str(desk.folder) not in answer.text


def test_answers_that_are_none_change_nothing(desk):
    item = desk.sheet(desk.first)["items"][0]["id"]
    before = (desk.folder / "annotator-1.csv").read_bytes()
    for answers in (
        {"naturalness": "C"},
        {"naturalness": "=A"},
        {"item": "i0"},
        {"response A": "mine"},
        {"comment": "x"},
        {"nothing": "A"},
        {"naturalness": "A", "nothing": "A"},
        {"naturalness": "A\nB"},
    ):
        assert desk.say(desk.first, item, answers).status_code == 400
    assert desk.say(desk.first, "../../key", {"naturalness": "A"}).status_code == 404
    assert desk.say(desk.first, item, {"naturalness": "A" * 3000}).status_code == 400
    assert desk.say(desk.first, item, {"naturalness": ["A"]}).status_code == 400
    assert (desk.folder / "annotator-1.csv").read_bytes() == before


def test_the_overview_is_the_owners(desk):
    http = desk.running.http
    assert http.get("/v1/annotate").status_code == 401
    assert http.get("/v1/annotate", headers=desk.other).status_code == 403
    assert http.get("/v1/annotate", headers={"Authorization": f"Bearer {desk.first}"}).status_code == 401
    assert len({desk.first, desk.second}) == 2
    codes = desk.folder.with_name("sheets.codes.json")
    assert codes.stat().st_mode & 0o077 == 0
    assert [each["code"] for each in desk.overview()["annotators"]] == [desk.first, desk.second]


def test_ranks_are_given_whole_and_scores_by_their_scale(serving, tmp_path):
    ranked = Desk(serving, tmp_path / "ranked", form="ranking")
    item = ranked.sheet(ranked.first)["items"][0]
    assert item["columns"]["coherence"] == ["coherence A", "coherence B"]
    assert ranked.say(ranked.first, item["id"], {"coherence A": "1"}).status_code == 400
    assert ranked.say(ranked.first, item["id"], {"coherence A": "1", "coherence B": "3"}).status_code == 400
    assert ranked.say(ranked.first, item["id"], {"coherence A": "1", "coherence B": "1"}).status_code == 200
    scored = Desk(serving, tmp_path / "scored", form="likert")
    item = scored.sheet(scored.first)["items"][0]
    assert len(item["texts"]) == 1
    assert scored.say(scored.first, item["id"], {"coherence": "6"}).status_code == 400
    assert scored.say(scored.first, item["id"], {"coherence": "5"}).status_code == 200


def test_without_sheets_there_is_nothing_and_without_a_key_no_service(serving, tmp_path):
    assert serving().http.get("/v1/annotate").status_code == 404
    assert serving().http.post("/v1/annotate/sheet", json={"code": "x"}).status_code == 404
    with pytest.raises(InputError, match=r"sheets\.key\.json"):
        serving(server={"annotate": str(tmp_path / "sheets")})
