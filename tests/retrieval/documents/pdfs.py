"""PDFs written object by object, for what no library writes: fonts without ToUnicode, forms, pages that are shared."""

from __future__ import annotations

import zlib


def whole(objects: dict[int, bytes]) -> bytes:
    """A PDF of objects, of which the first is the catalogue."""
    out, places = bytearray(b"%PDF-1.7\n"), {}
    for number, content in objects.items():
        places[number] = len(out)
        out += b"%d 0 obj\n%b\nendobj\n" % (number, content)
    start = len(out)
    out += b"xref\n0 1\n0000000000 65535 f \n"
    for number, place in places.items():
        out += b"%d 1\n%010d 00000 n \n" % (number, place)
    return bytes(out + b"trailer <</Size %d /Root 1 0 R>>\nstartxref\n%d\n%%%%EOF" % (max(objects) + 1, start))


def stream(content: bytes, entries: bytes = b"") -> bytes:
    """A stream, packed."""
    packed = zlib.compress(content)
    return b"<</Length %d /Filter /FlateDecode %b>>\nstream\n%b\nendstream" % (len(packed), entries, packed)


HELVETICA = b"<</Type /Font /Subtype /Type1 /BaseFont /Helvetica>>"


def page(content: bytes, font: bytes = HELVETICA, entries: bytes = b"", more: dict[int, bytes] | None = None) -> bytes:
    """A PDF of one page, whose font is F1; `entries` are of its page, `more` are further objects from number 10 on."""
    return whole(
        {
            1: b"<</Type /Catalog /Pages 2 0 R /AcroForm 10 0 R>>" if more and 10 in more else catalogue,
            2: b"<</Type /Pages /Kids [3 0 R] /Count 1>>",
            3: b"<</Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R "
            b"/Resources <</Font <</F1 5 0 R>> /XObject <</I1 20 0 R>>>> %b>>" % entries,
            4: stream(content),
            5: font,
            **(more or {}),
        }
    )


catalogue = b"<</Type /Catalog /Pages 2 0 R>>"


def eastern(text: str, codec: str, cmap: str, ordering: str) -> bytes:
    """A page in a font of a Chinese, Japanese or Korean character set, which says no more than its character map."""
    font = (
        b"<</Type /Font /Subtype /Type0 /BaseFont /Any /Encoding /%b /DescendantFonts [6 0 R]>>" % cmap.encode(),
        b"<</Type /Font /Subtype /CIDFontType0 /BaseFont /Any /DW 1000 /FontDescriptor 7 0 R /CIDSystemInfo "
        b"<</Registry (Adobe) /Ordering (%b) /Supplement 2>>>>" % ordering.encode(),
        b"<</Type /FontDescriptor /FontName /Any /Flags 4 /FontBBox [0 0 1000 1000] /ItalicAngle 0 /Ascent 880 "
        b"/Descent -120 /CapHeight 700 /StemV 80>>",
    )
    shown = b"BT /F1 12 Tf 72 700 Td <%b> Tj ET" % text.encode(codec).hex().encode()
    return page(shown, font[0], more={6: font[1], 7: font[2]})


def endless(pages: int = 50_000, lines: int = 20_000) -> bytes:
    """A small file of many pages that share their content."""
    shown = b" ".join(b"(line %d of it) Tj 0 -1 Td" % line for line in range(lines))
    numbers = range(10, 10 + pages)
    return whole(
        {
            1: catalogue,
            2: b"<</Type /Pages /Kids [%b] /Count %d>>" % (b" ".join(b"%d 0 R" % number for number in numbers), pages),
            4: stream(b"BT /F1 1 Tf 72 700 Td %b ET" % shown),
            5: HELVETICA,
            **dict.fromkeys(
                numbers,
                b"<</Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R "
                b"/Resources <</Font <</F1 5 0 R>>>>>>",
            ),
        }
    )
