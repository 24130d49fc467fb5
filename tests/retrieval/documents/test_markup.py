"""What HTML, tables in text, messages and books say is read whole."""

from __future__ import annotations

import io
import zipfile
from email.message import EmailMessage

import pytest

from dialore.errors import InputError
from dialore.retrieval.documents.indexing import build_documents
from dialore.retrieval.loaders.reading import read_sections
from dialore.sources.documents import DocumentIndex


def read(tmp_path, name: str, data: bytes | str) -> tuple[list[str], list[str]]:
    """The paragraphs of a file, each after its title where it has one, and what was said of it."""
    path, told = tmp_path / name, []
    path.write_bytes(data.encode() if isinstance(data, str) else data)

    def tell(where: object, why: object) -> None:
        told.append(f"{where}: {why}")

    ending = name.removesuffix(".gz").rpartition(".")[2].replace("tsv", "csv").replace("txt", "text")
    sections = read_sections(path, ending, tell, tell)
    lines = [
        f"{section.title}: {p.text.strip()}" if section.title else p.text
        for section in sections
        for p in section.paragraphs
    ]
    return lines, told


@pytest.mark.parametrize(
    ("page", "paragraphs"),
    [
        ("<p>Tune these:</p><ul><li><b>heat</b>: 80</li><li>time</li></ul>", ["Tune these:", "heat: 80", "time"]),
        ("<ol><li>one<ul><li>inner</li></ul>after</li></ol>", ["one", "inner", "after"]),
        ("<table><tr><td>a<ul><li>b</li><li>c</li></ul></td><td>d</td></tr></table>", ["a b c | d"]),
        (
            "<table><caption>C</caption><tr><th rowspan=2>x</th><td>1</td></tr><tr><td>2</td></tr></table>",
            ["C", "x | 1", "x | 2"],
        ),
        ("<table><tr><td><h3>H</h3><p>p</p></td><td><table><tr><td>1<td>2</table></table>", ["H: p", "H: 1 | 2"]),
        ("<table><td>no</td><td>row</td></table><p>x", ["no | row", "x"]),
        ("<figure><img alt='A cup'><figcaption>Ours</figcaption></figure>", ["A cup", "Ours"]),
        ("<header>Open</header><p>Body</p><aside>Side</aside><footer>Foot</footer>", ["Open", "Body", "Side", "Foot"]),
        ("Loose <i>text</i><p>then</p> and after", ["Loose text", "then", "and after"]),
        ("<h3>Third</h3>text<h4>Fourth</h4><p>more", ["Third: text", "Third > Fourth: more"]),
        (
            "<dl><dt>Lone</dt></dl><dl><dt>A</dt><dt>B</dt><dd><p>one</p><p>two</p></dd></dl>",
            ["Lone", "A, B: one", "two"],
        ),
        ("<nav>Menu</nav><div role=navigation>Menu</div><p>x", ["x"]),
        ("<p hidden>no<p style='display: none'>no</p><template>no</template><script>no</script><p>yes", ["yes"]),
        ("a &amp; b &lt;c&gt;<br>next wo<wbr>rd<!-- no -->.", ["a & b <c> next word."]),
        (
            "<pre><code class=language-python>if x:\n    y = '&lt;b&gt;'\n</code></pre>",
            ["```python\nif x:\n    y = '<b>'\n```"],
        ),
        ("<pre>a <i>b</i> c\n  d</pre>", ["```\na b c\n  d\n```"]),
        ("<ruby>漢<rp>(</rp><rt>かん</rt><rp>)</rp>字<rt>じ</rt></ruby>です", ["漢字 (かんじ) です"]),
        ("<details><summary>Why?</summary>So.</details><button>Go</button>", ["Why?", "So.", "Go"]),
        ("<main><p>first</p></main>", ["first"]),
        ("<p>last</p><main><h2>Main</h2><p>first</p></main>", ["Main: first", "last"]),
        ("<div>" * 300 + "deep" + "</div>" * 300, ["deep"]),
        (
            "<p>NUL \0byte in more than a hundred letters that are no such byte at all",
            ["NUL byte in more than a hundred letters that are no such byte at all"],
        ),
    ],
)
def test_all_that_a_person_sees_of_a_page_is_read(tmp_path, page, paragraphs):
    assert read(tmp_path, "a.html", f"<html><body>{page}</body></html>") == (paragraphs, [])


def test_what_is_nested_beyond_all_measure_is_read_as_text_and_told(tmp_path):
    lines, told = read(tmp_path, "a.html", "<div>" * 5000 + "deep" + "</div>" * 5000 + "<p>after")
    assert lines == ["deep after"]
    assert "read as plain text" in told[0]


def test_a_page_without_a_charset_is_read_by_its_letters_and_that_is_told(tmp_path):
    page = "<html><body><p>Die Küche öffnet um acht.</p></body></html>"
    assert read(tmp_path, "a.html", page.encode("cp1252")) == (
        ["Die Küche öffnet um acht."],
        [": it does not say its encoding: read as cp1252"],
    )
    assert read(tmp_path, "a.txt", "Die Küche öffnet um acht.".encode("cp1252"))[0] == ["Die Küche öffnet um acht."]


@pytest.mark.parametrize(
    ("table", "rows"),
    [
        ("part,life\nlid,2\n\nspout,5\n", ["part: lid | life: 2", "part: spout | life: 5"]),
        ("part;life\nlid;2,5\n", ["part: lid | life: 2,5"]),
        ("part\tlife\nlid\t2\n", ["part: lid | life: 2"]),
        ("sep=|\npart|life\nlid|2\n", ["part: lid | life: 2"]),
        ('part,note\r\nlid,"two\nlines, ""so"""\r\n', ['part: lid | note: two lines, "so"']),
        ('part,note\nlid,"a \\"b\\", c"\n', ['part: lid | note: a "b", c']),
        ("part,note\nlid,'a, b'\n", ["part: lid | note: a, b"]),
        ("1,2\n3,4\n", ["1 | 2", "3 | 4"]),  # no header
        ("only,one\n", ["only | one"]),
        ("text\none\ntwo\n", ["text: one", "text: two"]),
        ("a,b\n1,2,3\n4\n", ["a: 1 | b: 2 | 3", "a: 4"]),
        ("country,2023,2024\nNorway,12,13\n", ["country: Norway | 2023: 12 | 2024: 13"]),
        (",part,life\n0,lid,2\n1,spout,5\n", ["0 | part: lid | life: 2", "1 | part: spout | life: 5"]),
        ("part,life,\nlid,2,\n", ["part: lid | life: 2"]),
        (
            "Parts\nMade in 2026\n\npart,life,price\nlid,2,3\n",
            ["Parts", "Made in 2026", "part: lid | life: 2 | price: 3"],
        ),
        (
            "# parts, as sold\npart;life\nlid;2\nspout;5\n",
            ["# parts, as sold", "part: lid | life: 2", "part: spout | life: 5"],
        ),
        ("Parts,,\npart,life,price\nlid,2,3\n", ["Parts", "part: lid | life: 2 | price: 3"]),
        ("How old is it?,Is it new?\n3,no\n", ["How old is it?: 3 | Is it new?: no"]),
        ("a,b\n" + "x" * 300_000 + ",2\n", ["a: " + "x" * 300_000 + " | b: 2"]),
    ],
)
def test_tables_in_text_are_read_by_rows(tmp_path, table, rows):
    for encoding in ("utf-8", "utf-8-sig", "utf-16"):
        assert read(tmp_path, "a.csv", table.encode(encoding)) == (rows, [])


@pytest.mark.parametrize(
    ("table", "rows", "lines"),
    [
        (
            'id,part,price\n1,"old elbow,15\n2,tee,16\n3,"union",18\n',
            ["id: 1 | part: old elbow | price: 15", "id: 2 | part: tee | price: 16", "id: 3 | part: union | price: 18"],
            [2],
        ),
        (  # closed by a later row whose own quote looks right
            'id,part,price\n1,"elbow,15\n2,tee,16\n3,pipe 5",18\n',
            ["id: 1 | part: elbow | price: 15", "id: 2 | part: tee | price: 16", 'id: 3 | part: pipe 5" | price: 18'],
            [2],
        ),
        (  # never closed
            'id,part\n1,"elbow\n2,tee\n3,"cap\n',
            ["id: 1 | part: elbow", "id: 2 | part: tee", "id: 3 | part: cap"],
            [2, 4],
        ),
        ('id,note\n1,"one, two\nthree"\n', ["id: 1 | note: one, two three"], []),
        ('id,note\n2,"say ""so"""\n', ['id: 2 | note: say "so"'], []),
        ('id,part,note\n1,lid,"a\nb\nc"\n', ["id: 1 | part: lid | note: a b c"], []),
        ('id,part\n1,5" pipe\n', ['id: 1 | part: 5" pipe'], []),
    ],
)  # fmt: skip
def test_a_quote_that_is_not_closed_takes_in_no_other_row(tmp_path, table, rows, lines):
    found, told = read(tmp_path, "a.csv", table)
    assert found == rows
    assert [note.partition(":")[0] for note in told] == [f"line {line}" for line in lines]


def test_a_row_is_a_passage_in_any_encoding(tmp_path):
    (tmp_path / "a.csv").write_bytes("Gericht;Preis\nKäsespätzle;9\nGrüner Tee;3\nWürstchen;5\n".encode("cp1252"))
    report = build_documents(tmp_path / "index", [tmp_path], vectors=False)
    assert report.passages == 3
    assert "read as cp1252" in report.notices[0]
    with DocumentIndex(tmp_path / "index") as index:
        assert index.find("käsespätzle", 1)[0].text == "Gericht: Käsespätzle | Preis: 9"


def test_lines_with_bad_bytes_are_read_and_counted(tmp_path):
    lines = [b'{"text": "fine"}'] * 70_000 + [b'{"text": "caf\xe9"}']
    found, told = read(tmp_path, "a.jsonl", b"\n".join(lines))
    assert (len(found), found[-1]) == (70_001, "caf\ufffd")
    assert told == [": lines with bytes that are not utf-8, which are read as \ufffd: 1"]


def message() -> EmailMessage:
    """A message with alternatives, attachments and another message inside."""
    whole = EmailMessage()
    whole["Subject"], whole["From"], whole["To"] = "Bestellung für März", "Ann <ann@example.org>", "bo@example.org"
    whole.set_content("Please send tea.\n\nThank you.\n")
    whole.add_alternative("<p>Please send <b>tea</b>.</p><ul><li>Ten boxes</li></ul><p>Thank you.</p>", subtype="html")
    whole.add_attachment(b"part,life\nlid,2\n", maintype="text", subtype="csv", filename="parts.csv")
    whole.add_attachment(b"\x89PNG", maintype="image", subtype="png", filename="cup.png")
    inner = EmailMessage()
    inner["Subject"] = "Before"
    inner.set_content("Wir öffnen um acht.", charset="iso-8859-1")
    whole.add_attachment(inner)
    return whole


def test_messages_are_read_with_their_attachments(tmp_path):
    lines, told = read(tmp_path, "a.eml", message().as_bytes())
    assert lines == [
        "Bestellung für März: From: Ann <ann@example.org> | To: bo@example.org",
        "Bestellung für März: Please send tea.",
        "Bestellung für März: Ten boxes",
        "Bestellung für März: Thank you.",
        "Bestellung für März > parts.csv: part: lid | life: 2",
        "Bestellung für März > Before: Before",
        "Bestellung für März > Before: Wir öffnen um acht.",
    ]
    assert told == ["cup.png: an attachment whose name and type do not say how to read it"]
    wide = "Subject: Tea\nContent-Type: text/plain\n\nTen boxes.".encode("utf-16")
    assert read(tmp_path, "b.eml", wide) == (["Tea: Tea", "Tea: Ten boxes."], [])


def test_what_is_no_message_is_said_to_be_none(tmp_path):
    (tmp_path / "a.eml").write_text("only words", "utf-8")
    with pytest.raises(InputError, match="it has no head"):
        build_documents(tmp_path / "index", [tmp_path / "a.eml"])


def book(**chapters: bytes) -> bytes:
    """A book of chapters, whose last is named and not there."""
    out = io.BytesIO()
    ids = [*chapters, "gone"]
    with zipfile.ZipFile(out, "w") as file:
        file.writestr("META-INF/container.xml", '<container><rootfile full-path="O%/book.opf"/></container>')
        items = "".join(f'<item id="{name}" href="text/{name}%20x.xhtml"/>' for name in ids)
        spine = "".join(f'<itemref idref="{name}"/>' for name in ids)
        title = '<metadata xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>Tea</dc:title></metadata>'
        file.writestr("O%/book.opf", f"<package>{title}<manifest>{items}</manifest><spine>{spine}</spine></package>")
        for name, data in chapters.items():
            file.writestr(f"O%/text/{name} x.xhtml", data)
    return out.getvalue()


def test_books_are_read_in_the_order_of_their_spine(tmp_path):
    second = b"""<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml"><head><title/></head>
    <body><a id="x"/><p>First.</p></body></html>"""
    lines, told = read(tmp_path, "a.epub", book(z=second, a=b"<h1>Two</h1><p>Second.", locked=bytes(range(256))))
    assert lines == ["Tea: First.", "Tea > Two: Second."]
    assert told[0] == "O%/text/locked x.xhtml: it is encrypted, or no text"
    assert told[1].startswith("O%/text/gone x.xhtml: it is a damaged EPUB file")
    (tmp_path / "b.epub").write_bytes(b"PK")
    with pytest.raises(InputError, match="damaged EPUB"):
        build_documents(tmp_path / "index", [tmp_path / "b.epub"])


def test_pictures_in_the_spine_of_a_book_are_no_damage(tmp_path):
    data = book(a=b"<p>Text.")
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name.endswith(".opf"):
                content = content.replace(b'href="text/gone%20x.xhtml"', b'href="cover.jpg" media-type="image/jpeg"')
            new.writestr(name, content)
        new.writestr("O%/cover.jpg", b"\xff\xd8\xff" + bytes(range(256)))
    lines, told = read(tmp_path, "a.epub", out.getvalue())
    assert lines == ["Tea: Text."]
    [said] = told
    assert "cover.jpg" in said
    assert "damaged" not in said


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ('It is <script type="math/tex">x^2</script>, so.', "It is x^2, so."),
        ('<script type="math/tex; mode=display">% <![CDATA[\na<b %]]></script>', "a<b"),
        (
            '<span class="MathJax_Preview">x2</span><span class="MathJax"><i>x2</i></span>'
            '<script type="math/tex">x^2</script>',
            "x^2",
        ),
        ('<span class="MathJax" data-mathml="&lt;math>&lt;mi>y&lt;/mi>&lt;/math>"><i>y</i></span>', "y"),
        ('<span class="MathJax"><i>x2</i></span>', "x2"),
        ('<script type="math/mml"><math><mi>q</mi></math></script><script>var x</script>', "q"),
        (
            '<span class="katex"><span class="katex-mathml"><math><semantics><mi>a</mi>'
            '<annotation encoding="application/x-tex">a_1</annotation></semantics></math></span>'
            '<span class="katex-html" aria-hidden="true">a1</span></span>',
            "a_1",
        ),
        ('<span class="katex"><span class="katex-html">a1</span></span>', "a1"),
        (
            '<mjx-container><mjx-math aria-hidden="true">x2</mjx-math><mjx-assistive-mml><math><msup><mi>x</mi>'
            "<mn>2</mn></msup></math></mjx-assistive-mml></mjx-container>",
            "x^2",
        ),
        (
            "<math><mfrac><mrow><mi>a</mi><mo>+</mo><mn>1</mn></mrow><msqrt><mi>b</mi></msqrt></mfrac></math>",
            "(a+1)/(√b)",
        ),
        (
            '<span class="mwe-math-element"><span style="display: none"><math alttext="E"><mi>E</mi></math></span>'
            '<img alt="E"></span>',
            "E",
        ),
    ],
)
def test_a_formula_is_read_once_as_it_is_written(tmp_path, page, text):
    assert read(tmp_path, "a.html", f"<html><body><p>{page}</p></body></html>") == ([text], [])


@pytest.mark.parametrize("gap", ["", "\n"])
def test_a_table_in_html_inside_markdown_has_its_columns_names(tmp_path, gap):
    table = (
        f"<table>{gap}\n<tr><th>Pier</th><th>Ship</th></tr>{gap}\n"
        f"<tr><td rowspan=2>North</td><td>Anna</td></tr>{gap}\n<tr><td>Berta</td></tr>{gap}\n</table>"
    )
    text = f"# Ships\n\nBefore.\n\n{table}\n\nAfter.\n\n<p>Plain <b>words</b></p>\n"
    lines, told = read(tmp_path, "a.markdown", text)
    words = " ".join(" ".join(lines).split())
    assert told == []
    assert "Pier: North | Ship: Anna" in words
    assert "Pier: North | Ship: Berta" in words
    assert words.index("Before.") < words.index("Anna") < words.index("Berta") < words.index("After.")
    assert words.count("Berta") == 1
    assert "Plain" in words


def test_a_table_in_html_that_is_not_closed_loses_no_text(tmp_path):
    lines, _ = read(tmp_path, "a.markdown", "<table><tr><th>Pier</th></tr>\n<tr><td>North</td></tr>\n\nAfter.\n")
    assert "North" in " ".join(lines)
    assert "After." in " ".join(lines)
