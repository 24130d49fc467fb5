"""`dialore documents`."""

from __future__ import annotations

import json

import pytest

TEXTS = {
    "throat.txt": "Honey soothes a sore throat.\n\nA humidifier helps as well.",
    "london.md": "# London\n\n## Rain\n\nUmbrellas are sold at every station.",
    "茶.jsonl": '{"text": "姜茶对感冒有好处。", "url": "http://tea/1", "title": "姜茶"}\n',
}


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "docs"
    made.mkdir()
    for name, text in TEXTS.items():
        (made / name).write_text(text, "utf-8")
    return made


@pytest.fixture
def index(call, folder, tmp_path):
    assert call("documents", "build", tmp_path / "base", folder, "--chunk", "sentence").code == 0
    return tmp_path / "base"


def test_build_says_what_it_did(call, folder, tmp_path):
    (folder / "bad.txt").write_bytes(b"\0\1\2\3")
    done = call("documents", "build", tmp_path / "b", folder, "--set", "name=all", "--json")
    report = done.lines[0]
    assert (report["documents"], report["passages"], report["rejected"]) == (3, 3, 1)
    assert "bad.txt: it is a binary file" in done.err
    stats = json.loads(call("documents", "show", tmp_path / "b", "--json").out)
    assert (stats["name"], stats["passages"], stats["embedder"]) == ("all", 3, "static")
    assert "3 passages of 3 documents" in call("documents", "show", tmp_path / "b").out
    assert "has 3 passages of 3 documents" in call("documents", "build", tmp_path / "c", folder).err


def test_search(call, index, tmp_path):
    found = call("documents", "search", "what helps a sore throat", index, "--top", "1", "--json").lines
    assert found[0]["text"] == "Honey soothes a sore throat."
    assert found[0]["file"].endswith("throat.txt")
    words = call("documents", "search", "umbrella station", index, "--retriever", "bm25").out
    assert "Umbrellas are sold" in words
    assert "London > Rain · london.md" in words
    assert "姜茶对感冒有好处。" in call("documents", "search", "感冒", index, "--top", "1").out
    call("documents", "build", tmp_path / "b2", "--set", "format=lines", write(tmp_path, "The moon is round.\n"))
    both = call("documents", "search", "round moon", index, tmp_path / "b2", "--top", "2", "--json").lines
    assert "b2" in {item["index"] for item in both}
    none = call("documents", "search", "zzzz", index, "--retriever", "bm25")
    assert (none.code, none.out) == (0, "")
    assert "nothing fits" in none.err


def write(folder, text, name="more.txt"):
    (folder / name).write_text(text, "utf-8")
    return folder / name


def test_add_list_delete(call, index, folder):
    (folder / "throat.txt").write_text("Honey soothes a sore throat.", "utf-8")
    report = call("documents", "add", index, folder, "--json").lines[0]
    assert (report["added"], report["deleted"], report["unchanged"]) == (1, 2, 2)
    listed = call("documents", "show", index, "--json").lines[0]["files"]
    assert {item["name"].rpartition("/")[2]: item["passages"] for item in listed} == dict.fromkeys(TEXTS, 1)
    assert "throat.txt" in "".join(call("documents", "show", index).out.split())
    passages = call("documents", "show", index, "--passages", "--json").lines
    ids = {item["text"]: item["id"] for item in passages}
    arguments = ("--id", ids["Honey soothes a sore throat."], "--url", "http://tea/1", "--file", "nowhere.txt")
    done = call("documents", "delete", index, *arguments)
    assert "2 deleted" in done.err
    assert "not there: nowhere.txt" in done.err
    assert call("documents", "show", index, "--passages").out.endswith("\tUmbrellas are sold at every station.\n")
    (folder / "london.md").unlink()
    assert call("documents", "add", index, folder, "--prune", "--json").lines[0]["passages"] == 2


def test_a_base_of_a_data_set(call, tmp_path):
    """A sentence of the data set's knowledge is a passage, as its reader gives it."""
    knowledge = ["Puffins nest in burrows. They dive.", {"text": "Gulls do not."}]
    talk = {"turns": ["Do puffins dive?"], "reference": "They do.", "knowledge": knowledge}
    path = write(tmp_path, json.dumps(talk) + "\n" + json.dumps(talk) + "\n", "talks.jsonl")
    done = call("documents", "build", tmp_path / "b", path, "--dataset", "jsonl", "--json").lines[0]
    assert done["passages"] == 2
    listed = call("documents", "show", tmp_path / "b", "--json").lines[0]["files"]
    assert [item["name"] for item in listed] == ["dataset:jsonl"]
    again = call("documents", "build", tmp_path / "c", path, "--dataset", "jsonl", "--chunk", "sentence", "--json")
    assert again.lines[0]["passages"] == 3
    assert call("documents", "add", tmp_path / "c", path, "--dataset", "jsonl", "--json").lines[0]["duplicates"] == 3


def test_settings_of_build(call, folder, tmp_path):
    options = ("--embedder", "none", "--set", "chunk_words=4", "--set", "overlap=0")
    assert call("documents", "build", tmp_path / "b", folder, *options).code == 0
    stats = call("documents", "show", tmp_path / "b", "--json").lines[0]
    assert (stats["embedder"], stats["tokeniser"]["stems"]) == ("", True)
    assert stats["chunking"] == {"unit": "words", "words": 4, "overlap": 0}
    assert "vectors: none" in call("documents", "show", tmp_path / "b").out
    assert "no vectors" in call("documents", "search", "x", tmp_path / "b", "--retriever", "dense").complaint


def test_what_is_refused(call, index, folder, tmp_path):
    assert "did you mean words" in call("documents", "build", tmp_path / "b", folder, "--chunk", "word").complaint
    assert "did you mean html" in call("documents", "build", tmp_path / "b", folder, "--set", "format=htm").complaint
    assert "unknown embedder" in call("documents", "build", tmp_path / "b", folder, "--embedder", "statik").complaint
    assert "no such file" in call("documents", "build", tmp_path / "b", tmp_path / "none").complaint
    assert "did you mean kbp" in call("documents", "build", tmp_path / "b", folder, "--dataset", "kpb").complaint
    assert not (tmp_path / "b").exists()
    assert "is not a document index but a folder" in call("documents", "build", folder, folder).complaint
    assert "did you mean dense" in call("documents", "search", "x", index, "--retriever", "dens").complaint
    assert "no such document index" in call("documents", "search", "x", tmp_path / "none").complaint
    assert "the query is empty" in call("documents", "search", " ", index).complaint
    assert "nothing to delete" in call("documents", "delete", index).complaint
    assert "is not a document index" in call("documents", "show", folder).complaint
