"""Bytes from outside as text."""

from __future__ import annotations

import pytest

from dialore.encodings import decode, is_binary

CHINESE = "企鹅是一种不会飞的鸟，几乎只生活在南半球，它们在海里捕食鱼和磷虾。"


@pytest.mark.parametrize(
    ("encoding", "header", "meta"),
    [
        ("utf-8", "utf-8", ""),
        ("utf-8", "", ""),
        ("utf-8", "iso-8859-1", ""),
        ("utf-8-sig", "gbk", ""),
        ("gb18030", "gb2312", ""),
        ("gb18030", "", "gbk"),
        ("gb18030", "utf-8", ""),
        ("gb18030", "", ""),
        ("big5", "big5", ""),
        ("utf-16", "", ""),
        ("gb18030", "rot13", ""),
        ("gb18030", "no-such-thing", "gb2312"),
    ],
)
def test_charsets_true_wrong_and_missing(encoding, header, meta):
    text = "企鵝不會飛" if encoding == "big5" else CHINESE
    html = f'<html><head><meta charset="{meta}"></head><body>{text}</body></html>' if meta else f"<p>{text}</p>"
    assert text in decode(html.encode(encoding), header).text


def test_western_pages_without_a_label():
    assert decode("caf\xe9 au lait, 5 \u20ac".encode("cp1252")).text == "caf\xe9 au lait, 5 \u20ac"
    assert "d\xe9j\xe0" in decode("d\xe9j\xe0 vu".encode("latin-1"), "iso-8859-1").text


def test_one_broken_byte_does_not_spoil_a_page():
    assert decode(f"{CHINESE} caf\xe9 ".encode() + b"\xff", "utf-8").text.startswith(f"{CHINESE} caf\xe9")


def test_bytes_that_are_no_text_do_not_raise():
    assert isinstance(decode(bytes(range(256)) * 4, "utf-8").text, str)


UNSAID = {
    "cp1252": [
        "Die Küche öffnet um acht Uhr.",
        "Café",
        "Überweisung für Köln: 5 €",
        "Il a déjà mangé à la crêperie près de la forêt.",
        "El niño comió una piña en España, ¿verdad?",
        "“Smart quotes” – and a dash, it’s fine.",
    ],
    "cp1250": ["Příliš žluťoučký kůň úpěl ďábelské ódy.", "Zażółć gęślą jaźń", "Ősszel a gyümölcsök érnek a kertben."],
    "cp1251": ["Кухня открывается в восемь часов.", "Отель", "Мы работаем с понедельника по пятницу"],
    "koi8-r": ["Кухня открывается в восемь часов.", "Мы работаем с понедельника по пятницу"],
    "cp866": ["Кухня открывается в восемь часов."],
    "cp1253": ["Η κουζίνα ανοίγει στις οκτώ το πρωί."],
    "cp1254": ["Mutfak saat sekizde açılır, çay ücretsizdir. Güneş ışığı şöyle."],
    "cp1255": ["המטבח נפתח בשמונה בבוקר."],
    "cp1256": ["يفتح المطبخ في الساعة الثامنة صباحا."],
    "cp874": ["ห้องครัวเปิดเวลาแปดโมงเช้า"],
    "shift_jis": ["台所は八時に開きます。", "ホテルの部屋"],
    "euc_jp": ["台所は八時に開きます。", "ホテルの部屋"],
    "iso2022_jp": ["台所は八時に開きます。"],
    "euc_kr": ["주방은 여덟 시에 문을 엽니다."],
    "gb18030": ["厨房八点开门。", "早餐从七点开始"],
    "big5": ["廚房八點開門。", "早餐從七點開始"],
    "utf-16-le": ["The kitchen opens at eight."],
    "utf-16-be": ["Die Küche öffnet um acht."],
}


@pytest.mark.parametrize(("encoding", "text"), [(name, text) for name, texts in UNSAID.items() for text in texts])
def test_short_texts_that_do_not_say_their_encoding(encoding, text):
    for whole in (text, f"<html><body><p>{text}</p></body></html>"):
        found = decode(whole.encode(encoding))
        assert found.text == whole
        assert not is_binary(whole.encode(encoding))
        assert ("read as" in found.note) == (encoding != "iso2022_jp")


def test_a_few_bad_bytes_are_replaced_and_told():
    found = decode("Käse, Brötchen und Würste".encode() + b"\xff")
    assert found == (
        "Käse, Brötchen und Würste\ufffd",
        "utf-8",
        "not all of it is utf-8: 1 x \ufffd stands for the rest",
    )
    page = ('<meta charset="shift_jis">' + "台所は八時に開きます。" * 9).encode("cp932")
    assert decode(page[:-1] + b"\xff").encoding == "cp932"


def test_letters_after_much_that_is_plain_are_told_by_themselves():
    data = b"plain words\n" * 50_000 + "Die Küche öffnet um acht Uhr.".encode("cp1252")
    assert decode(data).text.endswith("Küche öffnet um acht Uhr.")


@pytest.mark.parametrize(
    ("data", "binary"),
    [
        (b"\x7fELF\0\0\1\2", True),
        (bytes(range(256)) * 4, True),
        (b"\xff\xfe\xfd\x00\xd8", True),
        (b"plain", False),
        (b"one \0 byte in a long text " + b"of many words " * 50, False),
        ("wide".encode("utf-16"), False),
        ("wide".encode("utf-32"), False),
        (b"", False),
    ],
)
def test_what_is_no_text(data, binary):
    assert is_binary(data) is binary
