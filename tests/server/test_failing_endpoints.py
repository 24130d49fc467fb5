"""Whatever a language model's endpoint does wrong, a request ends with an error and the service goes on."""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest

from dialore.errors import error_chain
from dialore.llm.connection import connect
from dialore.server.errors import without_addresses
from tests.server.conftest import wait_until

SECRET_PATH = "/srv/models/private/weights.bin"
STATUSES = (302, 307, 400, 401, 402, 403, 404, 408, 422, 429, 500, 503)
METHODS = ("vanilla", "rag", "weave")


class FailingEndpoint(BaseHTTPRequestHandler):
    """Answers each request as the server's `failure` says: a status, `broken` (stream) or `page` (HTML)."""

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        failure = self.server.failure
        if failure == "broken":
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            chunk = {"choices": [{"index": 0, "delta": {"content": "Dogs are"}}]}
            self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        message = f"Incorrect API key provided for {SECRET_PATH}" if failure == 500 else f"refused by {SECRET_PATH}"
        body = json.dumps({"error": {"message": message}}).encode()
        if failure == "page":
            body = b"<html>It works!</html>"
        self.send_response(200 if failure == "page" else failure)
        if failure in {302, 307}:
            self.send_header("Location", "http://elsewhere.example/v1")
        self.send_header("Content-Type", "text/html" if failure == "page" else "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def endpoint():
    server = ThreadingHTTPServer(("127.0.0.1", 0), FailingEndpoint)
    server.url = f"http://127.0.0.1:{server.server_port}/v1"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def running(tmp_path_factory, endpoint):
    """One service per method, all with a model behind the failing endpoint."""
    from tests.server.conftest import services

    folder = tmp_path_factory.mktemp("failing")
    (folder / "handbook.md").write_text("# Terrace\n\nDogs are welcome on the terrace.\n", "utf-8")
    with services(folder) as start:
        started = {}
        for method in METHODS:
            sources = {} if method == "vanilla" else {"documents": [str(folder / "handbook.md")]}
            model = connect("m", base_url=endpoint.url, retries=0, timeout=5)
            server = {"folder": str(folder / method)}
            started[method] = start(model, method=method, sources=sources, server=server)
        yield started


def last_event(text):
    events = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return json.loads(events[-1])


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("failure", [*STATUSES, "broken", "page"])
def test_a_failing_endpoint_is_an_error_and_the_service_goes_on(running, endpoint, failure, method, streamed):
    endpoint.failure = failure
    service = running[method]
    answer = service.say("Dogs on the terrace?", stream=streamed)
    error = answer.json()["error"] if answer.status_code != 200 else last_event(answer.text)["error"]
    assert streamed or answer.status_code == 502
    assert error["code"] in {"model_failed", "stage_failed"}
    assert "127.0.0.1" not in error["message"]
    assert SECRET_PATH not in error["message"]
    assert "elsewhere.example" not in error["message"]
    if isinstance(failure, int):
        assert str(failure) in error["message"]
    assert service.http.get("/healthz", timeout=5).status_code == 200


def test_an_endpoint_that_does_not_listen_is_an_error(serving, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
    service = serving(connect("m", base_url=url, retries=0), method="vanilla")
    answer = service.say()
    assert answer.status_code == 502
    assert "listens" in answer.json()["error"]["message"]
    assert service.http.get("/healthz").status_code == 200


@pytest.fixture
def self_signed_endpoint(tmp_path):
    """The URL of an endpoint over TLS whose certificate no authority has signed."""
    if (openssl := shutil.which("openssl")) is None:
        pytest.skip("the command openssl is not installed")
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    command = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*command, *names, "-out", certificate, "-keyout", key], check=True, capture_output=True, timeout=60)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = ThreadingHTTPServer(("127.0.0.1", 0), FailingEndpoint)
    server.handle_error = lambda *_: None  # the client ends the handshake
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"https://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_an_endpoint_with_an_untrusted_certificate_is_an_error(serving, self_signed_endpoint, streamed):
    service = serving(connect("m", base_url=self_signed_endpoint, retries=0), method="vanilla")
    answer = service.say(stream=streamed)
    error = answer.json()["error"] if answer.status_code != 200 else last_event(answer.text)["error"]
    assert streamed or answer.status_code == 502
    assert "certificate" in error["message"]
    assert "SSL_CERT_FILE" in error["message"]
    assert "127.0.0.1" not in error["message"]
    assert service.http.get("/healthz", timeout=5).status_code == 200


def test_figures_count_the_outcome_of_a_stream_and_not_its_head(running, endpoint):
    endpoint.failure = 500
    service = running["vanilla"]
    assert service.say(stream=True).status_code in {200, 502}

    def counted():
        metrics = httpx.get(f"{service.url}/metrics", trust_env=False).text
        lines = [line for line in metrics.splitlines() if line.startswith("dialore_requests_total")]
        return [line for line in lines if "chat/completions" in line]

    wait_until(lambda: any('status="502"' in line for line in counted()))
    assert not any('status="200"' in line for line in counted())


@pytest.mark.parametrize(
    "address",
    [
        "https://llm.internal/v1",
        "http://[fd00::12]:8000/v1",
        "10.0.0.3",
        "10.0.0.3:8000",
        "fd00::12",
        "llm.internal:8000",
        "gpu7:8000",
        "localhost",
        "root@gpu7.internal:22",
        "/srv/models/private.gguf",
        "~/models/private.gguf",
        "C:\\models\\private.gguf",
        r"\\files\models\private.gguf",
    ],
)
def test_clients_see_no_address_in_a_message(address):
    shown = without_addresses(f"cannot open {address}, at step 12:30:45 of gpt-4.1 (and/or 3/4)")
    for word in ("llm", "internal", "10.0", "fd00", "gpu7", "localhost", "root", "private", "models", "files"):
        assert word not in shown
    assert shown.startswith("cannot open ")
    assert shown.endswith(" at step 12:30:45 of gpt-4.1 (and/or 3/4)")


def test_an_endpoint_whose_host_is_unknown_is_an_error_without_its_name(serving):
    service = serving(connect("m", base_url="http://llm.no-such-host.invalid/v1", retries=0), method="vanilla")
    for streamed in (False, True):
        answer = service.say(stream=streamed)
        assert '"error"' in answer.text
        assert "no-such-host" not in answer.text


def test_an_error_chain_with_a_cycle_ends():
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    assert list(error_chain(first)) == [first, second]
    assert list(error_chain(None)) == []
