"""Search engines, asked at a server that misbehaves."""

from __future__ import annotations

import time
from collections import defaultdict
from types import SimpleNamespace
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from dialore.dialogue import Dialogue
from dialore.errors import InputError, SourceError, UnknownNameError
from dialore.knowledge import Knowledge, Passage
from dialore.retrieval.chunking import Chunking
from dialore.retrieval.documents.indexing import build_documents
from dialore.sources.web.engines import BraveEngine, CorpusEngine, DdgsEngine, SearchEngine, SearxngEngine
from dialore.sources.web.source import open_web
from tests.sources.web.page_server import endless, found, page, redirect, silence

CHINESE = Dialogue.model_validate({"id": "d2", "turns": ["企鹅住在哪里？"]})
RESULTS = [
    {"url": "https://a.test/1", "title": "One <b>penguin</b>", "content": "Ice &amp; snow\u200b.", "engine": "x"},
    {"url": "https://a.test/2", "title": None, "content": 7},
    {"url": "javascript:alert(1)", "title": "bad"},
    {"title": "no address"},
    "nonsense",
    {"url": "http://a.test/3"},
]
KEY = "secret-token-1234"
_BIRDS = ("penguin", "heron", "wren", "eagle")
_SAID = "The {name} was seen to swim here on day {number}."


def brave_reply(results):
    import json

    return page(json.dumps({"type": "search", "web": {"results": results}}).encode(), "application/json")


MOJEEK = "https://www.mojeek.com/search"
BY_HTTP = pytest.mark.parametrize("engine", ["searxng", "brave"], indirect=True)


def mojeek_reply(results):
    """Return the page of one of the engines that ddgs asks."""
    item = '<li><h2><a href="{url}">{title}</a></h2><p class="s">{content}</p></li>'
    entries = [entry for entry in results if isinstance(entry, dict)]
    items = "".join(
        item.format_map(defaultdict(str, {k: v for k, v in e.items() if isinstance(v, str)})) for e in entries
    )
    return page(f"<html><meta charset='utf-8'><ul class='results'>{items}</ul></html>".encode())


def ddgs_at(site, monkeypatch):
    """Return ddgs, whose requests to one of its engines go to the site; its others find nothing."""
    http = pytest.importorskip("ddgs.http_client", reason="ddgs is not here: pip install 'dialore[ddgs]'")

    def asked(_client, _method, url, params=None, **_):
        if url != MOJEEK:
            return SimpleNamespace(status_code=404, text="<html><p>Nothing.</p></html>")
        try:
            answer = httpx.get(site.url("/ddgs"), params={"q": params["q"]}, timeout=1.0, trust_env=False)
        except httpx.TimeoutException as error:
            raise http.TimeoutException(error) from error
        except httpx.HTTPError as error:
            raise http.DDGSException(f"{error!r} {params}") from error
        return SimpleNamespace(status_code=answer.status_code, text=answer.text)

    monkeypatch.setattr(http.HttpClient, "request", asked)
    return DdgsEngine()


@pytest.fixture(params=["searxng", "brave", "ddgs"])
def engine(request, site, monkeypatch):
    """An engine at the site, with the path that it asks and the words of a good answer."""
    monkeypatch.setattr("dialore.sources.web.engines._LONGEST_WAIT", 1.0)
    monkeypatch.setattr("dialore.sources.web.engines._SECONDS", 2.0)
    if request.param == "searxng":
        made = SearxngEngine(site.url(""))
        made.path, made.reply = "/search", lambda results: found(*results)
    elif request.param == "brave":
        made = BraveEngine(KEY, url=site.url("/v1"))
        made.path, made.reply = "/v1/web/search", brave_reply
    else:
        made = ddgs_at(site, monkeypatch)
        made.path, made.reply = "/ddgs", mojeek_reply
    return made


async def test_results_as_far_as_they_are_results(site, engine, dialogue):
    entries = [
        {**entry, "description": entry.get("content")} if isinstance(entry, dict) else entry for entry in RESULTS
    ]
    site.serve(engine.path, engine.reply(entries))
    results = await engine.search("penguins & ice", dialogue, 2)
    assert [result.url for result in results] == ["https://a.test/1", "https://a.test/2"]
    assert (results[0].title, results[0].snippet) == ("One penguin", "Ice & snow.")
    assert (results[1].title, results[1].snippet) == ("", "")
    assert site.queries(engine.path) == ["penguins & ice"]
    assert isinstance(engine, SearchEngine)


@BY_HTTP
async def test_halves_of_characters_are_left_out(site, engine, dialogue):
    entry = {"url": "https://a.test/1", "title": "One \ud83d.", "content": "Ice \udc00.", "description": "Ice \udc00."}
    site.serve(engine.path, engine.reply([{**entry, "url": "https://a.test/\ud83d"}, entry]))
    results = await engine.search("ice", dialogue, 2)
    assert [(result.url, result.title, result.snippet) for result in results] == [
        ("https://a.test/1", "One .", "Ice .")
    ]


async def test_nothing_found_is_no_error(site, engine, dialogue):
    site.serve(engine.path, engine.reply([]))
    assert await engine.search("xyzzy", dialogue, 3) == []


async def test_brave_without_web_results(site, dialogue):
    site.serve("/v1/web/search", page(b'{"type": "search", "query": {}}', "application/json"))
    assert await BraveEngine(KEY, url=site.url("/v1")).search("xyzzy", dialogue, 3) == []


async def test_what_is_asked_for(site, dialogue):
    site.serve("/search", found())
    site.serve("/v1/web/search", brave_reply([]))
    await SearxngEngine(site.url("/search")).search("企鹅", CHINESE, 3)
    await BraveEngine(KEY, url=site.url("/v1")).search("word " * 90, CHINESE, 3)
    searxng, brave = (parse_qs(urlsplit(path).query) for path in site.paths)
    assert searxng == {"q": ["企鹅"], "format": ["json"], "language": ["zh-CN"], "safesearch": ["1"]}
    assert brave["search_lang"] == ["zh-hans"]
    assert brave["count"] == ["3"]
    assert len(brave["q"][0].split()) == 50
    assert site.headers[1]["X-Subscription-Token"] == KEY
    assert all(headers["User-Agent"].startswith("dialore/") for headers in site.headers)


@BY_HTTP
@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (page(b"<!DOCTYPE html><html>Welcome</html>"), "a web page instead of JSON"),
        (page(b"oops", "application/json"), "broken JSON"),
        (page(b"[1, 2]", "application/json"), "without a list of results"),
        (page(b'{"results": {"a": 1}, "web": 3}', "application/json"), "without a list of results"),
        (page(b"null", "application/json"), "without a list of results"),
        (page(b"[" * 100_000, "application/json"), "broken JSON"),
        (page(b"", code=500), "answered 500"),
        (page(b"", code=403), "answered 403"),
        (page(b"", code=404), "answered 404"),
        (page(b"", code=429), "answered 429"),
        (redirect("http://127.0.0.1:1/"), "answered 302"),
        (silence(), "in 2 s"),
        (endless("application/json"), "more than 4,000,000 bytes"),
        (lambda handler: handler.wfile.write(b"SSH-2.0-OpenSSH_9.6\r\n\r\n"), "does not speak HTTP"),
    ],
)
async def test_trouble_is_a_source_error_with_a_mend(site, engine, dialogue, reply, reason):
    site.serve(engine.path, reply)
    with pytest.raises(SourceError, match=reason) as caught:
        await engine.search("penguins", dialogue, 3)
    assert caught.value.hint
    assert "\n" not in str(caught.value)
    assert KEY not in str(caught.value)
    assert "penguins" not in str(caught.value)
    assert len(site.paths) == 1


@BY_HTTP
async def test_a_busy_engine_is_asked_once_more_when_it_says(site, engine, dialogue):
    good = engine.reply([{"url": "https://a.test/1"}])
    site.serve(engine.path, page(b"", code=429, Retry_After="1"), good)
    started = time.monotonic()
    assert len(await engine.search("penguins", dialogue, 3)) == 1
    assert 0.9 < time.monotonic() - started < 10
    site.serve(engine.path, page(b"", code=429, Retry_After="0"), page(b"", code=429, Retry_After="0"), good)
    with pytest.raises(SourceError, match="429"):
        await engine.search("penguins", dialogue, 3)


@BY_HTTP
async def test_a_long_wait_is_not_waited_out(site, engine, dialogue):
    site.serve(engine.path, page(b"", code=429, Retry_After="3600"))
    with pytest.raises(SourceError, match="429"):
        await engine.search("penguins", dialogue, 3)
    assert len(site.paths) == 1


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("RatelimitException", "no engine behind ddgs answered: Ratelimit"),
        ("TimeoutException", "no engine behind ddgs answered: Timeout"),
        ("DDGSException", "no engine behind ddgs answered: DDGS"),
        (None, "no answer by ddgs in 0.5 s"),
    ],
)
async def test_trouble_with_ddgs_is_a_source_error_with_a_mend(site, dialogue, monkeypatch, fault, reason):
    """Its errors repeat what was asked: that is for nobody's log."""
    engine = ddgs_at(site, monkeypatch)
    monkeypatch.setattr("dialore.sources.web.engines._SECONDS", 0.5 if fault is None else 5)

    def refused(*_, **__):
        if fault is None:
            time.sleep(1)
        raise getattr(engine._library.exceptions, fault or "DDGSException")("202 ?q=penguins")

    monkeypatch.setattr("ddgs.ddgs.DDGS.text", refused)  # its package has a stand-in until it is first used
    with pytest.raises(SourceError, match=reason) as caught:
        await engine.search("penguins", dialogue, 3)
    assert caught.value.hint
    assert "penguins" not in str(caught.value)


async def test_ddgs_is_asked_in_the_dialogue_s_language_and_for_what_is_safe(site, monkeypatch):
    engine, asked = ddgs_at(site, monkeypatch), []
    monkeypatch.setattr(engine._library.DDGS, "text", lambda _self, query, **how: asked.append((query, how)) or [])
    assert await engine.search("企鹅", CHINESE, 3) == []
    assert asked == [("企鹅", {"region": "cn-zh", "safesearch": "on", "max_results": 3})]


async def test_an_engine_that_is_not_there(dialogue):
    with pytest.raises(SourceError, match="nothing listens at"):
        await SearxngEngine("http://127.0.0.1:9").search("penguins", dialogue, 3)


async def test_searxngs_silent_engines_are_an_error_and_named(site, dialogue):
    site.serve("/search", found(unresponsive_engines=[["google", "CAPTCHA"], ["bing", "timeout"]]))
    with pytest.raises(SourceError, match="google, bing"):
        await SearxngEngine(site.url("")).search("penguins", dialogue, 3)


async def test_searxng_that_may_not_answer_json_says_how(site, dialogue):
    site.serve("/search", page(b"<html>Forbidden</html>", code=403))
    with pytest.raises(SourceError, match=r"settings\.yml"):
        await SearxngEngine(site.url("")).search("penguins", dialogue, 3)


async def test_braves_refusal_is_quoted_without_the_key(site, dialogue):
    body = ('{"error": {"detail": "token ' + KEY + ' is invalid"}}').encode()
    site.serve("/v1/web/search", page(body, "application/json", 422))
    with pytest.raises(SourceError, match=r"is invalid.*BRAVE_API_KEY") as caught:
        await BraveEngine(KEY, url=site.url("/v1")).search("penguins", dialogue, 3)
    assert KEY not in str(caught.value)


class InMemoryPassages:
    """A document index in memory."""

    name, kind = "documents", "documents"
    closed = False

    async def search(self, query, dialogue, top=10, scope=()):
        passage = Passage(f"{query}: ice", "Birds", "https://a.test/birds")
        return [Knowledge.of_passage(passage, "documents")][:top]

    def close(self):
        self.closed = True


async def test_documents_in_place_of_the_web(dialogue):
    shelf = InMemoryPassages()
    engine = CorpusEngine(shelf)
    (result,) = await engine.search("penguins", dialogue, 3)
    assert (result.text, result.title, result.url) == ("penguins: ice", "Birds", "https://a.test/birds")
    engine.close()
    assert shelf.closed


@pytest.mark.parametrize(
    "chunking", [Chunking("whole"), Chunking(words=40, overlap=1)], ids=["sentences", "overlapping"]
)
async def test_an_index_is_searched_for_pages_which_are_split_and_reranked(tmp_path, dialogue, chunking):
    """SCG-QP, Section 3.1: passages of the top three pages are scored by a reranker."""
    pages = {f"https://{name}.test/": [_SAID.format(name=name, number=n) for n in range(40)] for name in _BIRDS}
    pieces = [Passage(text, f"On {url}", url) for url, lines in pages.items() for text in lines]
    if chunking.unit == "words":
        pieces = [Passage(" ".join(lines), f"On {url}", url) for url, lines in pages.items()]
    build_documents(tmp_path / "birds.index", texts=pieces, chunking=chunking, vectors=False)
    web = open_web(f"corpus:{tmp_path / 'birds.index'}")
    results = await web.engine.search("penguin 7 and heron 3 and wren 5 swim", dialogue, 3)
    assert sorted(result.url for result in results) == [
        f"https://{name}.test/" for name in ("heron", "penguin", "wren")
    ]
    assert all(result.text.split("\n") == pages[result.url] for result in results)
    found = await web.search("penguin 7 and heron 3 and wren 5 swim", dialogue, 1000)
    assert len(found) == 12  # of three pages of 400 words each, 120 words a passage
    assert all(len(piece.text.split()) <= 120 for piece in found)
    web.close()


async def test_passages_without_url_file_or_title_are_pages_of_their_own(tmp_path, dialogue):
    texts = ["Penguins swim.", "Penguins eat.", "Herons wade."]
    build_documents(tmp_path / "plain.index", texts=texts, chunking=Chunking("whole"), vectors=False)
    web = open_web(f"corpus:{tmp_path / 'plain.index'}")
    assert {result.text for result in await web.engine.search("penguins", dialogue, 3)} == set(texts[:2])
    web.close()


def test_bad_specs_are_one_clear_line(monkeypatch):
    monkeypatch.delenv("BRAVE_API_KEY", raising=False)
    with pytest.raises(UnknownNameError, match="searxng"):
        open_web("searxn:http://localhost")
    for spec, reason in [
        ("searxng:", "takes an address"),
        ("searxng:localhost", "not an endpoint"),
        ("corpus:", "takes a document index"),
        ("brave:", "BRAVE_API_KEY"),
        ("brave:key", "no argument"),
        ("ddgs:key", "no argument"),
    ]:
        with pytest.raises(InputError, match=reason):
            open_web(spec)
    monkeypatch.setenv("BRAVE_API_KEY", KEY)
    assert open_web("brave:").engine.name == "brave"
    assert open_web("searxng:http://localhost:8888").engine.name == "searxng"
