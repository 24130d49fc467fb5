"""Which addresses a page may be fetched from."""

from __future__ import annotations

import pytest

from dialore.sources.web.fetching import AddressRules, RefusedAddressError, is_public, literal
from tests.sources.web.page_server import Names

PRIVATE = [
    "127.0.0.1",
    "127.8.9.10",
    "0.0.0.0",
    "10.1.2.3",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "100.100.100.200",
    "168.63.129.16",
    "192.0.0.192",
    "192.0.2.1",
    "198.18.0.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "fe80::1",
    "fe80::1%eth0",
    "fc00::1",
    "fd00:ec2::254",
    "ff02::1",
    "2001:db8::1",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "::127.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe",
    "2002:7f00:1::",
    "2002:c0a8:101::1",
    "2001:0:7f00:1::1",
    "not an address",
    "",
]
PUBLIC = ["93.184.215.14", "8.8.8.8", "2606:2800:21f:cb07::1", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1"]


@pytest.mark.parametrize("address", PRIVATE)
def test_private_addresses(address):
    assert not is_public(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses(address):
    assert is_public(address)


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "2130706433", "0x7f000001", "0x7f.0.0.1", "0177.0.0.1", "127.1", "017700000001"),
        *("\uff11\uff12\uff17.0.0.1", "127\u30020\u30020\u30021", "127\uff0e0\uff610.1", "①②⑦.⓪.⓪.①"),
    ],
)
def test_one_address_has_many_spellings(host):
    assert literal(host) == "127.0.0.1"


def test_names_are_no_addresses():
    assert literal("example.org") is None
    assert literal("[::1]") == "::1"


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/",
        "http://2130706433/",
        "http://0x7f.1/",
        "http://[::1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[::ffff:7f00:1]/",
        "http://169.254.169.254/latest/meta-data/",
        "http://[fd00:ec2::254]/",
        "http://example.org:8080/",
        "https://example.org:22/",
        "http://user:secret@example.org/",
        "http://user@example.org/",
        "ftp://example.org/",
        "file:///etc/passwd",
        "gopher://example.org/",
        "data:text/html,hello",
        "javascript:alert(1)",
        "//example.org/",
        "http://",
        "http://[::1",
        "http://example.org:99999/",
        "",
    ],
)
def test_addresses_that_the_url_gives_away(url):
    with pytest.raises(RefusedAddressError):
        AddressRules().check(url)


@pytest.mark.parametrize("url", ["http://example.org/a?b=c", "https://example.org:443/", "http://8.8.8.8:80/"])
def test_usual_addresses_pass(url):
    AddressRules().check(url)


def test_only_the_named_host_and_port_are_exempt():
    rules = AddressRules(frozenset({"127.0.0.1:8123", "[::1]:8123"}))
    rules.check("http://127.0.0.1:8123/")
    rules.check("http://[::1]:8123/")
    for url in ("http://127.0.0.1/", "http://127.0.0.1:8124/", "http://localhost:8123/", "http://127.0.0.2:8123/"):
        with pytest.raises(RefusedAddressError):
            rules.check(url)


async def test_a_name_with_one_private_address_is_refused_whole():
    names = Names(["93.184.215.14", "10.0.0.7"])
    with pytest.raises(RefusedAddressError, match=r"10\.0\.0\.7"):
        await AddressRules(resolver=names).resolve("example.org", 80)


async def test_a_name_of_this_machine_is_refused():
    with pytest.raises(RefusedAddressError, match="not a public address"):
        await AddressRules().resolve("localhost", 80)
