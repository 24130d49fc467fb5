"""Files that never end, take all memory or end their process; names and things that no file should have."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

import dialore
from dialore.errors import InputError
from dialore.retrieval.chunking import Unreadable
from dialore.retrieval.documents.indexing import add_documents, build_documents, delete_documents
from dialore.retrieval.loaders.files import ReadFiles
from dialore.retrieval.loaders.reader import Reader
from dialore.sources.documents import DocumentIndex
from tests.retrieval.documents.files import pdf
from tests.retrieval.documents.pdfs import endless

posix = pytest.mark.skipif(os.name == "nt", reason="names, pipes and signals are otherwise there")


def texts(path: Path) -> set[str]:
    with DocumentIndex(path) as index:
        return {piece.text for piece in index.passages()}


def read(reader: Reader, path: Path, file_format: str = "text") -> list[tuple[str, str]]:
    return list(reader.read(path, file_format))


@pytest.fixture
def good(tmp_path):
    path = tmp_path / "files" / "quince.txt"
    path.parent.mkdir()
    path.write_text("A quince is hard.", "utf-8")
    return path


def test_a_file_beyond_a_limit_is_rejected_by_name_and_the_others_are_built(tmp_path, good):
    (good.parent / "endless.pdf").write_bytes(endless())
    (good.parent / "large.txt.gz").write_bytes(gzip.compress(b"more and more " * 40_000_000, 1))
    (good.parent / "long.txt").write_text("more and more " * 10_000, "utf-8")
    with Reader(seconds=3, memory=400_000_000, characters=100_000) as reader:
        report = build_documents(tmp_path / "index", [good.parent], vectors=False, reader=reader)
    reasons = {Path(line.partition(": ")[0]).name: line.partition(": ")[2] for line in report.rejects}
    # A PDFium of before 2026 has used up the memory by then, and ends.
    assert reasons.pop("endless.pdf") in (
        "reading it takes longer than 3 seconds",
        "the process that read it ended (-6): it is damaged, or needs too much memory",
    )
    assert reasons == {
        "large.txt.gz": "reading it takes more than 400,000,000 bytes of memory",
        "long.txt": "it has more than 100,000 characters of text",
    }
    assert texts(tmp_path / "index") == {"A quince is hard."}


def test_one_process_reads_all_files_and_another_begins_where_it_ends(good):
    with Reader() as reader:
        processes = set()
        for _ in range(3):
            assert len(read(reader, good)) == 1
            processes.add(reader._process.pid)
        assert len(processes) == 1
        reader._process.kill()
        reader._process.wait()
        assert len(read(reader, good)) == 1
        slow = good.with_name("endless.pdf")
        slow.write_bytes(endless())
        threading.Timer(0.5, lambda: os.kill(reader._process.pid, signal.SIGTERM)).start()
        with pytest.raises(Unreadable, match="the process that read it ended"):
            read(reader, slow, "pdf")
        assert len(read(reader, good)) == 1
    assert reader._process is None


def test_lines_have_no_limit_together(tmp_path):
    path = tmp_path / "many.jsonl"
    path.write_text("".join(f'"Line {n} of many."\n' for n in range(5000)), "utf-8")
    with Reader(characters=1000) as reader:
        assert len(read(reader, path, "jsonl")) == 5000


def test_an_index_can_be_changed_while_a_file_is_read(tmp_path, good):
    build_documents(tmp_path / "index", texts=["tea"], vectors=False)
    (good.parent / "endless.pdf").write_bytes(endless())
    reports = []

    def add() -> None:
        with Reader(seconds=4) as reader:
            reports.append(add_documents(tmp_path / "index", [good.parent], reader=reader))

    adding = threading.Thread(target=add)
    adding.start()
    changes = 0
    while adding.is_alive():
        if not reports:
            add_documents(tmp_path / "index", texts=[f"rice {changes}"], texts_name=f"rice{changes}")
            changes += 1
        time.sleep(0.3)
    adding.join()
    assert changes > 5
    assert texts(tmp_path / "index") >= {"tea", "rice 0", f"rice {changes - 1}", "A quince is hard."}


SCRIPT = """
    from dialore.retrieval.loaders.reader import Reader
    from pathlib import Path
    with Reader(seconds=30) as reader:
        print(list(reader.read(Path("head.md"), "markdown")))
"""


@pytest.mark.parametrize("arguments", [["yaml.py"], ["-m", "yaml"], ["other.py"]])
def test_a_script_with_the_name_of_a_library_is_not_imported_by_the_process(tmp_path, arguments):
    (tmp_path / "head.md").write_text("---\ncolour: yellow\n---\nA quince is hard.\n", "utf-8")
    for name in ("yaml.py", "other.py"):
        (tmp_path / name).write_text(textwrap.dedent(SCRIPT), "utf-8")
    environment = {**os.environ, "PYTHONPATH": str(Path(dialore.__file__).parents[1])}
    command = [sys.executable, *arguments]
    output = subprocess.check_output(command, env=environment, cwd=tmp_path, text=True, timeout=60)
    assert len(output.splitlines()) == 1
    assert "yellow" in output


PARENT = """
    import sys
    from pathlib import Path
    from dialore.retrieval.loaders.reader import Reader
    reader = Reader(seconds=600)
    reader._begun()
    print(reader._process.pid, flush=True)
    list(reader.read(Path(sys.argv[1]), "pdf"))
"""


@posix
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_process_ends_with_whoever_began_it(tmp_path, number):
    (tmp_path / "endless.pdf").write_bytes(endless())
    environment = {**os.environ, "PYTHONPATH": str(Path(dialore.__file__).parents[1])}
    command = [sys.executable, "-c", textwrap.dedent(PARENT), str(tmp_path / "endless.pdf")]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as parent:
        child = int(parent.stdout.readline())
        time.sleep(0.5)
        assert Path(f"/proc/{child}").exists() or sys.platform != "linux"
        parent.send_signal(number)
    for _ in range(100):
        try:
            state = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            break
        if state == "Z":  # ended; whoever inherits it has not looked yet
            break
        time.sleep(0.1)
    else:
        pytest.fail("the process goes on")


@posix
def test_what_is_no_file_is_passed_over_with_a_word(tmp_path, good):
    folder = good.parent
    os.mkfifo(folder / "pipe.txt")
    (folder / "nowhere.md").symlink_to("gone.md")
    (tmp_path / "elsewhere").mkdir()
    (folder / "link").symlink_to(tmp_path / "elsewhere")
    report = build_documents(tmp_path / "index", [folder], vectors=False)
    told = {line.removeprefix(f"{folder.resolve()}/") for line in report.notices}
    assert told == {
        "pipe.txt: no file but a pipe, a socket or a device",
        "nowhere.md: a link to nothing",
        "link: a link to a folder is not followed",
    }
    assert (report.documents, report.rejects) == (1, [])
    report = add_documents(tmp_path / "index", [good, folder / "pipe.txt"])
    assert "pipe.txt: no file but a pipe" in report.rejects[0]


@posix
@pytest.mark.skipif(sys.platform == "darwin", reason="names are UTF-8 there")
def test_a_name_that_is_no_utf8_is_shown_kept_and_found_again(tmp_path, good):
    folder = good.parent
    for number, name in enumerate((b"bad\xff.txt", b"bad\xfe.txt")):
        (folder / os.fsdecode(name)).write_bytes(b"Lychee number %d." % number)
    report = build_documents(tmp_path / "index", [folder], vectors=False)
    assert (report.documents, report.rejects) == (3, [])
    with DocumentIndex(tmp_path / "index") as index:
        names = {Path(document.name).name for document in index.documents()}
        assert names == {"quince.txt", r"bad\xff.txt", r"bad\xfe.txt"}
        assert index.find("lychee", 1)[0].model_dump_json()
    assert add_documents(tmp_path / "index", [folder], prune=True).unchanged == 3
    (folder / os.fsdecode(b"bad\xff.txt")).unlink()
    assert add_documents(tmp_path / "index", [folder], prune=True).deleted == 1
    gone = delete_documents(tmp_path / "index", files=[folder / os.fsdecode(b"bad\xfe.txt")])
    assert (gone.deleted, gone.missing) == (1, [])


def test_texts_and_names_of_every_kind_are_kept(tmp_path):
    report = build_documents(
        tmp_path / "index",
        texts=["half \ud83d and \0 none", "whole \ud83d\ude00"],
        texts_name="a\udcffb",
        name="c\ud800",
    )
    assert report.passages == 2
    assert texts(tmp_path / "index") == {"half \ufffd and \ufffd none", "whole \U0001f600"}
    with DocumentIndex(tmp_path / "index") as index:
        assert (index.name, index.documents()[0].name) == ("c\ufffd", "a\ufffdb")


def test_all_that_is_left_out_is_in_the_report(tmp_path):
    from typer.testing import CliRunner

    from dialore.cli.documents import app

    (tmp_path / "files").mkdir()
    for number in range(14):
        (tmp_path / "files" / f"{number:02}.pdf").write_bytes(pdf("Whales sing.")[: 200 * (number > 0) or None])
    index = str(tmp_path / "index")
    ran = CliRunner().invoke(app, ["build", index, str(tmp_path / "files"), "--json"])
    assert json.loads(ran.stdout)["rejected"] == len(json.loads(ran.stdout)["rejects"]) == 13
    ran = CliRunner().invoke(app, ["build", index, str(tmp_path / "files")])
    assert ran.stderr.count("damaged PDF") == 10
    assert "left out: 3 more lines or files" in ran.stderr


def test_a_folder_that_cannot_be_written_is_named_before_a_file_is_read(tmp_path):
    (tmp_path / "tea.txt").write_text("Green tea is not fermented.", "utf-8")
    missing = tmp_path / "missing"
    with pytest.raises(InputError, match="No such file or directory") as raised:
        ReadFiles(tmp_path / "tea.txt", folder=missing)
    assert str(missing) in raised.value.message
    assert "permissions" in raised.value.hint
