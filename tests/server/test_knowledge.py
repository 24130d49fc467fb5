"""Documents, facts and persona sentences that are added while a service runs."""

from __future__ import annotations

import errno
import io
import os
import random
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import dialore
from dialore.retrieval.documents.indexing import build_documents
from dialore.server import knowledge_store
from dialore.server.middleware import new_key
from dialore.sources.documents import DocumentIndex
from tests.retrieval.documents.pdfs import endless
from tests.server.conftest import Scripted, need

ASK = [{"role": "user", "content": "May I bring my dog to the terrace?"}]


def grounded(running, **further):
    answer = running.http.post("/v1/ground", json={"messages": ASK, **further})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_an_uploaded_file_is_known_at_the_next_question_and_forgotten_when_deleted(serving):
    running = serving(Scripted(needs=[need("dogs on the terrace")]))
    assert not [one for one in grounded(running)["knowledge"] if one["source"] == "documents"]
    page = "# Café\n\n## Dogs\n\nDogs are welcome on the terrace.\n"
    made = running.http.post("/v1/knowledge/files", files={"file": ("../../cafe.md", page.encode())})
    assert made.status_code == 201, made.text
    assert made.json()["file"] == "cafe.md"
    found = grounded(running)
    assert found["model"] == "dialore"
    [piece] = [one for one in found["knowledge"] if one["source"] == "documents"]
    assert (piece["text"], piece["file"]) == ("Dogs are welcome on the terrace.", "cafe.md")
    [listed] = running.http.get("/v1/knowledge/documents").json()["data"]
    assert made.json() == {**listed, "replaced": False, "restricted": 0, "rejects": [], "notices": []}
    again = running.http.post("/v1/knowledge/files", files={"file": ("cafe.md", page.encode())})
    assert again.json() == made.json()
    gone = running.http.delete(f"/v1/knowledge/documents/{made.json()['id']}")
    assert gone.json()["deleted"]
    assert not [one for one in grounded(running)["knowledge"] if one["source"] == "documents"]
    assert running.http.delete(f"/v1/knowledge/documents/{made.json()['id']}").status_code == 404
    assert not list((running.service.knowledge.folder / "files").iterdir())


def test_a_question_under_way_keeps_the_sources_that_it_began_with(serving):
    running = serving(Scripted(pause=0.05))
    body = {"messages": ASK, "stream": True}
    with running.http.stream("POST", "/v1/chat/completions", json=body) as answer:
        lines = answer.iter_lines()
        next(lines)
        assert running.http.post("/v1/knowledge/documents", json={"text": "Dogs are welcome."}).status_code == 201
        assert list(lines)[-2] == "data: [DONE]"


def test_facts_are_added_listed_found_and_deleted(serving):
    running = serving()
    fact = {"head": "dog terrace", "relation": "UsedFor", "tail": "evening concerts"}
    [made] = running.http.post("/v1/knowledge/facts", json={"facts": [fact]}).json()["data"]
    running.http.post("/v1/knowledge/facts", json={"facts": [{**fact, "tail": "drinking coffee"}]})
    assert len(running.http.get("/v1/knowledge/facts").json()["data"]) == 2
    running.model.needs[:] = [{"what": "dog", "source": "graph", "query": "dog terrace", "asked": True}]
    assert made["id"] in {one["id"] for one in grounded(running)["knowledge"]}
    assert running.http.delete(f"/v1/knowledge/facts/{made['id']}").status_code == 200
    assert made["id"] not in {one["id"] for one in grounded(running)["knowledge"]}
    assert running.http.delete(f"/v1/knowledge/facts/{made['id']}").status_code == 404


def test_persona_sentences_speak_in_the_next_response(serving):
    running = serving()
    sentences = ["I keep bees.", "I live in Leeds."]
    assert running.http.post("/v1/knowledge/persona", json={"sentences": sentences}).json() == {"sentences": sentences}
    running.say()
    assert "I keep bees." in running.model.prompt("draft")
    left = running.http.request("DELETE", "/v1/knowledge/persona", json={"sentences": ["I keep bees."]})
    assert left.json() == {"sentences": ["I live in Leeds."]}


def test_what_was_added_is_there_after_a_restart(serving):
    first = serving()
    first.http.post("/v1/knowledge/documents", json={"text": "Dogs are welcome on the terrace."})
    first.http.post("/v1/knowledge/persona", json={"sentences": ["I keep bees."]})
    second = serving(Scripted(needs=[need("dogs on the terrace")]))
    assert second.http.get("/v1/knowledge/persona").json() == {"sentences": ["I keep bees."]}
    assert [one for one in grounded(second)["knowledge"] if one["source"] == "documents"]


def test_an_index_is_there_once_it_is_whole(serving, monkeypatch):
    running, before = serving(), []

    def build(*given, **named):
        report = build_documents(*given, **named)
        before.append(running.service.knowledge.places)
        assert running.say().status_code == 200
        return report

    monkeypatch.setattr(knowledge_store, "build_documents", build)
    assert running.http.post("/v1/knowledge/documents", json={"text": "Dogs are welcome."}).status_code == 201
    assert before == [{}]
    assert "documents" in running.service.knowledge.places


def packed(size):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", b"\0" * size)
    return data.getvalue()


@pytest.mark.parametrize(
    ("name", "data", "status"),
    [
        ("bomb.docx", packed(2_000_000), 413),
        ("large.txt", b"x" * 200_000, 413),
        ("packed.txt.gz", b"\x1f\x8b", 415),
        ("run.exe", b"MZ", 415),
        ("", b"x", 400),
        ("broken.pdf", b"%PDF-1.4 nothing", 400),
        ("broken.docx", b"PK\x03\x04 nothing", 400),
        ("empty.md", b"", 400),
        ("binary.txt", b"\xff\xfe\xfd\x00\xd8", 400),
    ],
)
def test_a_file_that_cannot_be_taken_is_refused_without_a_word_on_where_files_lie(serving, name, data, status):
    running = serving(server={"max_upload": 100_000})
    for _ in range(2):
        answer = running.http.post("/v1/knowledge/files", files={"file": (name, data)})
        assert answer.status_code == status, answer.text
        assert str(running.service.knowledge.folder) not in answer.text
        running.http.post("/v1/knowledge/documents", json={"text": "Dogs are welcome."})
    assert not list((running.service.knowledge.folder / "files").iterdir())


def test_a_further_agent_has_its_own_sources(serving, tmp_path):
    from dialore.retrieval.documents.indexing import build_documents

    build_documents(tmp_path / "cafe.idx", texts=["Dogs are welcome on the terrace."])
    agents = {"cafe": {"method": "weave", "sources": {"documents": str(tmp_path / "cafe.idx")}}}
    running = serving(Scripted(needs=[need("dogs on the terrace")]), agents=agents)
    assert not [one for one in grounded(running)["knowledge"] if one["source"] == "documents"]
    assert [one for one in grounded(running, model="dialore/cafe")["knowledge"] if one["source"] == "documents"]


def pieces(running, source, **params):
    answer = running.http.get("/v1/knowledge/pieces", params={"source": source, **params})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_all_that_is_known_is_listed_searched_and_paged_with_what_may_be_deleted_first(serving, tmp_path):
    from dialore.retrieval.documents.indexing import build_documents

    texts = [f"Rule {number} of the harbour café." for number in range(5)]
    build_documents(tmp_path / "cafe.idx", texts=[*texts, "Dogs are welcome on the terrace."], name="cafe")
    (tmp_path / "me.txt").write_text("I run a café.\n", "utf-8")
    sources = {"documents": str(tmp_path / "cafe.idx"), "persona": str(tmp_path / "me.txt"), "graph": "starter"}
    running = serving(sources=sources)
    assert pieces(running, "persona")["data"][0]["added"] is None
    first = pieces(running, "documents", limit=4)
    assert [one["text"] for one in first["data"]] == texts[:4]
    assert {one["index"] for one in first["data"]} == {"cafe"}
    assert first["more"]
    assert len(pieces(running, "documents", limit=4, offset=4)["data"]) == 2
    assert pieces(running, "documents", q="dogs terrace")["data"][0]["text"] == "Dogs are welcome on the terrace."
    made = running.http.post("/v1/knowledge/documents", json={"text": "Cats sleep.", "title": "Café > Cats"}).json()
    page = b"# Bees\n\nBees live behind the house.\n"
    file = running.http.post("/v1/knowledge/files", files={"file": ("bees.md", page)}).json()
    running.http.post("/v1/knowledge/persona", json={"sentences": ["I keep bees."]})
    running.http.post("/v1/knowledge/facts", json={"facts": [{"head": "dog", "relation": "CapableOf", "tail": "bark"}]})
    cats, bees, *rest = pieces(running, "documents")["data"]
    assert (cats["added"], cats["title"], cats["section"]) == (made["id"], "Café", "Cats")
    assert (bees["added"], bees["file"]) == (file["id"], "bees.md")
    assert {one["added"] for one in rest} == {None}
    assert running.http.delete(f"/v1/knowledge/documents/{cats['added']}").status_code == 200
    assert [one["added"] for one in pieces(running, "persona")["data"]] == ["I keep bees.", None]
    assert [one["text"] for one in pieces(running, "persona", q="BEES")["data"]] == ["I keep bees."]
    own, starter = pieces(running, "graph", limit=2)["data"]
    assert (own["added"], own["graph"], own["head"]) == (own["id"], "added", "dog")
    assert (starter["added"], starter["graph"]) == (None, "starter")
    found = pieces(running, "graph", q="dog")["data"]
    assert found
    assert all("dog" in (one["head"], one["tail"]) for one in found)
    for wrong in ({"source": "memory"}, {"offset": 10_001}, {"limit": 0}, {"q": "a\0b"}):
        answer = running.http.get("/v1/knowledge/pieces", params={"source": "graph", **wrong})
        assert answer.status_code == 400


def test_what_no_source_holds_is_an_empty_list(serving):
    running = serving()
    assert pieces(running, "documents") == pieces(running, "documents", q="dogs") == {"data": [], "more": False}


def test_uses_name_the_latest_responses_of_the_caller_alone(serving):
    keys = [new_key(), new_key()]
    named = [{"name": f"key{n}", "sha256": mark, "knowledge": True} for n, (_, mark) in enumerate(keys)]
    running = serving(Scripted("Yes. [1]", needs=[need("dogs on the terrace")]), server={"keys": named})
    ann, ben = ({"Authorization": f"Bearer {key}"} for key, _ in keys)
    text = {"text": "Dogs are welcome on the terrace."}
    assert running.http.post("/v1/knowledge/documents", json=text, headers=ann).status_code == 201
    body = {"model": "dialore", "messages": ASK}
    running.http.post("/v1/chat/completions", json=body, headers=ann)
    [used] = running.http.get("/v1/knowledge/uses", headers=ann).json()["data"]
    [piece] = running.http.get("/v1/knowledge/pieces", params={"source": "documents"}, headers=ann).json()["data"]
    assert (used["asked"], used["used"]) == (ASK[0]["content"], [piece["id"]])
    assert running.http.get(f"/v1/traces/{used['trace']}", headers=ann).status_code == 200
    assert running.http.get("/v1/knowledge/uses", headers=ben).json() == {"data": []}


def upload(running, name, data):
    return running.http.post("/v1/knowledge/files", files={"file": (name, data)})


def known(running):
    return {one["text"] for one in pieces(running, "documents")["data"]}


def test_a_new_version_takes_the_place_of_the_old_one_in_one_step(serving):
    running = serving()
    assert not upload(running, "hours.md", b"The bar opens at five.").json()["replaced"]
    upload(running, "menu.md", b"We serve soup.")
    with ThreadPoolExecutor(1) as others:
        seen, is_done = [], threading.Event()

        def look():
            while not is_done.is_set():
                with DocumentIndex(running.service.knowledge.folder / "documents.idx") as index:
                    seen.append({piece.text for piece in index.passages()})

        looking = others.submit(look)
        for hour in ("six", "seven", "eight"):
            assert upload(running, "hours.md", f"The bar opens at {hour}.".encode()).json()["replaced"]
        is_done.set()
        looking.result()
    assert len(seen) > 3
    assert {len(each) for each in seen} == {2}  # one version at a time, at any time
    assert known(running) == {"The bar opens at eight.", "We serve soup."}
    assert len(list((running.service.knowledge.folder / "files").iterdir())) == 2
    assert upload(running, "hours.md", b" ").status_code == 400  # what cannot be read takes nobody's place
    assert "The bar opens at eight." in known(running)


def test_what_is_left_out_of_an_upload_is_told(serving):
    running = serving()
    made = upload(running, "rules.jsonl", b'"Dogs are welcome."\nnot json\n').json()
    assert made["passages"] == 1
    assert made["rejects"][0].startswith("rules.jsonl, line 2: not JSON")
    made = upload(running, "latin.txt", "Käse schmeckt köstlich.".encode("latin-1")).json()
    assert made["notices"] == ["latin.txt: it does not say its encoding: read as cp1252"]


def test_a_full_disk_is_said_in_one_line_and_loses_nothing(serving, monkeypatch):
    running = serving()
    upload(running, "hours.md", b"The bar opens at five.")

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    for place in ("pathlib.Path.write_bytes", "tempfile.TemporaryFile"):
        with monkeypatch.context() as patch:
            patch.setattr(place, full)
            for text in (b"The bar opens at six.", b"The bar opens at five."):
                answer = upload(running, "hours.md", text)
                assert answer.status_code == 507
                assert answer.json()["error"]["message"] == "there is no room to keep it"
    with monkeypatch.context() as patch:
        patch.setattr("dialore.retrieval.documents.sqlite._SqliteTransaction.finish", lambda _: disk_full())
        assert upload(running, "hours.md", b"The bar opens at six.").status_code == 507
        text = {"text": "Dogs are welcome."}
        assert running.http.post("/v1/knowledge/documents", json=text).status_code == 507
    assert known(running) == {"The bar opens at five."}
    assert len(list((running.service.knowledge.folder / "files").iterdir())) == 1
    assert upload(running, "hours.md", b"The bar opens at six.").json()["replaced"]


def disk_full():
    raise sqlite3.OperationalError("database or disk is full")


def test_a_file_that_never_ends_keeps_nobody_waiting(serving):
    running = serving(server={"read_seconds": 4})
    with ThreadPoolExecutor(5) as others:
        slow = [others.submit(upload, running, f"endless{n}.pdf", endless(50_000 + n)) for n in range(5)]
        time.sleep(1)
        assert running.http.post("/v1/knowledge/documents", json={"text": "Dogs are welcome."}).status_code == 201
        assert running.say().status_code == 200
        assert not any(each.done() for each in slow)
        answers = [each.result() for each in slow]
    assert {answer.status_code for answer in answers} == {400}
    assert "takes longer than 4 seconds" in answers[0].text
    assert not list((running.service.knowledge.folder / "files").iterdir())


KILLED = """
    import asyncio, sys
    from pathlib import Path
    from dialore.server.knowledge_store import AddedKnowledge
    async def main():
        knowledge = AddedKnowledge(Path(sys.argv[1]))
        for n in range(int(sys.argv[2]), 10_000):
            await knowledge.add_file("hours.md", b"The bar opens at %d." % n, 1_000_000)
            print(n, flush=True)
    asyncio.run(main())
"""


@pytest.mark.skipif(os.name == "nt", reason="processes are killed otherwise there")
def test_a_killed_upload_leaves_the_old_version_or_the_new_one_and_nothing_besides(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(Path(dialore.__file__).parents[1])}
    draw, latest = random.Random(3), -1
    for _ in range(6):
        command = [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path), str(latest + 1)]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as process:
            first = int(process.stdout.readline())
            time.sleep(draw.uniform(0.0, 0.3))
            process.kill()
            finished = [first, *map(int, process.stdout.read().split())]
        with DocumentIndex(tmp_path / "documents.idx") as index:
            [text] = [piece.text for piece in index.passages()]
        latest = int(text.removeprefix("The bar opens at ").rstrip("."))
        assert latest in {finished[-1], finished[-1] + 1}
    (tmp_path / "documents.new").write_bytes(b"half")
    (tmp_path / "files" / "0123456789abcdef").mkdir()
    knowledge_store.AddedKnowledge(tmp_path).close()
    assert {each.name for each in tmp_path.iterdir()} <= {
        "documents.idx",
        "documents.idx-wal",
        "documents.idx-shm",
        "files",
    }
    [folder] = (tmp_path / "files").iterdir()
    assert (folder / "hours.md").read_text() == text


@pytest.mark.skipif(sys.platform == "win32", reason="modes of POSIX")
def test_uploads_are_readable_by_this_account_alone(serving, tmp_path):
    running = serving(Scripted())
    files = {"file": ("rules.md", b"# Dogs\n\nDogs are welcome on the terrace.\n", "text/markdown")}
    assert running.http.post("/v1/knowledge/files", files=files).status_code == 201
    assert [path for path in (tmp_path / "known").rglob("*") if path.stat().st_mode & 0o077] == []
