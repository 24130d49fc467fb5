"""`dialore data get`, against a server of the same form as the published homes: ranges, tags, redirects, archives."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from dialore.cli import main
from dialore.datasets import published
from dialore.datasets.published import data_file, remote, remotes
from dialore.datasets.registry import data_set, data_set_names
from dialore.experiments.config import make_config
from dialore.experiments.systems import load_dialogues
from tests.example_data import write_data


class Home:
    """Files by path, what was asked of them, and after how many bytes an answer breaks off."""

    def __init__(self):
        self.files = {}
        self.asked = []
        self.breaks = None
        self.tags = True


@pytest.fixture
def home():
    kept = Home()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            path = self.path.lstrip("/")
            kept.asked.append((path, self.headers.get("Range")))
            if path.startswith("moved/"):
                self.send_response(302)
                self.send_header("Location", path.removeprefix("moved"))
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            if path not in kept.files:
                self.send_error(404)
                return
            data = kept.files[path]
            tag = f'"{hashlib.sha256(data).hexdigest()[:12]}"'
            begin = 0
            asked = self.headers.get("Range")
            if asked and self.headers.get("If-Range") == tag:
                begin = int(asked.removeprefix("bytes=").removesuffix("-"))
            if begin >= len(data):
                self.send_error(416)
                return
            self.send_response(206 if begin else 200)
            self.send_header("Content-Length", str(len(data) - begin))
            if begin:
                self.send_header("Content-Range", f"bytes {begin}-{len(data) - 1}/{len(data)}")
            if kept.tags:
                self.send_header("ETag", tag)
            self.end_headers()
            end = len(data) if kept.breaks is None else begin + kept.breaks
            self.wfile.write(data[begin:end])
            if end < len(data):
                self.close_connection = True

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        kept.url = f"http://127.0.0.1:{server.server_port}/"
        yield kept
        server.shutdown()


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DIALORE_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "cache" / "data"


@pytest.fixture
def kbp(home, tmp_path, monkeypatch):
    """KBP's archive as its authors made it, at our server, which the table names."""
    entries = (write_data(tmp_path / "made") / "kbp" / "test.json").read_bytes()
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as zipped:
        zipped.writestr("kbp/test.json", entries)
        zipped.writestr("__MACOSX/kbp/._test.json", b"shadow")
        zipped.writestr("kbp/dev.json", entries)
    home.files["kbp.zip"] = made.getvalue()
    table = {
        "base": home.url,
        "splits": {"dev": "kbp.zip:kbp/dev.json", "test": "kbp.zip:kbp/test.json"},
        "sha256": {"kbp.zip": hashlib.sha256(made.getvalue()).hexdigest()},
    }
    told = {"kbp": table, "personachat": {"base": home.url, "splits": {"test": "test.txt"}}}
    monkeypatch.setattr(published, "published_sets", lambda: told)
    return table


@pytest.fixture
def call(capsys):
    def run(*arguments):
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            main(["data", *map(str, arguments)])
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        return int(left.value.code or 0), said.out, said.err

    return run


def test_an_archive_is_fetched_once_checked_and_its_members_found_by_name(call, kbp, home, cache):
    code, out, err = call("get", "kbp", "--json")
    assert (code, len(home.asked)) == (0, 1)
    said = [json.loads(line) for line in out.splitlines()]
    assert [one["split"] for one in said] == ["dev", "test"]
    assert all(one["checked"] and one["sha256"] == kbp["sha256"]["kbp.zip"] for one in said)
    assert "kbp: licence: none stated; github.com/ruleGreen/SAFARI, kbp.zip" in err
    assert sorted(path.name for path in cache.glob("kbp/*.json")) == ["dev.json", "test.json"]
    assert data_file("kbp", "dev") == cache / "kbp" / "dev.json"
    config = make_config({"name": "x", "dataset": {"name": "kbp", "split": "test"}, "systems": ["vanilla"]})
    assert len(list(load_dialogues(config.dataset))) == 2
    assert len(list(data_set("kbp").read(data_file("kbp", "test")))) == 2
    assert call("show", "kbp", "--stats", "--split", "test")[0] == 0
    assert "name one of dev, test as the split" in call("show", "--stats", "kbp")[2]
    assert "the split 'train' of kbp is not here (fetch it" in call("show", "--stats", "kbp", "--split", "train")[2]


def test_the_only_file_that_is_here_needs_no_split(call, kbp, cache):
    assert call("get", "kbp", "--split", "dev")[0] == 0
    assert data_file("kbp") == cache / "kbp" / "dev.json"


def test_what_broke_off_goes_on_where_it_stopped(call, kbp, home, cache):
    home.breaks = 100
    code, out, err = call("get", "kbp", "--split", "dev")
    assert (code, out) == (2, "")
    assert f"kbp.zip broke off after 100 of {len(home.files['kbp.zip']):,} bytes (the same command goes on" in err
    assert not list(cache.glob("kbp/*.json"))
    home.breaks = None
    assert call("get", "kbp", "--split", "dev")[0] == 0
    assert home.asked == [("kbp.zip", None), ("kbp.zip", "bytes=100-")]
    assert sorted(path.name for path in cache.glob("kbp/*/*")) == ["kbp.zip"]


@pytest.mark.parametrize("tags", [True, False])
def test_a_file_that_changed_meanwhile_is_fetched_anew(call, kbp, home, tags):
    home.breaks, home.tags = 50, tags
    assert call("get", "personachat", "--from", f"{home.url}kbp.zip:dev")[0] == 2
    home.files["kbp.zip"] = b"other" * 100
    home.breaks = None
    code, _, err = call("get", "personachat", "--from", f"{home.url}kbp.zip", "--out", "got.bin")
    assert code == 0, err
    assert Path("got.bin").read_bytes() == b"other" * 100


def test_a_whole_file_that_was_never_checked_does_not_stand_in_the_way(call, kbp, home, cache):
    fetched = cache / "kbp" / "fetched"
    fetched.mkdir(parents=True)
    data = home.files["kbp.zip"]
    (fetched / "kbp.zip.part").write_bytes(data)
    (fetched / "kbp.zip.etag").write_text(f'"{hashlib.sha256(data).hexdigest()[:12]}"')
    assert call("get", "kbp", "--split", "dev")[0] == 0
    assert [asked for _, asked in home.asked] == [f"bytes={len(data)}-", None]


def test_another_file_than_was_published_is_not_kept(call, kbp, home, cache):
    home.files["kbp.zip"] += b"!"
    code, out, err = call("get", "kbp", "--split", "dev")
    assert (code, out) == (2, "")
    assert "kbp.zip is not the file that was published: its SHA-256 is " in err
    assert f"not {kbp['sha256']['kbp.zip']}" in err
    assert not [path for path in cache.rglob("*") if path.is_file()]


def test_a_hash_that_is_not_known_is_said(call, kbp, home):
    home.files["test.txt"] = b"1 your persona: i drink tea.\n2 hi\thello\n"
    code, out, err = call("get", "personachat")
    assert code == 0
    assert "not checked: what it should be is not known here" in err
    assert hashlib.sha256(home.files["test.txt"]).hexdigest() in err
    assert out.strip().endswith("personachat/test.txt")
    assert len(list(data_set("personachat").read(data_file("personachat")))) == 1
    assert not json.loads(call("get", "personachat", "--json")[1])["checked"]


def test_one_split_goes_where_it_is_wanted_by_way_of_a_redirect(call, kbp, home, tmp_path):
    kbp["base"] = f"{home.url}moved/"
    out = tmp_path / "data" / "kbp"
    assert call("get", "kbp", "--split", "test", "--out", out / "test.json")[0] == 0
    assert len(list(data_set("kbp").read(out / "test.json"))) == 2
    assert "--out is for one split" in call("get", "kbp", "--out", "x.json")[2]
    assert f"cannot write {out} (it is a folder)" in call("get", "kbp", "--split", "dev", "--out", out)[2]
    (tmp_path / "file").touch()
    assert "cannot write " in call("get", "kbp", "--split", "dev", "--out", "file/x.json")[2]


def test_a_member_of_a_tar_archive(call, kbp, home, tmp_path):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as tarred:
        for name in ("train", "test"):
            data = f"1 your persona: i like {name}.\n2 hi\thello\n".encode()
            entry = tarfile.TarInfo(f"personachat/{name}_self_original.txt")
            entry.size = len(data)
            tarred.addfile(entry, io.BytesIO(data))
    home.files["personachat.tgz"] = made.getvalue()
    source = f"{home.url}personachat.tgz:test_self_original.txt"
    right = hashlib.sha256(made.getvalue()).hexdigest()
    code, _, err = call("get", "personachat", "--from", source, "--sha256", right, "--split", "test")
    assert (code, "as it was published" in err) == (0, True)
    (dialogue,) = data_set("personachat").read(data_file("personachat", "test"))
    assert dialogue.persona == ("i like test.",)
    code, _, err = call("get", "personachat", "--from", f"{home.url}personachat.tgz:valid.txt")
    assert (code, "no file 'valid.txt' in it" in err) == (2, True)


def test_an_answer_that_is_no_archive_and_a_file_half_written(call, kbp, home, cache):
    home.files["page.zip"] = b"<html>Not found</html>"
    assert "page.zip: File is not a zip file (delete it" in call("get", "kbp", "--from", f"{home.url}page.zip:dev")[2]
    assert call("get", "kbp", "--split", "dev")[0] == 0
    (cache / "kbp" / "dev.json.part").touch()
    assert data_file("kbp") == cache / "kbp" / "dev.json"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["get", "kpb"], "did you mean kbp?"),
        (["get", "coq"], "unknown data set that can be fetched: 'coq'"),
        (["get", "kbp", "--split", "tset"], "did you mean test?"),
        (
            ["get", "kbp", "--from", "{url}none.json"],
            "none.json answers 404 Not Found (name another address)",
        ),
        (["get", "kbp", "--from", "http://127.0.0.1:9/x.json"], "cannot fetch http://127.0.0.1:9/x.json: "),
        (["get", "kbp", "--from", "dev.json"], "dev.json is no address (say https://... or hf:OWNER/NAME/FILE)"),
        (["get", "kbp", "--from", "file:///etc/hostname"], "file:///etc/hostname is no address"),
    ],
)
def test_what_is_wrong_is_one_line(call, kbp, home, arguments, words):
    code, out, err = call(*(each.replace("{url}", home.url) for each in arguments))
    assert (code, out) == (2, "")
    assert words in err.splitlines()[-1]


def test_a_broken_network_is_said(call, kbp, home, monkeypatch):
    def fails(*_, **__):
        raise TimeoutError

    monkeypatch.setattr("urllib.request.urlopen", fails)
    assert "kbp.zip: TimeoutError (the same command goes on where it stopped)" in call("get", "kbp")[2]


def test_the_table_names_published_files_whose_hashes_are_known_or_said_not_to_be():
    table = published.published_sets()
    wanted = {"dailydialog", "personachat", "wizard-of-wikipedia", "kbp", "multi-session-chat", "topical-chat", "mtrag"}
    assert wanted <= table.keys()
    for name, said in table.items():
        assert name in data_set_names() or (said["licence"] and said["note"])
        files = remotes(name)
        assert all(each.url.startswith(("https://", "http://parl.ai/downloads/")) for each in files.values())
        assert all(each.sha256 for each in files.values() if each.url.startswith("http://"))
        assert all(len(each.sha256) in {0, 64} for each in files.values())
        assert len(said.get("sha256", {})) == len({each.url for each in files.values() if each.sha256})
    unknown = {name: [split for split, each in remotes(name).items() if not each.sha256] for name in table}
    unchecked = {"conceptnet": ["assertions"], "mtrag": ["reference"], "topical-chat": ["train"]}
    assert {name: splits for name, splits in unknown.items() if splits} == unchecked


def test_an_address_of_the_hub():
    found = remote("hf:owner/name/data/train.json", {"": "ab"})
    assert found.url == "https://huggingface.co/datasets/owner/name/resolve/main/data/train.json"
    assert (found.member, found.sha256) == ("", "ab")
