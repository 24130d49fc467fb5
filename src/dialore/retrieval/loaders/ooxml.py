"""Packages of Office Open XML: their parts, by names without namespaces, which its strict form spells differently."""

from __future__ import annotations

import io
import posixpath
import re
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import IO, TYPE_CHECKING, Any

from dialore.errors import first_line
from dialore.knowledge import GROUPS
from dialore.retrieval.chunking import Paragraph, Reject, Unreadable, row
from dialore.retrieval.groups import apply_groups, names_groups
from dialore.text import count_noun

if TYPE_CHECKING:
    from lxml.etree import _Element as Element

Block = tuple[int, Paragraph]
_BINARY_OFFICE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_HIDDEN_STYLE = re.compile(r"visibility\s*:\s*hidden|display\s*:\s*none", re.IGNORECASE)
_MERGED = re.compile(rb"<(?:\w+:)?mergeCell\s[^<>]*?\bref=[\"']([A-Za-z0-9:$]+)[\"']")
_BLOCK_BYTES, _MAX_TAG_BYTES = 1 << 20, 200
_OPTIONS: dict[str, Any] = {"resolve_entities": False, "no_network": True, "remove_comments": True, "remove_pis": True}


class Package:
    """The parts of a file; `notice` is told of those that cannot be read.

    Args:
        data: The file's content.
        notice: Called with a location in the file and a reason.
        include_hidden: Read what the program does not show: sheets, rows, columns, slides, shapes, text.
    """

    def __init__(self, data: bytes, notice: Reject, *, include_hidden: bool = False) -> None:
        self.include_hidden = include_hidden
        self._hidden: dict[str, list[str]] = {}
        self._checked_parts: set[str] = set()
        if data.startswith(_BINARY_OFFICE):
            raise Unreadable("it is encrypted, or of an Office before 2007: save it without a password as a new one")
        self._archive = zipfile.ZipFile(io.BytesIO(data))
        # Some writers part folders by backslashes; names of parts know no case.
        self._names = {name.replace("\\", "/").lower(): name for name in self._archive.namelist()}
        self.notice = notice
        self._relations: dict[str, list[Element]] = {}
        self.main = next(iter(self.related("", "officeDocument").values()), "")
        document = self.root(self.main)
        if document is None:
            raise Unreadable("its main part is missing or damaged")
        self.document: Element = document

    def has(self, part: str) -> bool:
        """Return whether there is a part."""
        return part.lower() in self._names

    def root(self, part: str) -> Element | None:
        """Return the root of a part's XML; None where there is none, or it is damaged."""
        from lxml import etree

        with self._open(part) as file:
            if file is not None:
                root = etree.parse(file, etree.XMLParser(**_OPTIONS)).getroot()
                self._leave_out_hidden_shapes(part, root)
                return root
        return None

    def _leave_out_hidden_shapes(self, part: str, root: Element) -> None:
        """Remove the shapes that are hidden, in both of their forms: DrawingML and VML."""
        if self.include_hidden:
            return
        names = [] if part in self._checked_parts else self._hidden.setdefault("shapes", [])
        self._checked_parts.add(part)
        for shape in list(_hidden_shapes(root)):
            if next(shape.iter("{*}t", "{*}chart", "{*}relIds"), None) is not None:
                names.append("")
            for older in shape.xpath("ancestor::*[local-name()='Choice'][1]/../*[local-name()='Fallback']"):
                remove(older)
            remove(shape)

    def leave_out(self, kind: str, name: str = "", count: int = 1) -> bool:
        """Return whether hidden content is left out, and count it for the report.

        Args:
            kind: What is hidden, in the plural: sheets, rows, characters.
            name: What the report calls it, if it has a name.
            count: How many of them.
        """
        if not self.include_hidden:
            self._hidden.setdefault(kind, []).extend([name] * count)
        return not self.include_hidden

    def report_hidden(self) -> None:
        """Say once for the file what was left out because it is hidden."""
        counts = []
        for kind, names in self._hidden.items():
            listed = ", ".join(dict.fromkeys(filter(None, names)))
            if names:
                counts.append(count_noun(len(names), kind) + (f" ({listed})" if listed else ""))
        if counts:
            self.notice("", f"hidden content is left out: {', '.join(counts)}; include_hidden reads it")

    def merged_ranges(self, part: str) -> list[str]:
        """Return the references of a worksheet's merged cells, which its XML has after the rows."""
        if not self.has(part):
            return []
        references: list[str] = []
        kept = b""
        # A damaged part is reported when its rows are read.
        damage = (zipfile.BadZipFile, zlib.error, OSError, EOFError, NotImplementedError)
        with suppress(*damage), self._archive.open(self._names[part.lower()]) as file:
            while block := file.read(_BLOCK_BYTES):
                window = kept + block
                matches = list(_MERGED.finditer(window))
                references += (match[1].decode() for match in matches)
                kept = window[max(matches[-1].end() if matches else 0, len(window) - _MAX_TAG_BYTES) :]
        return references

    def rows(self, part: str) -> Iterator[Element]:
        """Yield a worksheet's settings of columns, its rows, then its print header, as far as it is whole.

        Each row is gone when the next comes.
        """
        from lxml import etree

        with self._open(part) as file:
            tags = ("{*}sheetFormatPr", "{*}cols", "{*}row", "{*}headerFooter")
            for _, element in etree.iterparse(file, tag=tags, **_OPTIONS) if file is not None else ():
                yield element
                element.clear()
                while element.getprevious() is not None:
                    del element.getparent()[0]

    @contextmanager
    def _open(self, part: str) -> Iterator[IO[bytes] | None]:
        """Yield a part's bytes, None where there is none; what is damaged ends the reading of it, and is told."""
        from lxml.etree import XMLSyntaxError

        try:
            with self._archive.open(self._names[part.lower()]) if self.has(part) else nullcontext() as file:
                yield file
        except (XMLSyntaxError, zipfile.BadZipFile, zlib.error, OSError, EOFError, NotImplementedError) as error:
            self.notice(part, f"it is damaged: {first_line(error)}")

    def related(self, part: str, kind: str) -> dict[str, str]:
        """Return the parts of a kind that a part names, each by its id; of the package where the part is empty."""
        folder, name = posixpath.split(part)
        if part not in self._relations:
            relations = self.root(posixpath.join(folder, "_rels", f"{name}.rels"))
            self._relations[part] = list(relations) if relations is not None else []
        related = {}
        for relation in self._relations[part]:
            is_of_kind = (relation.get("Type") or "").rpartition("/")[2] == kind
            if is_of_kind and relation.get("TargetMode") != "External":
                target = posixpath.join("/", folder, (relation.get("Target") or "").replace("\\", "/"))
                related[relation.get("Id") or ""] = posixpath.normpath(target).lstrip("/")
        return related

    def roots(self, part: str, kind: str) -> Iterator[tuple[str, Element]]:
        """Yield the parts of a kind that a part names and that can be read, each with its root."""
        for target in self.related(part, kind).values():
            if (root := self.root(target)) is not None:
                yield target, root

    def title(self) -> str:
        """Return the title among its properties."""
        return next((root.findtext("{*}title") or "" for _, root in self.roots("", "core-properties")), "").strip()

    def drawn(self, part: str, element: Element) -> list[str]:
        """Return the texts of the chart or diagram that an element of a drawing stands for."""
        kind, key = ("chart", "id") if local(element) == "chart" else ("diagramData", "dm")
        wanted = attribute(element, key)
        target = (self.related(part, kind) | self.related(part, f"{kind}Ex")).get(wanted)
        root = None if target is None else self.root(target)
        if root is None:
            return []
        return _chart(root) if kind == "chart" else texts_of(root)


def property_groups(data: bytes) -> list[str]:
    """Return the groups that a custom property `groups` of a file names; an empty list if it has none.

    Raises:
        RefusedGroups: They cannot be applied.
    """
    from lxml import etree

    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = {name.replace("\\", "/").lower(): name for name in archive.namelist()}
            content = archive.read(names["docprops/custom.xml"])
    except (KeyError, zipfile.BadZipFile, zlib.error, OSError, EOFError, NotImplementedError):
        return []  # the reader of the format reports what is damaged
    root = etree.fromstring(content, etree.XMLParser(recover=True, **_OPTIONS))
    properties = () if root is None else root.iter("{*}property")
    named = [element for element in properties if names_groups(element.get("name"))]
    pairs = [(GROUPS, "".join(element.itertext("*")).strip()) for element in named]
    return list(apply_groups(pairs).get(GROUPS, []))


def _hidden_shapes(root: Element) -> Iterator[Element]:
    """Yield the shapes that are marked as hidden."""
    for properties in root.iter("{*}cNvPr", "{*}docPr"):
        parent = properties.getparent()
        if not is_true(properties.get("hidden", "0")) or parent is None:
            continue
        # A shape's properties lie in a group of them, those of a drawing in Word in the drawing itself.
        shape = parent if local(properties) == "docPr" else parent.getparent()
        if shape is not None and shape.getparent() is not None:
            yield shape
    for shape in root.iter("{urn:schemas-microsoft-com:vml}*"):
        if _HIDDEN_STYLE.search(shape.get("style", "")) and shape.getparent() is not None:
            yield shape


def remove(element: Element) -> None:
    """Remove an element of a part without mixed content; it may be removed already."""
    parent = element.getparent()
    if parent is not None:
        parent.remove(element)


def is_true(value: str) -> bool:
    """Return whether an attribute of a switch says that it is on; an empty one is."""
    return value not in {"0", "false", "off"}


def local(element: Element) -> str:
    """Return an element's name without its namespace."""
    return str(element.tag).rpartition("}")[2]


def attribute(element: Element | None, name: str) -> str:
    """Return an attribute by its name without a namespace; empty where there is none, or no element."""
    items = () if element is None else element.items()
    return next((str(value) for key, value in items if key.rpartition("}")[2] == name), "")


def alternative(element: Element) -> list[Element]:
    """Of alternatives that say the same in newer and older ways, the first that says something, in a list."""
    seen = ("{*}t", "{*}chart", "{*}relIds")
    return [choice for choice in element if next(choice.iter(*seen), None) is not None][:1]


# --- DrawingML: PowerPoint's text, and that of diagrams and charts

_MARKS = {"num": "", "den": "/", "sup": "^", "sub": "_"}  # signs before an argument of an equation


def inline(element: Element) -> str:
    """Return the text of a paragraph of a drawing, or of an equation in a line."""
    parts = []
    for child in element:
        name = local(child)
        if name == "t":
            parts.append(child.text or "")
        elif name in {"br", "tab"}:
            parts.append(" ")
        elif name == "AlternateContent":
            parts += [inline(choice) for choice in alternative(child)]
        elif name in _MARKS:
            parts.append(_argument(_MARKS[name], inline(child)))
        elif name == "rad":
            parts.append(_argument("√", inline(child)))
        elif name == "d":
            parts.append(f"({inline(child)})")
        elif name not in {"pPr", "rPr"} and not attribute(child, "type").lower().startswith("slidenum"):
            parts.append(inline(child))
    return "".join(parts)


def _argument(mark: str, text: str) -> str:
    text = text.strip()
    return mark + (text if text.isalnum() or len(text) == 1 else f"({text})") if text else ""


def texts_of(root: Element) -> list[str]:
    """Return the paragraphs of a part that is one drawing, without the alternatives for older programs."""
    old = {paragraph for fallback in root.iter("{*}Fallback") for paragraph in fallback.iter("{*}p")}
    texts = (inline(paragraph).strip() for paragraph in root.iter("{*}p") if paragraph not in old)
    return [text for text in texts if text]


def _chart(root: Element) -> list[str]:
    """Return the titles of a chart, and a row for each of its series: its name, and its values by their categories."""
    texts = texts_of(root)
    for series in root.iter("{*}ser"):
        names, labels, values = (_points(series, *kinds) for kinds in (["tx"], ["cat", "xVal"], ["val", "yVal"]))
        points = [": ".join(filter(None, (labels.get(at), values.get(at)))) for at in labels | values]
        texts.append(row([" ".join(names.values()), *points]))
    # The newer kind of chart has its texts in the points themselves.
    texts += [(point.text or "").strip() for point in root.iter("{*}pt")]
    return list(dict.fromkeys(filter(None, texts)))


def _points(series: Element, *kinds: str) -> dict[str, str]:
    """Return what a series has of some kinds, by index; categories of several levels as one text."""
    texts: dict[str, str] = {}
    for point in (point for kind in kinds for point in series.iterfind(f"{{*}}{kind}//{{*}}pt")):
        at = point.get("idx") or ""
        texts[at] = " ".join(filter(None, (point.findtext("{*}v"), texts.get(at))))
    return texts
