"""Runs by a batch API: as many batches as a method has steps; what goes wrong there, and a run that is killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections import Counter

import pytest
import pytest_asyncio
from aiohttp import web
from benchmarks.batches import BatchServer, refusal
from benchmarks.endpoint import completion

from dialore.cli import main
from dialore.errors import InputError, ModelError
from dialore.evaluation.report.tables import MainTable, how_to_read
from dialore.experiments.run import run_experiment
from dialore.experiments.store import RunStore
from dialore.llm import batches
from dialore.llm.capabilities import dialect_of
from dialore.llm.connection import connect
from dialore.llm.fake import FakeModel
from tests.experiments.conftest import write_dialogues


class FaultyBatches(BatchServer):
    """A provider that misbehaves to order.

    `refuse` holds answers by method and start of the path, which come before the real one; the other faults befall the
    first batch alone, or, where `always` holds, all.
    """

    def __init__(self):
        super().__init__(completion)
        self.refuse: dict[tuple[str, str], list] = {}
        self.always = False
        self.fault = lambda batch, rows: None
        self.problems = lambda lines: []
        self.direct: list[dict] = []
        self.paid: Counter[str] = Counter()
        self.sizes: list[int] = []
        self.url = ""
        self.hold = None
        self.lists = super().listed

    @web.middleware
    async def refusing(self, request, handler):
        for (method, path), answers in self.refuse.items():
            if request.method == method and request.path.startswith(path) and answers:
                answer = answers.pop(0)
                if answer == "cut":
                    request.transport.close()
                    return web.Response()
                return answer if isinstance(answer, web.Response) else refusal(*answer)
        return await (self.hold(request, handler) if self.hold else handler(request))

    async def chat(self, request):
        self.direct.append(await request.json())
        return web.json_response(completion(self.direct[-1]))

    async def listed(self, request):
        return await self.lists(request)

    def validated(self, content, endpoint):
        lines, problems = super().validated(content, endpoint)
        if not problems and (self.always or len(self.batches) == 1):
            problems = self.problems(lines)
        return lines, problems

    def answered(self, line):
        self.paid[line["custom_id"]] += 1
        return super().answered(line)

    def end(self, batch, rows, status="completed"):
        self.sizes.append(len(rows))
        if self.always or batch["id"] == next(iter(self.batches)):
            status = self.fault(batch, rows) or status
        super().end(batch, rows, status)


@pytest_asyncio.fixture
async def provider(monkeypatch):
    """A provider on this machine; batches are looked at often."""
    dialect_of.cache_clear()
    monkeypatch.setattr(batches, "POLL", 0.02)
    monkeypatch.setattr(batches, "QUIET", 0.1)
    monkeypatch.setattr(batches, "_RETRIES", 6)
    monkeypatch.setattr(batches, "_LONGEST_POLL", 0.05)
    server = FaultyBatches()
    app = web.Application(client_max_size=2**24, middlewares=[server.refusing])
    server.add_routes(app)
    app.router.add_post("/v1/chat/completions", server.chat)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.05)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    yield server
    await runner.cleanup()


@pytest.fixture
def go(provider, config_of, tmp_path):
    """Make a run of so many dialogues by batches."""

    async def made(count=6, folder="run", **changes):
        config = config_of(count, **{"systems": ["vanilla"], "models": [{"model": "m"}], "batch": True, **changes})

        def connected(_settings, _name):
            return connect("m", provider.url, cache=tmp_path / "cache.sqlite", retries=2)

        return await run_experiment(config, tmp_path / folder, connected, on_progress=said.append_words)

    class Said(list):
        def append_words(self, progress):
            self.append(progress.batches)

    said = Said()
    made.said = said
    return made


@pytest.mark.parametrize(("method", "steps"), [("vanilla", 1), ("safari", 2), ("dcrag", 4)])
async def test_a_method_takes_as_many_batches_as_it_has_steps_in_a_row(provider, go, method, steps):
    progress = await go(8, systems=[method])
    assert (progress.ok, progress.failed) == (8, 0)
    assert len(provider.batches) == steps
    assert set(provider.paid.values()) == {1}


async def test_more_dialogues_than_may_work_at_once_wait_together(provider, go):
    assert (await go(20, systems=["dcrag"], concurrency=3)).ok == 20
    assert len(provider.batches) == 4


async def test_dialogues_that_share_a_call_hold_nothing_up_for_ever(provider, go, monkeypatch):
    monkeypatch.setattr(batches, "_STUCK", 0.5)
    alone = {"name": "alone", "method": "dcrag", "options": {"cross_revision": False}}
    assert (await go(4, systems=["dcrag", alone])).ok == 8
    assert set(provider.paid.values()) == {1}


async def test_what_the_server_refuses_is_found_out_by_one_call_of_each_form(provider, go):
    progress = await go(8, systems=["dcrag"])
    assert [("response_format" in body) for body in provider.direct] == [True, False]
    assert progress.calls == len(provider.paid) + 2
    assert progress.tokens > 0


async def test_a_repair_is_a_further_batch(provider, go):
    def spoiled(body):
        answer = completion(body)
        if "response_format" in body and len(body["messages"]) < 4:
            answer["choices"][0]["message"]["content"] = "no JSON at all"
        return answer

    provider.answer = spoiled
    progress = await go(4, systems=[{"method": "qp-rag"}])
    assert progress.ok == 4
    assert len(provider.batches) == 3


@pytest.mark.parametrize(("limit", "value", "sizes"), [("MOST_REQUESTS", 3, [2, 3, 3]), ("MOST_BYTES", 1_500, [2] * 4)])
async def test_a_run_is_split_by_the_limits_of_the_provider(provider, go, monkeypatch, limit, value, sizes):
    monkeypatch.setattr(batches, limit, value)
    assert (await go(9)).ok == 9
    assert sorted(provider.sizes) == sizes
    if limit == "MOST_BYTES":
        assert all(len(provider.files[batch["input_file_id"]]) <= value for batch in provider.batches.values())


# --- the twelve faults


def expired(batch, rows):
    for row in rows[2:]:
        row |= {"response": None, "error": {"code": "batch_expired", "message": "This request expired."}}
    return "expired"


def cancelled(batch, rows):
    del rows[2:]
    return "cancelled"


def reordered(batch, rows):
    rows.reverse()


def missing(batch, rows):
    del rows[1]


def doubled(batch, rows):
    bad = {"status_code": 500, "body": {"error": {"message": "oops"}}}
    rows += [{**rows[0], "response": bad}, {**rows[1], "custom_id": "nobody's"}, {"custom_id": None}]


def one_error(batch, rows):
    rows[0]["response"] = {"status_code": 429, "body": {"error": {"message": "slow down", "code": "rate_limit"}}}
    rows[1] |= {"response": None, "error": {"code": "server_error", "message": "oops"}}


@pytest.mark.parametrize(
    ("fault", "again"),
    [(expired, 3), (cancelled, 3), (reordered, 0), (missing, 1), (doubled, 0), (one_error, 2)],
)
async def test_what_a_batch_does_not_answer_is_in_the_next(provider, go, fault, again):
    """Faults 2 to 7: nothing is lost, and what was answered is not asked for again."""
    provider.fault = fault
    progress = await go(6)
    assert (progress.ok, progress.failed) == (6, 0)
    assert sum(provider.paid.values()) == 5 + again
    assert len(provider.batches) == 1 + bool(again)


async def test_answers_out_of_order_go_to_their_own_dialogues(provider, go, tmp_path):
    provider.fault = reordered
    provider.answer = lambda body: {**completion(body), "model": str(abs(hash(body["messages"][-1]["content"])))}
    await go(6)
    with RunStore.open(tmp_path / "run") as store:
        for _, dialogue, response in store.responses():
            assert dialogue.last.text in response.trace[-1].messages[-1]["content"]


async def test_what_no_batch_answers_fails_with_a_hint_and_is_made_by_the_next_run(provider, go, tmp_path):
    provider.always, provider.fault = True, lambda batch, rows: rows.clear()
    progress = await go(6)
    assert (progress.ok, progress.failed) == (1, 5)
    assert len(provider.batches) == 3
    assert all("no answer" in why and "run it again" in why for why in progress.failures)
    provider.always = False
    progress = await go(6)
    assert (progress.before, progress.ok, progress.failed) == (1, 5, 0)


async def test_a_request_that_is_wrong_fails_alone(provider, go):
    def wrong(batch, rows):
        rows[0]["response"] = {"status_code": 400, "body": {"error": {"message": "this prompt is not allowed"}}}

    provider.always, provider.fault = True, wrong
    progress = await go(6)
    assert (progress.ok, progress.failed) == (5, 1)
    assert "this prompt is not allowed" in progress.failures[0]
    assert len(provider.batches) == 1


async def test_a_file_refused_for_one_line_goes_again_without_it(provider, go):
    """Fault 1: the whole batch failed in validation."""
    provider.problems = lambda lines: [{"code": "invalid", "message": "line 2 is odd", "line": 2, "param": None}]
    progress = await go(6)
    assert (progress.ok, progress.failed) == (5, 1)
    assert "line 2 is odd" in progress.failures[0]
    assert (len(provider.batches), provider.sizes) == (2, [4])


async def test_a_file_refused_as_a_whole_is_bounded_and_told(provider, go):
    provider.always = True
    provider.problems = lambda lines: [{"code": "model_not_found", "message": "no such model here", "line": None}]
    progress = await go(6)
    assert (progress.ok, progress.failed, len(provider.batches)) == (1, 5, 3)
    assert all("no such model here" in why for why in progress.failures)


async def test_more_than_the_account_may_have_under_way_goes_in_smaller_batches_one_by_one(provider, go):
    provider.always = True
    most = {"code": "token_limit_exceeded", "message": "Enqueued token limit reached for m", "line": None}
    provider.problems = lambda lines: [most] if len(lines) > 3 else []
    progress = await go(9)
    assert (progress.ok, progress.failed) == (9, 0)
    assert max(provider.sizes) <= 3
    assert set(provider.paid.values()) == {1}


async def test_what_is_too_much_beside_other_batches_waits_for_their_end(provider, go, monkeypatch):
    def problems(lines):
        others = [batch for batch in provider.batches.values() if batch["status"] == "in_progress"]
        under_way = sum(batch["request_counts"]["total"] for batch in others)
        code = {"code": "token_limit_exceeded", "message": "Enqueued token limit reached for m", "line": None}
        return [code] if under_way and under_way + len(lines) > 4 else []

    monkeypatch.setattr(batches, "MOST_REQUESTS", 3)
    provider.always, provider.problems, provider.polls = True, problems, 20
    assert (await go(9)).ok == 9
    assert sum(provider.sizes) == 8  # the first call is made directly; how the others are split is a matter of time
    assert len(provider.sizes) > 2
    assert set(provider.paid.values()) == {1}


async def test_polls_that_fail_are_borne(provider, go):
    """Fault 8."""
    errors = [(status, "trouble") for status in (429, 500, 503, 404)]
    provider.refuse["GET", "/v1/batches/"] = [*errors, "cut"]
    assert (await go(6)).ok == 6
    assert len(provider.batches) == 1
    assert any("batches under way: 1 (0 of 5 requests)" in words for words in go.said)


async def test_a_batch_that_the_server_no_longer_knows_is_sent_again(provider, go):
    provider.refuse["GET", "/v1/batches/"] = [(404, "no such batch")] * 3
    assert (await go(6)).ok == 6
    assert len(provider.batches) == 2


async def test_an_upload_that_is_cut_off_is_repeated_and_one_that_is_too_big_is_split(provider, go):
    """Fault 9."""
    provider.refuse["POST", "/v1/files"] = ["cut", "cut", (413, "Request Entity Too Large")]
    assert (await go(6)).ok == 6
    assert sorted(provider.sizes) == [2, 3]
    assert set(provider.paid.values()) == {1}


async def test_a_batch_whose_beginning_was_not_answered_is_not_begun_twice(provider, go):
    async def silent(request, handler):
        answer = await handler(request)
        if request.method == "POST" and request.path == "/v1/batches":
            provider.hold = None
            return refusal(502, "bad gateway")
        return answer

    provider.hold = silent
    assert (await go(6)).ok == 6
    assert len(provider.batches) == 1


@pytest.mark.parametrize("others", [0, 250])
async def test_a_batch_whose_beginning_broke_the_connection_is_looked_for(provider, go, others):
    async def cut(request, handler):
        answer = await handler(request)
        if request.method == "POST" and request.path == "/v1/batches":
            provider.hold = None
            request.transport.close()
        return answer

    async def listed(request):
        rows = [{"id": f"other-{index}", "input_file_id": f"other-{index}"} for index in range(others)]
        rows += list(provider.batches.values())
        start = 0
        if "after" in request.query:
            start = 1 + next(index for index, row in enumerate(rows) if row["id"] == request.query["after"])
        page = rows[start : start + int(request.query["limit"])]
        return web.json_response({"data": page, "has_more": start + len(page) < len(rows)})

    provider.hold = cut
    provider.lists = listed
    assert (await go(6)).ok == 6
    assert len(provider.batches) == 1
    assert set(provider.paid.values()) == {1}


async def test_a_parameter_that_is_refused_is_in_no_batch(provider, go):
    answered = provider.answered

    async def direct(request, handler):
        if request.path.endswith("/chat/completions") and "temperature" in await request.json():
            provider.direct.append(await request.json())
            return refusal(400, "Unsupported parameter: 'temperature' is not supported with this model.")
        return await handler(request)

    bodies = []

    def answered_line(line):
        bodies.append(line["body"])
        return answered(line)

    provider.hold, provider.answered = direct, answered_line
    assert (await go(6)).ok == 6
    assert len(provider.batches) == 1
    assert len(bodies) == 5
    assert not any("temperature" in body for body in bodies)


async def test_a_file_that_was_sent_before_and_is_gone_since_is_sent_again(provider, go):
    provider.refuse["POST", "/v1/batches"] = [(500, "trouble")] * 7
    with pytest.raises(ModelError, match="the same command again"):
        await go(6)
    assert (len(provider.files), len(provider.batches)) == (1, 0)
    provider.files.clear()
    progress = await go(6)
    assert (progress.before, progress.ok, progress.batches) == (1, 5, "")
    assert len(provider.batches) == 1


@pytest.mark.parametrize("spoil", [lambda content: content[:-40], lambda content: content[: content.rindex(b"{")]])
async def test_answers_that_stay_missing_end_the_run_and_are_read_by_the_next(provider, go, spoil):
    """Fault 10: the file stays shorter than the provider's count."""
    keep = provider.keep_file
    files = []

    def kept(content):
        name = keep(content)
        if b'"response"' in content and not files:
            files.append((name, content))
            provider.files[name] = spoil(content)
        return name

    provider.keep_file = kept
    with pytest.raises(ModelError, match=r"5 answers.* 4 .*the same command again"):
        await go(6)
    name, content = files[0]
    provider.files[name] = content
    progress = await go(6)
    assert progress.before + progress.ok == 6
    assert set(provider.paid.values()) == {1}


async def test_lines_that_cannot_be_read_beside_all_answers_are_left_out(provider, go):
    keep = provider.keep_file
    provider.keep_file = lambda content: keep(b"not JSON\n" + content if b'"response"' in content else content)
    assert (await go(6)).ok == 6
    assert set(provider.paid.values()) == {1}


def late_name(provider):
    """The state names the output file only when it is looked at a second time."""
    withheld = []

    async def hold(request, handler):
        answer = await handler(request)
        path = request.path
        if request.method == "GET" and path.startswith("/v1/batches/") and b"file-" in answer.body and not withheld:
            state = json.loads(answer.body)
            if state.get("output_file_id"):
                withheld.append(state["output_file_id"])
                return web.json_response(state | {"output_file_id": None})
        return answer

    provider.hold = hold


def refuse_content(*answers):
    def refuse(provider):
        provider.refuse["GET", "/v1/files/"] = list(answers)

    return refuse


def cut_between_lines(provider):
    """The first reading ends after the second line."""

    async def hold(request, handler):
        answer = await handler(request)
        if request.path.endswith("/content"):
            provider.hold = None
            lines = answer.body.splitlines(keepends=True)
            return web.Response(body=b"".join(lines[:2]), content_type="application/octet-stream")
        return answer

    provider.hold = hold


@pytest.mark.parametrize(
    "delay",
    [
        late_name,
        cut_between_lines,
        refuse_content((400, "File is not ready yet")),
        refuse_content(*[(404, "No such File object")] * 4),
        refuse_content(web.Response(body=b"", content_type="application/octet-stream")),
    ],
)
async def test_answers_that_come_late_are_waited_for_and_paid_once(provider, go, delay):
    delay(provider)
    assert (await go(6)).ok == 6
    assert set(provider.paid.values()) == {1}
    assert len(provider.batches) == 1


async def test_a_file_that_is_read_whole_the_second_time_is_not_paid_for_again(provider, go):
    half = web.Response(body=b'{"custom_id": "a', content_type="application/octet-stream")
    provider.refuse["GET", "/v1/files/"] = [half]
    assert (await go(6)).ok == 6
    assert set(provider.paid.values()) == {1}


async def test_a_file_of_answers_that_stays_missing_ends_the_run(provider, go):
    """Fault 11."""
    provider.refuse["GET", "/v1/files/"] = [(404, "No such File object")] * 10
    with pytest.raises(ModelError, match="the same command again") as raised:
        await go(6)
    assert raised.value.configuration
    assert (await go(6)).ok == 5
    assert set(provider.paid.values()) == {1}


async def test_answers_that_cannot_be_fetched_stop_the_run_and_are_not_paid_for_again(provider, go):
    provider.refuse["GET", "/v1/files/"] = [(500, "trouble")] * 7
    with pytest.raises(ModelError, match="the same command again finds its batches"):
        await go(6)
    assert (await go(6)).ok == 5
    assert set(provider.paid.values()) == {1}


# Fault 12: the process is killed while a batch is under way.
_CHILD = """
import asyncio, sys
from pathlib import Path
from dialore.experiments.config import read_config
from dialore.experiments.run import run_experiment
from dialore.llm import batches
from dialore.llm.connection import connect

batches.POLL, batches.QUIET = 0.02, 0.1
_, experiment, folder, cache, url = sys.argv
asyncio.run(run_experiment(read_config(Path(experiment)), folder, lambda c, n: connect("m", url, cache=cache)))
"""


@pytest.mark.parametrize(
    "moment", ["being uploaded", "before it is begun", "begun without our knowing", "under way", "ended"]
)
async def test_a_run_that_is_killed_finds_its_batches_again(provider, tmp_path, moment):
    data = write_dialogues(tmp_path / "dialogues.jsonl", 6)
    said = f"name: small\ndataset: {{name: jsonl, path: {data}}}\nsystems: [dcrag]\nbatch: true\n"
    (tmp_path / "experiment.yaml").write_text(said, "utf-8")
    command = ["-c", _CHILD, *(str(tmp_path / name) for name in ("experiment.yaml", "run", "cache")), provider.url]
    reached, goes_on = asyncio.Event(), asyncio.Event()
    stopped = {"under way": "GET", "ended": "GET"}.get(moment, "POST")
    path = {"ended": "/v1/files/", "being uploaded": "/v1/files"}.get(moment, "/v1/batches")
    begin = provider.begin

    async def waits(request, handler):
        if request.method == stopped and request.path.startswith(path) and len(provider.batches) == (stopped == "GET"):
            if moment == "begun without our knowing":
                await begin(request)
            reached.set()
            await goes_on.wait()
            return web.Response(status=500)
        return await handler(request)

    provider.hold = waits
    child = await asyncio.create_subprocess_exec(sys.executable, *command)
    async with asyncio.timeout(60):
        await reached.wait()
    os.kill(child.pid, signal.SIGKILL)
    await child.wait()
    provider.hold = None
    goes_on.set()
    child = await asyncio.create_subprocess_exec(sys.executable, *command)
    async with asyncio.timeout(60):
        assert await child.wait() == 0
    with RunStore.open(tmp_path / "run") as store:
        assert len(store.done()) == 6
    assert len(provider.batches) == 4
    assert set(provider.paid.values()) == {1}


# --- what it says


@pytest.mark.parametrize(("status", "code", "said"), [(404, 2, "no batch API"), (None, 0, "4 answered, 0 failed")])
async def test_the_command_tells_in_one_line_how_it_ends(provider, tmp_path, monkeypatch, capsys, status, code, said):
    provider.refuse["POST", "/v1/files"] = [(status, "Not Found")] * 3 if status else []
    monkeypatch.setenv("DIALORE_CACHE", str(tmp_path / "cache"))
    data = write_dialogues(tmp_path / "dialogues.jsonl", 4)
    run = (
        f"run -M vanilla --dataset jsonl --data {data} --out {tmp_path / 'run'} -u {provider.url} -m m --set batch=true"
    )

    def command():
        with pytest.raises(SystemExit) as left:
            main(run.split())
        return left.value.code

    assert await asyncio.to_thread(command) == code
    lines = [line for line in capsys.readouterr().err.splitlines() if said in line]
    assert len(lines) == 1
    assert ("do not set batch" in lines[0]) == bool(code)


@pytest.mark.parametrize("status", [404, 405])
async def test_an_endpoint_without_batches_is_told_in_one_line(provider, go, status):
    provider.refuse["POST", "/v1/files"] = [(status, "Not Found")] * 9
    with pytest.raises(ModelError, match=r"no batch API.*batch") as raised:
        await go(6)
    assert raised.value.configuration


async def test_a_key_that_is_refused_stops_the_run_before_anything_is_sent(provider, go):
    provider.refuse["POST", "/v1/chat"] = [(401, "wrong key")]
    with pytest.raises(ModelError, match="wrong key"):
        await go(6)
    assert not provider.files


async def test_a_model_without_an_endpoint_or_a_cache_is_refused(config_of, tmp_path):
    config = config_of(batch=True, systems=["vanilla"])
    for made in (FakeModel(), None, connect("m", "http://127.0.0.1:9/v1")):
        with pytest.raises(InputError, match="batch") as raised:
            await run_experiment(config, tmp_path / "run", lambda c, n, made=made: made)
        assert "model.no_cache" in raised.value.hint
    with pytest.raises(InputError, match="ray"):
        await run_experiment(config, tmp_path / "run", engine=lambda *_: None)
    assert not (tmp_path / "run").exists()


async def test_a_stage_may_be_done_by_a_model_that_is_run_here(provider, config_of, tmp_path):
    def connected(_settings, name):
        return FakeModel() if name else connect("m", provider.url, cache=tmp_path / "cache.sqlite")

    models = [{"model": "m", "stages": {"query-production": "hf:here"}}]
    config = config_of(4, batch=True, systems=["dcrag"], models=models)
    assert (await run_experiment(config, tmp_path / "run", connected)).ok == 4
    assert len(provider.batches) == 4


async def test_the_price_is_half_and_the_report_tells_of_batches(provider, go, tmp_path, config_of):
    model = {"model": "m", "price": [10.0, 10.0]}
    progress = await go(6, models=[model], budget={"cost": 1000.0})
    assert progress.ok == 6
    config = config_of(batch=True, models=[model])
    assert config.price(config.models[0]) == (5.0, 5.0)
    assert config_of(models=[model]).price(config.models[0]) == (10.0, 10.0)
    with RunStore.open(tmp_path / "run") as store:
        assert store.facts()["batches"] == 1
        remarks = how_to_read(MainTable([], [], {"run": store.facts()}))
    assert any("by batches" in remark for remark in remarks)


async def test_a_run_with_batches_under_way_alone_is_kept(provider, go, tmp_path):
    provider.refuse["GET", "/v1/files/"] = [(500, "trouble")] * 7
    provider.refuse["POST", "/v1/chat"] = [(400, "not this one")]
    with pytest.raises(ModelError):
        await go(3)
    with RunStore.open(tmp_path / "run") as store:
        assert len(store.batches()) == 1
