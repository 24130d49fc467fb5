"""What a service keeps of its users: only of those who consent, and never for another."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import sqlite3
import subprocess
import time
from pathlib import Path

import pytest

from dialore.errors import SourceError
from dialore.knowledge import Fact
from dialore.server.knowledge_store import AddedKnowledge
from dialore.sources.memory import open_memory
from tests.cli.processes import DIALORE
from tests.server.conftest import Scripted, need, wait_until
from tests.server.hostile import STATEMENTS, USERS
from tests.server.test_guard import bearer, keyed


class Listening(Scripted):
    """Notes as a statement whatever the last turn says."""

    said = ()

    async def complete(self, request, on_token=None):
        if "memory/extraction" in request.label or request.label.endswith("/extraction"):
            self.requests.append(request)
            made = await Scripted("x").complete(request)
            statements = [{"text": each} for each in self.said]
            return made.model_copy(update={"text": json.dumps({"statements": statements})})
        return await super().complete(request, on_token)


def tell(running, text, user="ann", headers=None, said=None, **further):
    running.model.said = [text] if said is None else said
    body = {"messages": [{"role": "user", "content": text}], "user": user, **further}
    answer = running.http.post("/v1/chat/completions", json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    wait_until(lambda: not running.service._tasks)
    return answer.json()["choices"][0]["message"]


def memory(running, user="ann", headers=None):
    return running.http.get("/v1/memory", params={"user": user}, headers=headers).json()


def consent(running, user="ann", headers=None, *, consents=True):
    body = {"user": user, "consents": consents}
    assert running.http.put("/v1/memory/consent", json=body, headers=headers).json() == {"consents": consents}


def test_only_who_consents_is_remembered_and_found_again(serving):
    running = serving(Listening(needs=[{"what": "pet", "source": "memory", "query": "dog", "asked": True}]))
    tell(running, "I have a dog called Bello.")
    assert memory(running) == {"consents": False, "data": []}
    assert not [each for each in running.model.requests if each.label.endswith("extraction")]
    consent(running)
    tell(running, "I have a dog called Bello.")
    kept = memory(running)
    assert kept["consents"]
    [statement] = kept["data"]
    assert (statement["text"], statement["turn"]) == ("I have a dog called Bello.",) * 2
    assert statement["said"] < statement["expires"]
    grounding = tell(running, "What is my pet called?", said=())["grounding"]
    assert "I have a dog called Bello." in {each["text"] for each in grounding["knowledge"]}
    ask = {"messages": [{"role": "user", "content": "What is my pet called?"}], "user": "ann"}
    found = running.http.post("/v1/ground", json=ask).json()["knowledge"]
    assert "I have a dog called Bello." in {each["text"] for each in found}
    one = f"/v1/memory/{statement['id']}"
    assert running.http.delete(one, params={"user": "ann"}).json()["deleted"]
    assert running.http.delete(one, params={"user": "ann"}).status_code == 404
    assert memory(running)["data"] == []


def test_forgetting_all_and_withdrawing(serving):
    running = serving(Listening())
    consent(running)
    tell(running, "I ski, and I swim.", said=["I ski.", "I swim."])
    assert running.http.delete("/v1/memory", params={"user": "ann"}).json() == {"deleted": 2}
    assert memory(running) == {"consents": True, "data": []}
    trace = tell(running, "I ski.", metadata={"conversation": "c"})["grounding"]["trace"]
    consent(running, consents=False)
    consent(running)
    assert memory(running)["data"] == []
    assert running.http.get("/v1/conversations", params={"user": "ann"}).json() == {"data": []}
    assert running.http.get(f"/v1/traces/{trace}").status_code == 404


def test_one_users_memory_is_never_anothers(serving):
    (one, first), (other, second) = keyed("one"), keyed("other")
    running = serving(
        Listening(needs=[{"what": "pet", "source": "memory", "query": "dog", "asked": True}]),
        server={"keys": [first, second]},
    )
    mine, theirs = bearer(one), bearer(other)
    for headers in (mine, theirs):
        for user in ("ann", "ben", "one\x1fann"):
            consent(running, user, headers)
    tell(running, "I have a dog called Bello.", headers=mine, metadata={"conversation": "c"})
    [kept] = memory(running, headers=mine)["data"]
    strangers = [
        ("ann", theirs),
        ("ben", mine),
        ("ben", theirs),
        ("one\x1fann", theirs),
        ("%", mine),
        ("ann' --", mine),
    ]
    for user, headers in strangers:
        assert memory(running, user, headers)["data"] == []
        grounding = tell(running, "What is my pet called?", user, headers, said=())["grounding"]
        assert "Bello" not in json.dumps(grounding)
        asked = {"params": {"user": user}, "headers": headers}
        assert running.http.delete(f"/v1/memory/{kept['id']}", **asked).status_code == 404
        assert running.http.delete("/v1/memory", **asked).json() == {"deleted": 0}
        assert running.http.get("/v1/conversations", **asked).json() == {"data": []}
        assert running.http.get("/v1/conversations/c", **asked).status_code == 404
        assert running.http.delete("/v1/conversations/c", **asked).status_code == 404
        consent(running, user, headers, consents=False)
    assert memory(running, headers=mine)["data"] == [kept]
    assert "Bello" not in json.dumps(tell(running, "What is my pet called?", "", mine, said=())["grounding"])


def test_what_held_before_is_shown_corrected_and_found(serving):
    running = serving(Listening(needs=[{"what": "home", "source": "memory", "query": "where I lived", "asked": True}]))
    consent(running)
    for text in ("I live in Leeds.", "I moved to York."):
        tell(running, text)
    asked = {"params": {"user": "ann", "history": True}}
    [new, old] = running.http.get("/v1/memory", **asked).json()["data"]
    assert [each["text"] for each in memory(running)["data"]] == ["I moved to York."]
    assert (old["text"], old["holds_until"], new["replaces"]) == ("I live in Leeds.", new["said"], old["id"])
    as_of = running.http.get("/v1/memory", params={"user": "ann", "as_of": old["said"]}).json()["data"]
    assert [each["text"] for each in as_of] == ["I live in Leeds."]
    found = tell(running, "Where did I live before?", said=())["grounding"]["knowledge"]
    assert "I live in Leeds." in {piece["text"] for piece in found}
    path = f"/v1/memory/{old['id']}"
    edited = running.http.patch(
        path, json={"user": "ann", "text": "I lived in Hull.", "holds_from": "2020-01-01T00:00:00Z"}
    )
    assert edited.json() == old | {
        "id": edited.json()["id"],
        "text": "I lived in Hull.",
        "holds_from": "2020-01-01T00:00:00Z",
    }
    assert running.http.patch(path, json={"user": "ann", "text": "I row."}).status_code == 404, "its id has changed"
    [new, old] = running.http.get("/v1/memory", **asked).json()["data"]
    assert new["replaces"] == old["id"] == edited.json()["id"]
    path = f"/v1/memory/{old['id']}"
    refused = [
        {"user": "ann", "holds_until": "1999-01-01T00:00:00Z"},
        {"user": "ann", "text": "My password is x."},
        {"user": "ann", "text": " "},
    ]
    assert [running.http.patch(path, json=body).status_code for body in refused] == [400] * 3
    assert running.http.patch(path, json={"user": "ben", "text": "I row."}).status_code == 404
    assert running.http.get("/v1/memory", **asked).json()["data"] == [new, old]


def test_the_command_lists_exports_and_deletes(serving, tmp_path):
    running = serving(Listening())
    consent(running)
    for text in ("I live in Leeds.", "I moved to York."):
        tell(running, text)

    def command(name, *arguments):
        words = ["memory", name, str(tmp_path / "known" / "store.sqlite"), "ann", *map(str, arguments)]
        return subprocess.run([*DIALORE, *words], capture_output=True, text=True, check=False)

    assert [each["text"] for each in json.loads(command("list", "--json").stdout)] == ["I moved to York."]
    [new, old] = json.loads(command("list", "--history", "--json").stdout)
    assert (old["text"], old["holds_until"]) == ("I live in Leeds.", new["said"])
    path = f"/v1/memory/{old['id']}"
    changes = {"user": "ann", "text": "I lived in Hull.", "holds_from": "2020-01-01T00:00:00Z"}
    assert running.http.patch(path, json=changes).status_code == 200
    assert command("export", tmp_path / "ann.jsonl").returncode == 0
    kept = open_memory(tmp_path / "ann.jsonl").statements
    assert [(each.text, each.begins.year) for each in kept] == [
        ("I moved to York.", kept[0].said.year),
        ("I lived in Hull.", 2020),
    ]
    assert command("list", "--as-of", "2021-06-01", "--json").stdout.count("I lived in Hull.") == 1
    assert [command("delete", new["id"]).returncode for _ in range(2)] == [0, 2]
    assert memory(running)["data"] == []


def test_turns_of_other_conversations_are_found(serving):
    running = serving(Listening(needs=[{"what": "cake", "source": "memory", "query": "cake recipe", "asked": True}]))
    tell(running, "The secret of the cake is rum.", said=(), metadata={"conversation": "a"})
    found = tell(running, "What was the secret of the cake?", said=())["grounding"]["knowledge"]
    assert "rum" not in json.dumps(found), "nobody has consented"
    consent(running)
    tell(running, "The secret of the cake is rum.", said=(), metadata={"conversation": "a"})
    found = tell(running, "What was the secret of the cake?", said=())["grounding"]["knowledge"]
    assert "The secret of the cake is rum." in {piece["text"] for piece in found}
    same = tell(running, "What was the secret of the cake?", said=(), metadata={"conversation": "a"})
    assert "rum" not in json.dumps(same["grounding"]["knowledge"]), "a conversation is its own history"


@pytest.mark.parametrize("text", STATEMENTS, ids=range(len(STATEMENTS)))
def test_what_is_remembered_stays_a_text(serving, text):
    running = serving(Listening(needs=[{"what": "pet", "source": "memory", "query": "dog", "asked": True}]))
    for user in ("ann", "ben"):
        consent(running, user)
    text = f"I wrote: {text}".replace("your ", "all ")
    tell(running, text, said=[text])
    assert [each["text"] for each in memory(running)["data"]] == [text.replace("\0", "")]
    assert memory(running, "ben")["data"] == []
    tell(running, "What is my pet called?", said=())
    for request in running.model.requests:
        prompt = "\n".join(message.content for message in request.messages)
        assert prompt.count("</knowledge>") == prompt.count("<knowledge>") <= 1


@pytest.mark.parametrize("user", USERS)
def test_a_name_that_is_none_is_refused(serving, user):
    running = serving()
    assert running.http.get("/v1/memory", params={"user": user}).status_code == 400
    assert running.http.put("/v1/memory/consent", json={"user": user, "consents": True}).status_code == 400
    assert running.http.delete("/v1/memory/x", params={"user": user}).status_code == 400
    assert running.http.get("/v1/conversations", params={"user": user}).status_code == 400


def test_conversations_are_kept_where_they_are_named_and_the_user_consents(serving):
    running = serving(Listening())
    tell(running, "Hello", metadata={"conversation": "c1"})
    consent(running)
    tell(running, "Hello", metadata={"topic": "x"})
    assert running.http.get("/v1/conversations", params={"user": "ann"}).json() == {"data": []}
    said = tell(running, "Hello", metadata={"conversation": "c1"})
    [kept] = running.http.get("/v1/conversations", params={"user": "ann"}).json()["data"]
    assert (kept["id"], kept["title"], kept.keys()) == ("c1", "Hello", {"id", "kept", "title"})
    where = "/v1/conversations/c1"
    whole = running.http.get(where, params={"user": "ann"}).json()
    grounding = said["grounding"]
    answer = {"role": "assistant", "content": said["content"], "trace": grounding["trace"], "grounding": grounding}
    assert len({message.pop("said") for message in whole["messages"]}) == 1
    assert whole == {"id": "c1", "messages": [{"role": "user", "content": "Hello"}, answer]}
    history = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": said["content"]}]
    tell(running, "x", messages=[*history, {"role": "user", "content": "And?"}], metadata={"conversation": "c1"})
    longer = running.http.get(where, params={"user": "ann"}).json()["messages"]
    assert all(message.pop("said") for message in longer)
    assert longer[:3] == [*whole["messages"], {"role": "user", "content": "And?"}]
    assert [each["role"] for each in longer if "trace" in each] == ["assistant"] * 2
    assert running.http.delete(where, params={"user": "ann"}).json() == {"id": "c1", "deleted": True}
    assert running.http.get(where, params={"user": "ann"}).status_code == 404


def test_a_conversation_is_there_when_its_response_ends(serving):
    running = serving(Listening())
    consent(running)
    body = {"messages": [{"role": "user", "content": "x " * 100}], "user": "ann", "metadata": {"conversation": "c"}}
    running.model.pause = 0.05  # what is remembered takes longer
    assert "[DONE]" in running.http.post("/v1/chat/completions", json={**body, "stream": True}).text
    [kept] = running.http.get("/v1/conversations", params={"user": "ann"}).json()["data"]
    assert kept["title"] == "x " * 40


def test_a_service_that_keeps_no_conversations_says_so(serving):
    running = serving(Listening(), server={"kept_days": 0})
    consent(running)
    tell(running, "Hello", metadata={"conversation": "c1"})
    assert running.http.get("/v1/conversations", params={"user": "ann"}).status_code == 404
    assert running.http.get("/v1/memory", params={"user": "ann"}).json()["consents"]


def test_what_was_answered_is_remembered_before_the_service_ends(serving):
    running = serving(Listening())
    consent(running)
    running.model.pause, running.model.said = 0.2, ["I ski."]
    running.say("I ski.", user="ann")
    running.server.should_exit = True
    wait_until(lambda: not running.server.servers or not running.app.state.is_ready)
    again = serving()
    wait_until(lambda: [each["text"] for each in memory(again)["data"]] == ["I ski."])


def test_another_worker_finds_traces_memory_and_what_was_added(serving):
    one, other = serving(Listening()), serving(Listening(needs=[need("dogs on the terrace")]))
    trace = tell(one, "Hello")["grounding"]["trace"]
    assert other.http.get(f"/v1/traces/{trace}").json()["trace"][0]["stage"]
    consent(one)
    tell(one, "I ski.")
    assert [each["text"] for each in memory(other)["data"]] == ["I ski."]
    one.http.post("/v1/knowledge/documents", json={"text": "Dogs are welcome on the terrace."})
    grounding = tell(other, "May I bring my dog to the terrace?")["grounding"]
    assert "Dogs are welcome on the terrace." in {each["text"] for each in grounding["knowledge"]}


def test_a_store_that_cannot_be_asked_does_not_keep_a_response_back(serving, monkeypatch):
    async def broken(*_, **__):
        raise SourceError("the store is on fire")

    running = serving(Listening())
    for name in ("statements", "keep_trace", "consents"):
        monkeypatch.setattr(running.service.store, name, broken)
    assert tell(running, "Hello")["content"]
    answer = running.http.get("/v1/memory", params={"user": "ann"})
    assert (answer.status_code, answer.json()["error"]["type"]) == (502, "server_error")
    assert "fire" not in answer.text


def _add(folder, mark):
    import asyncio

    async def all_of_it():
        known = AddedKnowledge(Path(folder))
        await asyncio.gather(
            *(known.add_text(f"{mark} wrote note {n}.", f"{mark}{n}", "") for n in range(3)),
            *(known.add_facts([Fact(f"{mark} {n}", "IsA", "note")]) for n in range(3)),
            *(known.set_persona(add=[f"I know {mark}{n}."]) for n in range(3)),
        )

    asyncio.run(all_of_it())


async def test_what_two_processes_add_at_once_is_all_there(tmp_path):
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_add, args=(str(tmp_path), mark)) for mark in ("Ada", "Bob")]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
        assert worker.exitcode == 0
    known = AddedKnowledge(tmp_path)
    assert len(known.documents()) == 6
    assert len(known.facts()) == 6
    assert len(known.persona) == 6


@pytest.mark.parametrize("name", ["a/b", ".", "..", "../memory", "/", "a b?c#d"])
def test_a_conversation_is_shown_and_deleted_whatever_its_id(serving, name):
    running = serving(Listening())
    consent(running)
    tell(running, "I ski.", metadata={"conversation": name})
    found = running.http.get("/v1/conversations", params={"user": "ann", "id": name}).json()
    assert (found["id"], found["messages"][0]["content"]) == (name, "I ski.")
    assert running.http.delete("/v1/conversations", params={"user": "ann", "id": name}).status_code == 200
    assert running.http.get("/v1/conversations", params={"user": "ann"}).json()["data"] == []


def test_a_conversation_with_a_slash_is_shown_by_its_path(serving):
    running = serving(Listening())
    consent(running)
    tell(running, "I ski.", metadata={"conversation": "a/b"})
    path = "/v1/conversations/a%2Fb"
    assert running.http.get(path, params={"user": "ann"}).json()["id"] == "a/b"
    assert running.http.delete(path, params={"user": "ann"}).status_code == 200


def find_word(folder, word):
    """The files of a folder, with SQLite's logs, that contain a word."""
    return [file.name for file in folder.rglob("*") if file.is_file() and word.encode() in file.read_bytes()]


def withdraw_consent(running):
    consent(running, consents=False)


def forget_all(running):
    assert running.http.delete("/v1/memory", params={"user": "ann"}).status_code == 200


def forget_one(running):
    identifier = memory(running)["data"][0]["id"]
    assert running.http.delete(f"/v1/memory/{identifier}", params={"user": "ann"}).status_code == 200


def delete_conversation(running):
    assert running.http.delete("/v1/conversations", params={"user": "ann", "id": "c1"}).status_code == 200


@pytest.mark.parametrize(
    ("delete", "has_memory", "is_stored"),
    [
        (withdraw_consent, True, True),
        (forget_all, True, False),
        (forget_one, True, False),
        (delete_conversation, False, True),
    ],
)
def test_deleted_text_is_in_no_file_of_the_store(serving, tmp_path, delete, has_memory, is_stored):
    running = serving(Listening("Good to know."))
    consent(running)
    conversation = {"metadata": {"conversation": "c1"}} if is_stored else {}
    tell(running, "I keep a marmot called Zdenko.", said=None if has_memory else (), **conversation)
    assert find_word(tmp_path, "Zdenko")
    delete(running)
    assert find_word(tmp_path, "Zdenko") == []


def test_a_reader_neither_delays_a_deletion_nor_keeps_deleted_text_in_the_log(serving, tmp_path):
    running = serving(Listening("Good to know."))
    consent(running)
    tell(running, "I keep a marmot called Zdenko.", said=())
    (store,) = (tmp_path / "known").glob("*.sqlite")
    with contextlib.closing(sqlite3.connect(store, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM traces").fetchone()
        began = time.monotonic()
        withdraw_consent(running)
        assert time.monotonic() - began < 10
        assert find_word(tmp_path, "Zdenko")
        reader.execute("COMMIT")
    consent(running)  # any further change
    assert find_word(tmp_path, "Zdenko") == []


def test_feedback_goes_with_the_trace_that_it_is_about(serving, tmp_path):
    running = serving(Listening("Good to know."))
    consent(running)
    trace = tell(running, "I keep a marmot.", said=())["grounding"]["trace"]
    feedback = {"user": "ann", "trace": trace, "good": False, "better": "Its name is Ottokar."}
    assert running.http.post("/v1/feedback", json=feedback).status_code == 200
    assert find_word(tmp_path, "Ottokar")
    forget_all(running)
    assert find_word(tmp_path, "Ottokar") == []


@pytest.mark.parametrize(
    ("changes", "is_kept"), [({"text": "I keep a cat."}, False), ({"holds_until": "2999-01-01T00:00:00Z"}, True)]
)
def test_a_new_text_of_a_statement_deletes_what_quotes_the_old_one(serving, tmp_path, changes, is_kept):
    running = serving(Listening("Good to know."))
    consent(running)
    trace = tell(running, "I keep a marmot.")["grounding"]["trace"]
    feedback = {"user": "ann", "trace": trace, "good": False, "better": "Its name is Ottokar."}
    assert running.http.post("/v1/feedback", json=feedback).status_code == 200
    identifier = memory(running)["data"][0]["id"]
    answer = running.http.patch(f"/v1/memory/{identifier}", json={"user": "ann", **changes})
    assert answer.status_code == 200
    assert running.http.get(f"/v1/traces/{trace}").status_code == (200 if is_kept else 404)
    assert bool(find_word(tmp_path, "Ottokar")) == is_kept
