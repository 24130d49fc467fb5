"""deploy/: two workers on one folder and PostgreSQL, behind nginx with the configuration that is shipped."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest
import yaml

from dialore.cli import main
from dialore.settings import read_settings
from tests.llm.server import FaultyServer, say
from tests.postgres_server import binaries
from tests.server.conftest import is_up, wait_until

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
BLOCKS = {"": [], "sh": [], "caddy": []}
for _kind, _block in re.findall(
    r"^```(\w*)\n(.*?)^```", (ROOT / "docs" / "operations.md").read_text("utf-8"), re.M | re.S
):
    BLOCKS[_kind].append(_block)
DRAFT = "Dogs are welcome on the terrace and so are you"


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class Workers:
    """Processes of `dialore serve` on one folder and store, and nginx before them."""

    def __init__(self, folder, store, cache):
        from dialore.server.middleware import new_key

        self.folder, self.cache, self.processes, self.model = folder, cache, {}, FaultyServer()
        self.model.by_request = lambda asked: (
            say('{"needs": []}') if asked.body.get("response_format") else say(DRAFT, pause=0.15)
        )
        self.key, mark = new_key()
        text = (DEPLOY / "dialore.toml").read_text("utf-8")
        text = text.replace("/data/known", str(folder / "known")).replace("postgresql://dialore@db/dialore", store)
        key = f'[[server.keys]]\nname = "app"\nsha256 = "{mark}"\nknowledge = true\n'
        (folder / "dialore.toml").write_text(text + key, "utf-8")
        self.ports = [free_port(), free_port()]
        for port in self.ports:
            self.start(port)
        self.port, binary = free_port(), shutil.which("nginx")
        servers = "".join(f"server 127.0.0.1:{port};" for port in self.ports)
        own = "access_log off;" + "".join(
            f"{each}_temp_path {folder}/{each};" for each in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        conf = (DEPLOY / "nginx.conf").read_text("utf-8").replace("server dialore:8017;", servers)
        conf = conf.replace("listen 8080;", f"listen 127.0.0.1:{self.port};").replace("http {", f"http {{ {own}")
        (folder / "nginx.conf").write_text(conf, "utf-8")
        user = " user root;" if os.geteuid() == 0 else ""
        alone = f"daemon off; pid {folder}/nginx.pid; error_log {folder}/nginx.log;{user}"
        words = [binary, "-p", str(folder), "-c", str(folder / "nginx.conf"), "-g", alone]
        with (folder / "nginx.err").open("w") as err:
            self.nginx = subprocess.Popen(words, stderr=err)
        wait_until(lambda: is_up(f"http://127.0.0.1:{self.port}/readyz"), 30)
        self.http = httpx.Client(
            base_url=f"http://127.0.0.1:{self.port}",
            headers={"Authorization": f"Bearer {self.key}"},
            timeout=60,
            trust_env=False,
        )

    def start(self, port):
        environment = {
            **os.environ,
            "DIALORE_BASE_URL": self.model.url,
            "DIALORE_MODEL": "served-model",
            "DIALORE_CACHE": self.cache,
        }
        words = [
            sys.executable,
            "-m",
            "dialore",
            "serve",
            "dialore.toml",
            "--port",
            str(port),
            "--set",
            "model.no_cache=true",
        ]
        with self.log(port).open("a") as err:
            self.processes[port] = subprocess.Popen(words, cwd=self.folder, env=environment, stderr=err)
        wait_until(lambda: self.processes[port].poll() is not None or self.is_ready(port), 60)
        assert self.processes[port].poll() is None, self.log(port).read_text()

    def is_ready(self, port):
        return is_up(f"http://127.0.0.1:{port}/readyz")

    def log(self, port):
        return self.folder / f"{port}.log"

    def answered(self, port):
        """How many completions a worker has logged."""
        return self.log(port).read_text().count("/v1/chat/completions")

    def say(self, **further):
        body = {"messages": [{"role": "user", "content": "May I bring my dog?"}], **further}
        return self.http.post("/v1/chat/completions", json=body)

    def stream(self):
        """The pieces of text and when each came; whether the stream ended as it should."""
        body = {"messages": [{"role": "user", "content": "Hello!"}], "stream": True}
        pieces, lines = [], []
        with self.http.stream("POST", "/v1/chat/completions", json=body) as answer:
            for line in answer.iter_lines():
                lines.append(line)
                if line.startswith("data: {") and (choices := json.loads(line[6:])["choices"]):
                    pieces += [(text, time.monotonic())] if (text := choices[0]["delta"].get("content")) else []
        return "".join(text for text, _ in pieces), [at for _, at in pieces], "data: [DONE]" in lines

    def close(self):
        self.http.close()
        for process in (self.nginx, *self.processes.values()):
            process.terminate()
        for process in (self.nginx, *self.processes.values()):
            process.wait(30)
        self.model.close()


@pytest.fixture(scope="module")
def workers(tmp_path_factory, request, new_cache):
    if shutil.which("nginx") is None:
        pytest.skip("nginx is not here: apt-get install nginx-light")
    postgres = request.getfixturevalue("postgres_server")
    running = Workers(tmp_path_factory.mktemp("workers"), postgres.url(), new_cache())
    yield running
    running.close()


def test_any_worker_answers_and_knows_what_another_was_told(workers):
    added = workers.http.post("/v1/knowledge/documents", json={"text": "Dogs are welcome.", "title": "Dogs"})
    assert added.status_code in {200, 201}, added.text
    assert workers.http.put("/v1/memory/consent", json={"user": "ann", "consents": True}).status_code == 200
    answers = [workers.say() for _ in range(4)]
    assert {answer.status_code for answer in answers} == {200}
    assert all(workers.answered(port) for port in workers.ports)
    for answer in answers:
        trace = answer.json()["choices"][0]["message"]["grounding"]["trace"]
        assert workers.http.get(f"/v1/traces/{trace}").status_code == 200  # the other worker's, each second time
    for _ in range(2):
        assert len(workers.http.get("/v1/knowledge/documents").json()["data"]) == 1
        assert workers.http.get("/v1/memory?user=ann").json()["consents"]


def test_a_stream_comes_as_it_is_written(workers):
    text, came, is_whole = workers.stream()
    assert (text, is_whole) == (DRAFT, True)
    assert came[-1] - came[0] > 0.5  # nine pauses of .15 s; what was held back would come at once


def test_what_a_page_of_another_site_or_nobody_asks_is_refused(workers):
    assert workers.http.get("/v1/models", headers={"Authorization": ""}).status_code == 401
    assert workers.http.get("/v1/models", headers={"Origin": "https://evil.example"}).status_code == 403
    own = f"http://127.0.0.1:{workers.port}"
    assert workers.http.get("/v1/models", headers={"Origin": own}).status_code == 200
    assert workers.http.get("/metrics").status_code == 404


def test_a_worker_that_is_asked_to_end_finishes_its_stream_and_the_other_goes_on(workers):
    leaving, staying = workers.ports
    found = []
    threads = [threading.Thread(target=lambda: found.append(workers.stream())) for _ in range(2)]
    for thread in threads:
        thread.start()
    time.sleep(0.7)  # one stream at each worker, in the middle
    workers.processes[leaving].send_signal(signal.SIGTERM)
    time.sleep(0.2)
    assert {workers.say().status_code for _ in range(3)} == {200}
    for thread in threads:
        thread.join(30)
    assert [(text, whole) for text, _, whole in found] == [(DRAFT, True)] * 2
    assert workers.processes[leaving].wait(20) in {0, -signal.SIGTERM}
    assert workers.is_ready(staying)
    workers.start(leaving)


def test_what_is_shown_of_a_backup_works(workers, postgres_server, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    added = workers.http.post("/v1/knowledge/documents", json={"text": "Dogs are welcome.", "title": "Dogs"})
    assert added.status_code in {200, 201}, added.text
    assert workers.http.put("/v1/memory/consent", json={"user": "bob", "consents": True}).status_code == 200
    monkeypatch.setenv("PATH", f"{binaries()}{os.pathsep}{os.environ['PATH']}")
    (shown,) = [block for block in BLOCKS["sh"] if "pg_dump" in block]
    for command in shown.replace("postgresql://dialore@db/dialore", postgres_server.url()).splitlines():
        words = shlex.split(command.replace("/data known", f"{workers.folder} known"))
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, (command, done.stderr)
    assert workers.http.get("/v1/memory?user=bob").json()["consents"]
    assert (tmp_path / "known.tar.gz").stat().st_size > 1000


# --- what is shipped and shown, without running it


def test_the_commands_shown_are_those_of_compose():
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text("utf-8"))
    (shown,) = [block for block in BLOCKS["sh"] if "docker compose" in block]
    wanted = set(re.findall(r"\$\{(\w+):\?", (ROOT / "compose.yaml").read_text("utf-8")))
    assert wanted == set(re.findall(r"^(\w+)=", shown, re.MULTILINE))
    assert "run --rm --no-deps dialore serve --new-key app" in shown
    assert compose["services"]["proxy"]["ports"] == ["127.0.0.1:8017:8080"]


@pytest.mark.parametrize("command", [line for block in BLOCKS[""] for line in block.splitlines()][1:])
def test_the_commands_shown_are_commands(command, capsys):
    with pytest.raises(SystemExit) as left:
        main([*shlex.split(command)[1:], *([] if "--new-key" in command else ["--help"])])
    assert not left.value.code
    assert "[[server.keys]]" in capsys.readouterr().out or "--new-key" not in command


@pytest.mark.skipif(shutil.which("caddy") is None, reason="caddy is not here: apt-get install caddy")
def test_the_configuration_of_caddy_is_one(tmp_path):
    (tmp_path / "Caddyfile").write_text(BLOCKS["caddy"][0], "utf-8")
    words = ["caddy", "validate", "--config", str(tmp_path / "Caddyfile")]
    environment = {
        **os.environ,
        "HOME": str(tmp_path),
        "XDG_DATA_HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path),
    }
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False, env=environment)
    assert done.returncode == 0, done.stderr


def test_the_image_runs_as_no_root_and_looks_after_its_health():
    text = re.sub(r"\\\n\s*", "", (ROOT / "Dockerfile").read_text("utf-8"))
    last = text.rpartition("\nFROM ")[2]
    assert re.search(r"^USER dialore$", last, re.MULTILINE)
    assert "/healthz" in re.search(r"^HEALTHCHECK (.*)$", last, re.MULTILINE)[1]
    for image in re.findall(r"^FROM (\S+)", text, re.MULTILINE):
        assert "/" not in image
    for each in re.findall(r"^COPY (?!--from)(.*)$", text, re.MULTILINE):
        assert all((ROOT / name).exists() for name in each.split()[:-1])
    kept = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    assert {"!src", "!pyproject.toml", "!README.md"} <= set(kept)


def test_without_a_key_the_image_says_what_it_lacks(tmp_path):
    text = re.sub(r"\\\n\s*", "", (ROOT / "Dockerfile").read_text("utf-8"))
    words = json.loads(re.search(r"^CMD (\[.*\])$", text, re.MULTILINE)[1])
    words[words.index("/etc/dialore/dialore.toml")] = str(DEPLOY / "dialore.toml")
    done = subprocess.run(
        [sys.executable, "-m", "dialore", *words], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert "key" in done.stderr.splitlines()[-1]


def test_the_image_looks_after_its_health_by_a_command_that_works(serving):
    text = re.sub(r"\\\n\s*", "", (ROOT / "Dockerfile").read_text("utf-8"))
    _, *words = json.loads(re.search(r"^HEALTHCHECK .*?CMD (\[.*\])$", text, re.MULTILINE)[1])
    port = serving().url.rpartition(":")[2]
    run = [sys.executable, *(word.replace("8017", port) for word in words)]
    assert subprocess.run(run, check=False).returncode == 0
    gone = [word.replace(port, str(free_port())) for word in run]
    assert subprocess.run(gone, check=False, stderr=subprocess.DEVNULL).returncode == 1


def test_compose_agrees_with_what_it_starts():
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text("utf-8"))
    services, settings = compose["services"], read_settings(DEPLOY / "dialore.toml")
    for service in services.values():
        assert set(service.get("depends_on", {})) <= set(services)
        for volume in service.get("volumes", []):
            place = volume.split(":")[0]
            assert (ROOT / place).exists() if place.startswith("./") else place in compose["volumes"]
    assert settings.server.store == "postgresql://dialore@db/dialore"
    assert {services["db"]["environment"][name] for name in ("POSTGRES_USER", "POSTGRES_DB")} == {"dialore"}
    grace = int(services["dialore"]["stop_grace_period"].removesuffix("s"))
    timeout = int(re.search(r"proxy_read_timeout (\d+)s", (DEPLOY / "nginx.conf").read_text("utf-8"))[1])
    assert min(grace, timeout) > settings.server.max_seconds + 5
    assert settings.server.max_upload < 21 << 20
