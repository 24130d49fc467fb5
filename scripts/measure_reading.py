"""Measure how many of the words of real files stand in our passages, by format.

    python scripts/measure_reading.py FOLDER [--lost 12] [--only pdf]

What a file says is taken from another reader: PDF from `pdftotext`; HTML, Markdown, EPUB, Word, OpenDocument, RTF and
notebooks from `pandoc -t plain` (HTML without what is marked as navigation; without the numbers of lists and notes);
Word, PowerPoint and Excel from the text of the XML itself; the rest from the file as it is. Kept are the words, each
as often as it stands there, case and hyphens aside, that are in our passages or, once for each change, their titles;
`letters` is the same by single letters and digits, so that a difference of spaces alone does not count. `extra` is
the share of our words that the other reader does not have, such as control words that are read as text. A file that
we refuse by name is counted apart: its words are lost, but not in silence. A file of which the other reader says
nothing is left out.
"""

from __future__ import annotations

import argparse
import email
import email.policy
import functools
import re
import subprocess
import time
import unicodedata
import zipfile
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lxml import etree

from dialore.errors import InputError, first_line
from dialore.retrieval.chunking import Chunking, Unreadable
from dialore.retrieval.loaders.formats import format_of
from dialore.retrieval.loaders.reading import read_sections

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WORD = re.compile(r"[぀-ヿ㐀-鿿가-힯豈-﫿]|[^\W_぀-ヿ㐀-鿿가-힯豈-﫿]+")
HYPHEN = re.compile("(?<=\\w)[-\u00ad\u2010\u2011]\\s*(?=\\w)|[\u00ad\u200b-\u200f\ufeff]")
LONGEST = 100
"""Letters of a word; passages part longer ones, which nobody wrote."""
PARAGRAPHS = {"p", "si", "is", "text", "comment", "pt"}
TEXTS = {"t", "v", "text"}
GAPS = {"tab", "ptab", "br", "cr", "e", "num", "den", "sup", "sub", "lim", "deg", "fName"}
"""White space, and the arguments of equations."""
LEFT_OUT = {"Fallback", "del", "moveFrom", "rPh", "numCache", "numLit", "instrText", "f"}
PARTS = {
    "document",
    "footnotes",
    "endnotes",
    "comments",
    "hdr",
    "ftr",
    "sld",
    "notes",
    "cmLst",
    "dataModel",
    "chartSpace",
    "wsDr",
}
"""Roots of parts with text that is seen; worksheets are read apart."""
ONCE = {"hdr", "ftr", "chartSpace"}
"""Roots of parts that say the same again and again."""
GENERAL = "0"
WANTED = 0.995
NUMBERED = re.compile(r"^[ \t]*\(?(?:\d+|[a-z]{1,4})[.)][ \t]+|\[\d+\]", re.MULTILINE | re.IGNORECASE)
"""Marks that pandoc writes before list entries and for notes."""


@dataclass
class Tally:
    """Files of a format, and what was kept of them."""

    files: int = 0
    refused: int = 0
    words: int = 0
    lost: int = 0
    refused_words: int = 0
    letters: int = 0
    letters_lost: int = 0
    our_words: int = 0
    extra: int = 0
    seconds: float = 0.0
    under: list[tuple[float, str]] = field(default_factory=list)


def words(text: str) -> Counter[str]:
    """Return the words of a text, normalised, each with how often it stands there."""
    found = WORD.findall(HYPHEN.sub("", unicodedata.normalize("NFKC", text).casefold()))
    return Counter(word for word in found if len(word) <= LONGEST)


# --- What a file says


def output(command: list[str | Path], data: bytes | None = None) -> str:
    """Return the output of another program."""
    done = subprocess.run(command, input=data, capture_output=True, timeout=120, check=True)  # noqa: S603 - our own words
    return done.stdout.decode("utf-8", "replace")


def pandoc(path: Path, reader: str, data: bytes | None = None) -> str:
    """Return a file's text by pandoc."""
    command = ["pandoc", "-f", reader, "-t", "plain", "--wrap=none", *([] if data is not None else [path])]
    return NUMBERED.sub("", output(command, data))


def of_pdf(path: Path) -> str:
    """Return a PDF's text by pdftotext."""
    return output(["pdftotext", "-enc", "UTF-8", path, "-"])


def of_html(path: Path) -> str:
    """Return a page's text without what is marked as navigation."""
    from dialore.encodings import decode

    tree = etree.fromstring(decode(path.read_bytes()).text.encode(), etree.HTMLParser(encoding="utf-8", huge_tree=True))
    for element in tree.xpath("//nav | //*[@role='navigation'] | //script | //style | //template | //noscript"):
        element.clear(keep_tail=True)
    return pandoc(path, "html", etree.tostring(tree, encoding="utf-8", method="html"))


def of_mail(path: Path) -> str:
    """Return the subject and the plain parts of a message."""
    from dialore.encodings import decode

    data = path.read_bytes()
    data = decode(data).text.encode() if b"\0" in data else data
    message = email.message_from_bytes(data, policy=email.policy.default)
    parts = [part for part in message.walk() if part.get_content_type() == "text/plain" and not part.is_attachment()]
    return "\n".join([str(message["subject"] or ""), *(str(part.get_content()) for part in parts)])


def of_text(path: Path) -> str:
    """Return a file as it is."""
    data = path.read_bytes()
    return data.decode("utf-16" if data[:2] in {b"\xff\xfe", b"\xfe\xff"} else "utf-8-sig")


def of_office(path: Path) -> str:
    """Return the text of an Office file's XML; see the module."""
    found: list[str] = []
    once: dict[str, None] = {}
    with zipfile.ZipFile(path) as archive:
        roots = {name: _root(archive, name) for name in archive.namelist() if name.endswith(".xml")}
    named = {_local(root): root for root in roots.values() if root is not None}
    for root in roots.values():
        kind = _local(root) if root is not None else ""
        if kind in PARTS or (kind == "comments" and path.suffix == ".xlsx"):
            for place in root.xpath(
                "//*[local-name()='ph'][@type='dt' or @type='ftr' or @type='hdr' or @type='sldNum']"
            ):
                shape = place.getparent().getparent().getparent()
                once.update(dict.fromkeys(_paragraphs(shape)))
                shape.clear()
            texts = list(_paragraphs(root))
            found += [] if kind in ONCE else texts
            once.update(dict.fromkeys(texts) if kind in ONCE else {})
        elif kind == "worksheet":
            found += _cells(root, named)
    return "\n".join([*found, *once])


def _root(archive: zipfile.ZipFile, name: str) -> Any:  # noqa: ANN401 - lxml ships no types
    try:
        return etree.fromstring(archive.read(name), etree.XMLParser(huge_tree=True))
    except etree.XMLSyntaxError:
        return None


def _local(element: Any) -> str:  # noqa: ANN401
    return str(element.tag).rpartition("}")[2]


def _paragraphs(root: Any) -> Iterator[str]:  # noqa: ANN401
    """Yield the texts of a part, each paragraph's together."""
    found: dict[Any, list[str]] = defaultdict(list)

    def walk(element: Any, paragraph: Any) -> None:  # noqa: ANN401
        name = _local(element)
        if name in LEFT_OUT or (name == "fld" and element.get("type") == "slidenum"):
            return
        if name in PARAGRAPHS:
            paragraph = element
        if name in TEXTS:
            found[paragraph].append(element.text or "")
        elif name in GAPS:
            found[paragraph].append(" ")
        for child in element:
            walk(child, paragraph)

    walk(root, None)
    yield from ("".join(texts) for texts in found.values())


def _cells(sheet: Any, named: dict[str, Any]) -> Iterator[str]:  # noqa: ANN401
    """Yield the texts of a sheet's cells, and the numbers that are shown as they are stored."""
    shared = ["".join(_paragraphs(item)) for item in named.get("sst", ())]
    formats = (
        [xf.get("numFmtId", GENERAL) for xf in named["styleSheet"].iterfind("{*}cellXfs/{*}xf")]
        if "styleSheet" in named
        else []
    )
    for cell in sheet.iterfind("{*}sheetData/{*}row/{*}c"):
        value, kind = cell.findtext("{*}v") or "", cell.get("t", "n")
        if kind == "s" and value:
            yield shared[int(value)]
        elif kind == "inlineStr":
            yield "".join(_paragraphs(cell))
        elif kind == "str" or (kind == "n" and _general(cell, formats) and value.lstrip("-").isdigit()):
            yield value


def _general(cell: Any, formats: list[str]) -> bool:  # noqa: ANN401
    style = int(cell.get("s", 0))
    return not formats or (style < len(formats) and formats[style] == GENERAL)


REFERENCES: dict[str, tuple[str, Callable[[Path], str]]] = {
    "PDF": ("pdf", of_pdf),
    "HTML": ("html", of_html),
    "Markdown": ("md", functools.partial(pandoc, reader="commonmark_x-smart")),
    "EPUB": ("epub", functools.partial(pandoc, reader="epub")),
    "Word (XML)": ("docx", of_office),
    "Word (pandoc)": ("docx", functools.partial(pandoc, reader="docx")),
    "OpenDocument": ("odt", functools.partial(pandoc, reader="odt")),
    "RTF": ("rtf", functools.partial(pandoc, reader="rtf")),
    "notebook": ("ipynb", functools.partial(pandoc, reader="ipynb")),
    "PowerPoint": ("pptx", of_office),
    "Excel": ("xlsx", of_office),
    "mail": ("eml", of_mail),
    "text": ("txt", of_text),
    "CSV": ("csv", of_text),
}
"""By format: the ending of its files, and what says their text."""


# --- What we keep of it


def read(path: Path) -> tuple[str, list[str]]:
    """Return the text of a file's passages, with titles where they change, and what was said of what is left out."""
    told: list[str] = []
    found: list[str] = []
    before: list[str] = []
    chunking = Chunking(overlap=0)

    def tell(where: object, why: object) -> None:
        told.append(f"{where}: {why}")

    try:
        file_format = format_of(path) or "text"
        for section in read_sections(path, file_format, tell, tell):
            title = section.title.split(" > ")
            pairs = zip(title, before, strict=False)
            found += title[next((at for at, (name, other) in enumerate(pairs) if name != other), len(before)) :]
            before = title
            found += [piece.text for piece in chunking.split(section)]
    except (Unreadable, InputError) as error:
        told.append(str(error))
    return "\n".join(found), told


def measure(path: Path, reference: Callable[[Path], str], tally: Tally, lost: int) -> None:
    """Count a file in, and say what of it is lost."""
    try:
        wanted = words(reference(path))
    except Exception as error:  # noqa: BLE001 - whatever another reader meets, there is nothing to compare with
        print(f"  no reference: {path.name}: {first_line(error)[:90]}")
        return
    if not wanted:
        return
    started = time.monotonic()
    try:
        text, told = read(path)
    except Exception as error:  # noqa: BLE001 - a crash is a figure too
        text, told = "", [f"CRASH {type(error).__name__}: {first_line(error)}"]
    tally.seconds += time.monotonic() - started
    tally.files += 1
    if not text and told:
        tally.refused += 1
        tally.refused_words += wanted.total()
        print(f"  refused: {path.name} ({wanted.total():,} words): {told[0][:120]}")
        return
    got = words(text)
    missing = wanted - got
    letters, got_letters = Counter("".join(wanted.elements())), Counter("".join(got.elements()))
    tally.words += wanted.total()
    tally.lost += missing.total()
    tally.our_words += got.total()
    tally.extra += (got - wanted).total()
    tally.letters += letters.total()
    tally.letters_lost += (letters - got_letters).total()
    kept = 1 - missing.total() / wanted.total()
    if kept < WANTED:
        examples = " ".join(word for word, _ in missing.most_common(lost))
        note = f" [told: {told[0][:80]}]" if told else ""
        count = f"{missing.total():,} of {wanted.total():,}"
        tally.under.append((kept, f"{kept:7.2%} {path.name} ({count}){note}: {examples}"))


def main() -> None:
    """Measure the files of a folder and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--lost", type=int, default=12, help="lost words shown of each file")
    parser.add_argument("--only", help="one ending, e.g. pdf")
    arguments = parser.parse_args()
    tallies: dict[str, Tally] = defaultdict(Tally)
    for path in sorted(arguments.folder.rglob("*.*")):
        for label, (ending, reference) in REFERENCES.items():
            if path.is_file() and path.suffix[1:].lower() == ending and arguments.only in {None, ending}:
                measure(path, reference, tallies[label], arguments.lost)
    for label, tally in tallies.items():
        print(f"\n{label}: files under {WANTED:.1%}")
        for _, line in sorted(tally.under):
            print(f"  {line}")
    print(f"\n| format | files | words | kept | letters | extra | under {WANTED:.1%} | refused (words) | seconds |")
    print("|---|---|---|---|---|---|---|---|---|")
    for label, tally in tallies.items():
        kept, letters = 1 - tally.lost / max(tally.words, 1), 1 - tally.letters_lost / max(tally.letters, 1)
        refused = f"{tally.refused} ({tally.refused_words:,})"
        extra = f"{tally.extra / max(tally.our_words, 1):.2%}"
        shares = (f"{kept:.2%}", f"{letters:.2%}", extra)
        cells = (label, tally.files, f"{tally.words:,}", *shares, len(tally.under), refused)
        print(f"| {' | '.join(map(str, cells))} | {tally.seconds:.1f} |")


if __name__ == "__main__":
    main()
