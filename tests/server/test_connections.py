"""Connections, heads and bodies are bounded in number, size and time, by raw sockets to a real server."""

from __future__ import annotations

import socket
import time

import pytest

from tests.server.conftest import wait_until

GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"


def opened(running):
    host, port = running.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=10)


def answer(connection):
    said = b""
    try:
        while more := connection.recv(65536):
            said += more
    except ConnectionResetError:
        pass
    return said.decode()


def test_a_large_head_is_refused_while_it_comes(serving, monkeypatch):
    monkeypatch.setattr("dialore.server.connections.MAX_HEAD", 5000)
    running = serving()
    for line in (b"X: " + b"a" * 900 + b"\r\n", b"a" * 900):  # many headers, one without an end
        with opened(running) as connection:
            connection.sendall(GET)
            try:
                for _ in range(3000):
                    connection.sendall(line)
            except (BrokenPipeError, ConnectionResetError):
                pass
            said = answer(connection)
            assert not said or said.startswith("HTTP/1.1 431 ")
    with opened(running) as connection:
        connection.sendall(GET + b"X: " + b"a" * 6000 + b"\r\n\r\n")
        assert answer(connection).startswith("HTTP/1.1 431 ")
    assert running.http.get("/healthz").status_code == 200


@pytest.mark.parametrize("begun", [b"", GET, b"G"])
def test_an_unfinished_head_is_not_waited_for(serving, monkeypatch, begun):
    monkeypatch.setattr("dialore.server.connections.HEAD_S", 0.3)
    running = serving()
    with opened(running) as connection:
        connection.sendall(begun)
        assert answer(connection).startswith("HTTP/1.1 408 ")
    with opened(running) as connection:  # one after a whole one, too
        connection.sendall(GET + b"\r\n" + GET)
        said = answer(connection)
        assert said.startswith("HTTP/1.1 200 ")
        assert "HTTP/1.1 408 " in said


def test_a_body_that_trickles_is_given_up_as_a_whole(serving, monkeypatch):
    monkeypatch.setattr("dialore.server.middleware.BODY_S", 0.5)
    running = serving(server={"annotate": None})
    for path in ("/v1/chat/completions", "/v1/annotate/answers"):
        with opened(running) as connection:
            head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900\r\n\r\n"
            connection.sendall(head.encode())
            began = time.monotonic()
            connection.settimeout(0.1)
            said = b""
            while not said and time.monotonic() - began < 10:
                connection.sendall(b" ")
                try:
                    said = connection.recv(65536)
                except TimeoutError:
                    continue
            assert said.startswith(b"HTTP/1.1 408 ")


def test_an_address_has_so_many_connections(serving):
    running = serving(server={"connections_per_address": 3})
    running.http.close()
    held = [opened(running) for _ in range(3)]
    try:
        time.sleep(0.1)
        with opened(running) as connection:
            assert answer(connection).startswith("HTTP/1.1 503 ")
    finally:
        for each in held:
            each.close()

    def answered():
        with opened(running) as connection:
            connection.sendall(GET + b"Connection: close\r\n\r\n")
            return answer(connection).startswith("HTTP/1.1 200 ")

    wait_until(answered)


@pytest.mark.parametrize("reads_again", [True, False])
def test_a_client_that_does_not_read_is_disconnected(serving, monkeypatch, reads_again):
    monkeypatch.setattr("dialore.server.connections.READ_S", 0.3)
    running = serving()
    connections = running.server.server_state.connections
    with opened(running) as client:
        wait_until(lambda: connections)
        [connection] = connections
        connection.loop.call_soon_threadsafe(connection.pause_writing)  # as asyncio does when its buffer is full
        if reads_again:
            connection.loop.call_soon_threadsafe(connection.resume_writing)
            time.sleep(0.5)
            client.sendall(GET + b"Connection: close\r\n\r\n")
        assert bool(answer(client)) == reads_again


def test_an_open_path_has_so_many_requests_of_an_address(serving, monkeypatch):
    monkeypatch.setattr("dialore.server.middleware.OPEN_PER_ADDRESS", 2)
    running = serving()
    head = b"POST /v1/annotate/answers HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"
    held = [opened(running) for _ in range(2)]
    try:
        for each in held:
            each.sendall(head)
        wait_until(lambda: running.http.post("/v1/annotate/answers", json={}).status_code == 429)
        assert running.http.get("/v1/models").status_code == 200
    finally:
        for each in held:
            each.close()
    wait_until(lambda: running.http.post("/v1/annotate/answers", json={}).status_code == 400)


def test_an_open_path_has_the_size_of_all(serving):
    running = serving(server={"max_body": 500})
    assert running.http.post("/v1/annotate/answers", content=b"x" * 501).status_code == 413


@pytest.mark.parametrize(
    "header", [b"Host: elsewhere.example", b"host: localhost", b"Authorization: Bearer b", b"Origin: http://b.example"]
)
def test_a_header_that_decides_about_access_may_not_be_repeated(serving, header):
    running = serving()
    name = header.partition(b":")[0].lower()
    first = {b"host": b"", b"authorization": b"Authorization: Bearer a\r\n", b"origin": b"Origin: http://localhost\r\n"}
    with opened(running) as connection:
        connection.sendall(GET + first[name] + header + b"\r\nConnection: close\r\n\r\n")
        head, _, body = answer(connection).partition("\r\n\r\n")
    assert head.startswith("HTTP/1.1 400 ")
    assert name.decode() in body
