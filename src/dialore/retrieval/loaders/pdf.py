"""PDF as sections, by PDFium: pages, what is filled into forms, notes; scanned pages by the extra `ocr`."""

from __future__ import annotations

import ctypes
import functools
import itertools
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from dialore.errors import MissingExtraError
from dialore.knowledge import GROUPS
from dialore.retrieval.chunking import Paragraph, Reject, Section, Unreadable, join_texts, library
from dialore.retrieval.groups import apply_groups
from dialore.text import SENTENCE_ENDS

_HYPHEN = re.compile(r"(?<=[a-z])(?:\ufffe|[-\u2010\u00ad]\n)(?=[a-z])")
"""PDFium writes U+FFFE for a hyphen at the end of a line, with the next line after it."""
_FINISHED = re.compile(rf"[{re.escape(SENTENCE_ENDS)}:：][\"'”’」』)\]）]*$")
_ACCENT = re.compile("(?<=[A-Za-zı])[´¨ˆ˜ˇ˘˙˚¸]")
"""An accent beside its letter, as the fonts of TeX have it."""
_ACCENTS = str.maketrans("´¨ˆ˜ˇ˘˙˚¸", "\u0301\u0308\u0302\u0303\u030c\u0306\u0307\u030a\u0327")
_FEW, _SHIFTED = 100, 0.25
"""Letters that tell, and the part of vowels below which they are no text: English has 0.4."""
_MOST, _ONE_LETTER, _MOSTLY_SIGNS, _DIFFERENT_SIGNS, _FEW_RUNS = 0.5, 0.7, 0.85, 8, 30
"""Shares of letters and signs that no language has: see `_is_garbled`."""
_NOTES = {1, 9, 10, 11, 12}
"""PDFium's numbers of annotations whose text does not stand on the page: notes, and marks in the text."""
_BESIDE = _NOTES | {2, 16}  # with links and the windows of notes: what shows no text of its own
_XFA = {2, 3}  # PDFium's numbers of such forms
_GROUP_KEYS = ("groups", "Groups", "GROUPS")
_NEXT_TO_NONE, _LARGE = 20, 0.2
"""Letters of a page, and the part of it that a picture takes."""
_SHARPNESS = 2.0
"""Dots for each point of a scanned page: more read no better on real pages, and take longer."""


def read_pdf(data: bytes, reject: Reject, *, ocr: bool = False) -> Iterator[Section]:
    """Yield the one section of a PDF; tell `reject` of pages whose text is not to be had, and of what is not read."""
    with library("PDF", "pypdfium2"):
        document = _open_pdf(data, reject)
        extracted = [_page(document, number) for number in range(len(document))]
        garbled = _garbled_pages([text for text, _ in extracted])
        pages: list[str] = []
        pictured: list[int] = []
        for number, (text, is_picture) in enumerate(extracted):
            own = "" if number in garbled else text
            if ocr and (is_picture or number in garbled):
                recognised = _engine()(document[number].render(scale=_SHARPNESS).to_numpy())
                own = "\n".join([own, "", *(recognised.txts or ())]).strip()
            elif is_picture:
                pictured.append(number)
            pages.append(own)
        title = document.get_metadata_value("Title")
        named = [(GROUPS, text) for name in _GROUP_KEYS if (text := document.get_metadata_value(name))]
        metadata = apply_groups(named)
    paragraphs = list(_across_pages(pages))
    left_out = []
    if pictured:
        why = "no text but pictures; if they are scanned, the extra ocr reads them (ocr)"
        left_out.append((_page_list(pictured), why))
    if garbled and not ocr:
        why = "its fonts do not say which letters they show, and no text can be read; the extra ocr may read it (ocr)"
        left_out.append((_page_list(sorted(garbled)), why))
    if not paragraphs:
        reasons = "; ".join(f"{where}: {why}" for where, why in left_out)
        raise Unreadable(f"it has no text: {reasons}" if reasons else "it has no text")
    for where, why in left_out:
        reject(where, why)
    if unclear := _page_list(number for number, page in enumerate(pages) if _is_no_text(page)):
        reject(unclear, "its fonts do not say which letters they show: what was read may be no text")
    yield Section(paragraphs, " ".join(title.split()), metadata=metadata)


def _open_pdf(data: bytes, reject: Reject) -> Any:  # noqa: ANN401 - pypdfium2 has no types
    import pypdfium2

    try:
        document = pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as error:
        if "password" in str(error):
            raise Unreadable("it is encrypted with a password") from error
        raise
    document.init_forms()
    if document.get_formtype() in _XFA:
        reject("", "it is an XFA form: what such a form holds beside its pages is not read")
    if attached := document.count_attachments():
        reject("", f"files that are attached to it are not read: {attached}")
    return document


def _page(document: Any, number: int) -> tuple[str, bool]:  # noqa: ANN401
    """Return the text of a page, and whether it is a picture with next to no text."""
    import pypdfium2.raw as pdfium

    page = document[number]
    kinds, notes = _annotations(page)
    if kinds - _BESIDE and pdfium.FPDFPage_Flatten(page, pdfium.FLAT_NORMALDISPLAY) == pdfium.FLATTEN_SUCCESS:
        page.close()
        page = document[number]  # with what is filled in among the rest
    text = page.get_textpage().get_text_range(errors="replace").replace("\r\n", "\n")
    text = _HYPHEN.sub("", text).replace("\ufffe", "-\n")
    text = unicodedata.normalize("NFC", _ACCENT.sub(lambda match: match[0].translate(_ACCENTS), text))
    return "\n\n".join([text, *notes]).strip(), _is_picture(page, text)


def _is_picture(page: Any, text: str) -> bool:  # noqa: ANN401
    """Return whether a page of next to no text shows a large picture, or one without any shows anything."""
    import pypdfium2.raw as pdfium

    if sum(map(str.isalnum, text)) >= _NEXT_TO_NONE:
        return False
    for shape in page.get_objects(max_depth=3):
        left, bottom, right, top = shape.get_bounds()
        is_large = (right - left) * (top - bottom) > _LARGE * page.get_width() * page.get_height()
        if is_large if shape.type == pdfium.FPDF_PAGEOBJ_IMAGE else not text.strip():
            return True
    return False


def _annotations(page: Any) -> tuple[set[int], list[str]]:  # noqa: ANN401
    """Return the kinds of a page's annotations, and the texts of notes."""
    import pypdfium2.raw as pdfium

    kinds, notes = set(), []
    for number in range(pdfium.FPDFPage_GetAnnotCount(page)):
        annotation = pdfium.FPDFPage_GetAnnot(page, number)
        kind = pdfium.FPDFAnnot_GetSubtype(annotation)
        kinds.add(kind)
        if kind in _NOTES:
            size = pdfium.FPDFAnnot_GetStringValue(annotation, b"Contents", None, 0)
            buffer = ctypes.create_string_buffer(size)
            pdfium.FPDFAnnot_GetStringValue(
                annotation, b"Contents", ctypes.cast(buffer, ctypes.POINTER(ctypes.c_ushort)), size
            )
            notes.append(buffer.raw[: size - 2].decode("utf-16-le", "replace"))
        pdfium.FPDFPage_CloseAnnot(annotation)
    return kinds, [note for note in notes if note.strip()]


def _is_no_text(text: str) -> bool:
    """Return whether most of a text has no alphabet, or hardly a vowel in Latin letters: a font's numbers."""
    letters = [letter for letter in text if not letter.isspace()]
    strange = sum(unicodedata.category(letter) in {"Co", "Cn", "Cc"} or letter == "\ufffd" for letter in letters)
    if strange > 0.2 * len(letters):
        return True
    # Letters with accents count as vowels or consonants by their base letter.
    latin = [letter for letter in unicodedata.normalize("NFD", text.lower()) if "a" <= letter <= "z"]
    return len(latin) > max(_FEW, len(letters) / 2) and sum(map(latin.count, "aeiouy")) < _SHIFTED * len(latin)


def _garbled_pages(pages: list[str]) -> set[int]:
    """Return the pages whose text cannot be that of any language; short pages are judged together."""
    garbled = {number for number, text in enumerate(pages) if _is_garbled(text)}
    short = [number for number, text in enumerate(pages) if 0 < _count_visible(text) < _FEW]
    if _is_garbled("\n".join(pages[number] for number in short)):
        garbled.update(short)
    return garbled


def _count_visible(text: str) -> int:
    return sum(not letter.isspace() for letter in text)


def _is_garbled(text: str) -> bool:
    """Return whether a text is what fonts without a map of their letters give, whatever its language.

    Such text repeats one letter or a few, or has hardly a letter or digit among many different signs, or has mostly
    letters of Latin-1 with accents, which are bytes of another alphabet, or of no alphabet at all.
    """
    visible = [letter for letter in text if not letter.isspace()]
    if len(visible) < _FEW:
        return False
    unknown = sum(unicodedata.category(letter) in {"Co", "Cn", "Cc"} or letter == "\ufffd" for letter in visible)
    if unknown > _MOST * len(visible):
        return True
    # Leaders, rules and fields to be filled in repeat a sign, which counts once for each run.
    runs = [letter for letter, _ in itertools.groupby(text.lower()) if not letter.isspace()]
    counts = Counter(letter for letter in runs if letter.isalpha())
    letters = counts.total()
    if letters >= _FEW_RUNS and counts.most_common(1)[0][1] > _ONE_LETTER * letters:
        return True
    signs = [letter for letter in runs if letter.isascii() and not letter.isalnum()]
    if len(signs) > _MOSTLY_SIGNS * len(runs) and len(runs) >= _FEW and len(set(signs)) >= _DIFFERENT_SIGNS:
        return True
    accented = sum(count for letter, count in counts.items() if "\u00c0" <= letter <= "\u00ff")
    return letters >= _FEW and accented > _MOST * letters


@functools.cache
def _engine() -> Any:  # noqa: ANN401
    """Return what reads pictures; raise MissingExtraError without the extra `ocr`."""
    try:
        from rapidocr import RapidOCR
    except ImportError as error:
        raise MissingExtraError("reading scanned pages", "ocr") from error
    return RapidOCR()


def _page_list(numbers: Iterable[int]) -> str:
    """Pages, counted from 0, as one writes them: `page 3`, `pages 1-4, 9`; empty where there are none."""
    runs: list[list[int]] = []
    for number in (index + 1 for index in numbers):
        if runs and runs[-1][-1] == number - 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    told = ", ".join("-".join(map(str, run)) for run in runs)
    return f"{'page' if told.isdecimal() else 'pages'} {told}" if told else ""


def _across_pages(pages: list[str]) -> Iterator[Paragraph]:
    """Yield the paragraphs of all pages, with one that runs on over the end of its page as one."""
    held: Paragraph | None = None
    for number, page in enumerate(pages, start=1):
        for text in page.split("\n\n"):
            lines = join_texts([line.strip() for line in text.splitlines()])
            if not lines:
                continue
            if held is not None and held.page < number and not _FINISHED.search(held.text):
                held = Paragraph(join_texts([held.text, lines]), held.page)
                continue
            if held is not None:
                yield held
            held = Paragraph(lines, number)
    if held is not None:
        yield held
