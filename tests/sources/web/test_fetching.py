"""Pages fetched from a server that misbehaves."""

from __future__ import annotations

import asyncio
import threading
import time
import tracemalloc
import zlib

import pytest

from dialore.sources.web.fetching import AddressRules, PageError, PageFetcher
from tests.sources.web.page_server import (
    Names,
    article,
    endless,
    gzip_bomb,
    page,
    redirect,
    silence,
    trickle,
    zipped,
)

BODY = article("Penguins", "Penguins live in the southern hemisphere.")


@pytest.mark.parametrize("reply", [page(BODY), zipped(BODY), page(BODY, Content_Encoding="identity")])
async def test_a_page_comes_as_it_is(site, fetcher, reply):
    fetched = await fetcher.fetch(site.serve("/p", reply))
    assert fetched.data == BODY
    assert (fetched.kind, fetched.charset) == ("text/html", "utf-8")
    assert fetched.url == site.url("/p")


async def test_gzip_of_two_members(site, fetcher):
    half = len(BODY) // 2
    packer, second = zlib.compressobj(wbits=31), zlib.compressobj(wbits=31)
    two = packer.compress(BODY[:half]) + packer.flush() + second.compress(BODY[half:]) + second.flush()
    assert (await fetcher.fetch(site.serve("/two", page(two, Content_Encoding="gzip")))).data == BODY


async def test_nothing_of_the_user_is_sent(site, fetcher, monkeypatch, tmp_path):
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password secret\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    site.serve("/set", redirect("/p"))
    site.pages["/set"] = [page(b"", code=302, Location="/p", Set_Cookie="id=7; Path=/")]
    site.serve("/p", page(BODY))
    await fetcher.fetch(site.url("/set"))
    await fetcher.fetch(site.url("/p"))
    for headers in site.headers:
        names = {name.lower() for name in headers}
        assert names.isdisjoint({"cookie", "authorization", "referer", "proxy-authorization"})
        assert headers["User-Agent"].startswith("dialore/")


async def test_redirects_are_followed_five_times(site, fetcher):
    for hop in range(6):
        site.serve(f"/{hop}", redirect(f"/{hop + 1}"))
    site.serve("/5", page(BODY))
    assert (await fetcher.fetch(site.url("/0"))).url == site.url("/5")
    site.serve("/5", redirect("/6"))
    site.serve("/6", page(BODY))
    with pytest.raises(PageError, match="5 redirects"):
        await fetcher.fetch(site.url("/0"))


@pytest.mark.parametrize(
    "target",
    [
        "http://127.0.0.1/admin",
        "http://127.0.0.1:22/",
        "http://169.254.169.254/latest/meta-data/",
        "http://[::1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://2130706433/",
        "http://0x7f000001/",
        "http://localhost/",
        "//127.0.0.1/",
        "http://me:secret@127.0.0.1/",
        "file:///etc/passwd",
    ],
)
async def test_a_redirect_leads_to_no_inner_address(site, fetcher, target):
    with pytest.raises(PageError, match="refused"):
        await fetcher.fetch(site.serve("/away", redirect(target)))
    assert site.paths == ["/away"]


async def test_without_leave_this_machine_is_refused(site):
    url = site.serve("/p", page(BODY))
    for address in (url, url.replace("127.0.0.1", "localhost")):
        with pytest.raises(PageError, match="refused"):
            await PageFetcher().fetch(address)
    assert site.paths == []


async def test_a_host_is_resolved_once_and_that_address_is_asked(site):
    """A name server that gives a good address first and an inner one to whoever asks again gains nothing."""
    names = Names(["127.0.0.1"], ["127.0.0.99"])
    rules = AddressRules(frozenset({f"pages.test:{site.port}"}), names)
    site.serve("/p", page(BODY))
    fetched = await PageFetcher(rules=rules).fetch(f"http://pages.test:{site.port}/p")
    assert fetched.data == BODY
    assert names.asked == [("pages.test", site.port)]


async def test_a_name_that_resolves_to_an_inner_address_is_refused(site):
    with pytest.raises(PageError, match=r"refused: pages\.test is at 127\.0\.0\.1"):
        await PageFetcher(rules=AddressRules(resolver=Names(["127.0.0.1"]))).fetch("http://pages.test/")
    assert site.paths == []


async def test_each_redirect_is_resolved_anew_and_checked(site):
    """The second name is an inner address under a public name."""
    rules = AddressRules(frozenset({f"good.test:{site.port}"}), Names(["127.0.0.1"]))
    site.serve("/p", redirect("http://bad.test/"))
    with pytest.raises(PageError, match=r"refused: bad\.test"):
        await PageFetcher(rules=rules).fetch(f"http://good.test:{site.port}/p")


async def test_a_page_of_fifty_megabytes_is_given_up_early(site, fetcher):
    with pytest.raises(PageError, match="more than 2,000,000 bytes"):
        await fetcher.fetch(site.serve("/big", endless()))
    assert site.sent < 20_000_000


async def test_a_page_that_announces_its_size_is_not_read_at_all(site, fetcher):
    reply = page(b"x", Content_Length="50000000")
    with pytest.raises(PageError, match="more than 2,000,000 bytes"):
        await fetcher.fetch(site.serve("/big", reply))


async def test_a_gzip_bomb_does_not_fill_the_memory(site, fetcher):
    url = site.serve("/bomb", gzip_bomb())
    tracemalloc.start()
    try:
        with pytest.raises(PageError, match="once decompressed"):
            await fetcher.fetch(url)
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("reply", "limit"), [(trickle(0.05), 0.5), (silence(), 0.5)])
async def test_a_slow_page_is_given_up(site, reply, limit):
    fetcher = PageFetcher(rules=AddressRules(frozenset({site.host})), timeout=limit, read_timeout=5.0)
    started = time.monotonic()
    with pytest.raises(PageError, match=r"0\.5 s"):
        await fetcher.fetch(site.serve("/slow", reply))
    assert time.monotonic() - started < 4.5


async def test_a_page_that_falls_silent_is_given_up_before_its_time(site):
    fetcher = PageFetcher(rules=AddressRules(frozenset({site.host})), timeout=15.0, read_timeout=0.3)
    started = time.monotonic()
    with pytest.raises(PageError):
        await fetcher.fetch(site.serve("/slow", silence()))
    assert time.monotonic() - started < 10


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (page(b"%PDF-1.7", "application/pdf"), "application/pdf"),
        (page(b"\x89PNG", "image/png"), "image/png"),
        (page(BODY, Content_Encoding="br"), "compressed as br"),
        (page(zlib.compress(BODY), Content_Encoding="deflate"), "compressed as deflate"),
        (page(b"not gzip", Content_Encoding="gzip"), "damaged"),
        (page(b"oops", code=500), "answered 500"),
        (page(b"gone", code=404), "answered 404"),
        (page(b"", code=302), "answered 302"),
        (lambda handler: handler.wfile.write(b"SSH-2.0-OpenSSH_9.6\r\n\r\n"), "cannot be reached"),
        (page(BODY, Content_Length="99999"), "cannot be reached|not whole"),
    ],
)
async def test_other_trouble_is_a_page_error_with_its_reason(site, fetcher, reply, reason):
    with pytest.raises(PageError, match=reason):
        await fetcher.fetch(site.serve("/p", reply))


async def test_a_port_where_nothing_listens(site):
    with pytest.raises(PageError, match="cannot be reached"):
        await PageFetcher(rules=AddressRules(frozenset({"127.0.0.1:9"}))).fetch("http://127.0.0.1:9/")


async def test_no_more_pages_at_once_than_allowed(site):
    busy, most, both = 0, 0, threading.Event()

    def reply(handler):
        nonlocal busy, most
        with site.lock:
            busy += 1
            most = max(most, busy)
            both.set() if busy > 1 else None
        both.wait(20)
        with site.lock:
            busy -= 1
        page(BODY)(handler)

    url = site.serve("/p", reply)
    fetcher = PageFetcher(rules=AddressRules(frozenset({site.host})), concurrency=2)
    await asyncio.gather(*(fetcher.fetch(url) for _ in range(6)))
    assert most == 2


def test_one_fetcher_serves_several_loops(site):
    url = site.serve("/p", page(BODY))
    fetcher = PageFetcher(rules=AddressRules(frozenset({site.host})), concurrency=1)

    async def twice() -> None:
        await asyncio.gather(fetcher.fetch(url), fetcher.fetch(url))

    asyncio.run(twice())
    asyncio.run(twice())
    assert len(site.paths) == 4


@pytest.mark.parametrize(
    "host", ["127\u30020\u30020\u30021", "\uff11\uff12\uff17.0.0.1", "①②⑦.⓪.⓪.①", "127\uff0e0\uff0e0\uff0e1"]
)
async def test_digits_and_dots_of_other_scripts_do_not_lead_into_the_own_network(site, monkeypatch, host):
    # What writes such a host for the network makes the plain address of it, and asks no resolver for that.
    port = int(site.host.rpartition(":")[2])
    monkeypatch.setattr("dialore.sources.web.fetching._PORTS", {"http": port, "https": 443})
    site.serve("/secret", page(BODY))
    with pytest.raises(PageError, match=r"refused: 127\.0\.0\.1 is not a public"):
        await PageFetcher(timeout=5.0).fetch(f"http://{host}:{port}/secret")
    assert not site.headers
