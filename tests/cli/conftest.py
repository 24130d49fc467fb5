"""The command line as a test sees it: arguments in, exit code and two texts out."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from benchmarks.endpoint import endpoint

import dialore
from dialore.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[Any]:
        """Standard output, which must be JSON lines and nothing else."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def complaint(self) -> str:
        """The one line on standard error of a command that could do nothing."""
        assert self.code == 2, (self.code, self.err)
        assert self.out == ""
        assert len(self.err.splitlines()) == 1, self.err
        assert self.err.startswith("dialore: error: ")
        assert "Traceback" not in self.err
        return self.err


@pytest.fixture(scope="session")
def cache_folder(new_cache: Callable[[], str]) -> Path:
    return Path(new_cache())


@pytest.fixture(autouse=True)
def at_home(cache_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One starter graph for all tests, a width that every machine has, and no Ollama of whoever runs them."""
    monkeypatch.setenv("DIALORE_CACHE", str(cache_folder))
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("PYTHONPATH", str(Path(dialore.__file__).parents[1]))  # for processes, wherever they start
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("dialore.llm.connection.ollama_models", list)


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Done]:
    """Run `dialore` in this process."""

    def run(*arguments: object, stdin: str = "") -> Done:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8"))
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            main([str(argument) for argument in arguments])
        said = capsys.readouterr()
        return Done(int(left.value.code or 0), said.out, said.err)

    return run


@pytest.fixture(scope="session")
def url() -> Iterator[str]:
    """A chat endpoint in another process that answers every stage at once and plausibly."""
    with endpoint() as base_url:
        yield base_url


THROAT = {"id": "throat", "turns": ["I have a job interview tomorrow and a sore throat."]}
LONDON = {"id": "london", "turns": ["I am off to London.", "How nice, for how long?", "A weekend, and it will rain."]}
SOUP = {"id": "soup", "turns": ["我感冒了，嗓子疼。"]}


@pytest.fixture
def talks(tmp_path: Path) -> Path:
    """Three dialogues, one of them Chinese."""
    path = tmp_path / "talks.jsonl"
    path.write_text("".join(json.dumps(each, ensure_ascii=False) + "\n" for each in (THROAT, LONDON, SOUP)), "utf-8")
    return path
