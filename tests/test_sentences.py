"""Where sentences end, in English and Chinese."""

from __future__ import annotations

import time

import pytest

from dialore.text import split_clauses, split_lines, split_sentences

# A bar stands where one sentence ends and the next begins.
ENGLISH = [
    # titles, abbreviations and initials
    "Dr. Smith paid 3.5 dollars.|He left at 5 p.m.|The shop closed.",
    "Dr. Low met J. Doe at 5 p.m. in St. Ives.",
    "Dr. Who met J. Smith.|They left.",
    "Mr. and Mrs. Hill, i.e. the Hills, like tea, e.g. Assam.|Prof. Jones vs. Gov. Lee: a draw.",
    "The U.S. economy grew.|J. K. Rowling wrote it, e.g. in 1997.",
    "We live in the U.S.|It is big.|Really?!|yes!|ok",
    "Warner Bros. Pictures made it.|It opened on Feb. 14.",
    "See figs. 3 and vol. 2 in eds. 4.|Acme Inc. makes socks, cakes, etc.|They sell well.",
    # numbers
    "It costs 3.50 dollars.|Really?|Yes!",
    "See fig. 3 and www.example.org.|Version 2.0.1 is out.|Now!",
    "No. 5 is alive.|I said no.|He left.",
    "She wears Chanel No. 5 and lives in Apt. 4.|See p. 12, ch. 3 and Op. 27.|Ed left.",
    "1. Open the box.|2. Close it.",
    "It was 1999.|Then 2000 came.",
    # quotes and brackets
    '"Stop!" he said.|"Why?"|She ran.|He said "Go."|Then he left.',
    "“Is it true?” she asked.|‘Yes.’|Good!",
    "One is here.|Two is not!|(Three?)|Four",
    # ellipses, and signs without a word
    "Wait... what?|I mean... no.|Well…|That is all.",
    "Do you like any of them? .|I do. ...",
    "... and so it ended.|Good!",
    "no full stop at all",
    "!?",
    "",
]
CHINESE = [
    "他来了。|“真的吗？”|她问。|好！",
    "他说：“你好。”|然后走了。|真的吗？！|是的……|好吧。|价格是3.5元。|（见上文。）|完",
    "他说：「你好！」|我说：『再见。』|走吧。",
    "……我不知道……|也许。",
    "《摔跤吧！爸爸》是电影。|他读《为什么？》，我读《你好》。|好！|《书》呢？",
    # mixed
    "见上文。|Hello there.|再见！|I like Dr. Who.|好的",
    "他住在U.S.|他喜欢A.I.|真的。",
    "走吧……!|好……!!|ok!ok",
]


@pytest.mark.parametrize("marked", ENGLISH)
def test_english(marked):
    assert split_sentences(marked.replace("|", " ")) == [part for part in marked.split("|") if part]


@pytest.mark.parametrize("marked", CHINESE)
def test_chinese_and_mixed(marked):
    assert split_sentences(marked.replace("|", "")) == marked.split("|")


def test_white_space_counts_as_one_space_but_lines_may_part():
    text = 'A heading\nHe said\t"No."  She left.\n\n  \nThe end'
    assert split_sentences(text) == ['A heading He said "No."', "She left.", "The end"]
    assert split_lines(text) == ["A heading", 'He said "No."', "She left.", "The end"]
    assert split_sentences(" \n ") == split_lines(" \n ") == []


def seconds(text: str) -> float:
    """Processor seconds that a text takes."""
    spent = []
    for _ in range(3):
        before = time.process_time()
        split_sentences(text)
        spent.append(time.process_time() - before)
    return min(spent)


@pytest.mark.parametrize("unit", ["A. ", "A.中", "x. ", "? ", "…… ", "e.g. ", "中", "。》", '"'])
def test_a_page_takes_time_by_its_length(unit):
    # Eight times the length takes 64 times as long where each mark reads the text before it again.
    text = unit * 4_000
    assert "".join(split_sentences(text)).replace(" ", "") == text.replace(" ", "")
    assert seconds(text * 8) < 24 * max(seconds(text), 0.001)


@pytest.mark.parametrize("unit", ["!", ".", "?…", "!……", "……!", '!……"'])
def test_a_run_of_marks_that_ends_nothing_takes_time_by_its_length(unit):
    text, longer = (f"a{unit * count}x" for count in (1_000, 8_000))
    assert "".join(split_sentences(text)) == text
    assert seconds(longer) < 24 * max(seconds(text), 0.001)


@pytest.mark.parametrize("sentence", ["one, two; three: four — five，六；七：八", "word", "", "a,b"])
def test_clauses_are_the_sentence_again(sentence):
    found = split_clauses(sentence)
    assert "".join(found) == sentence
    assert all(found)
    assert len(split_clauses("one, two; 三，四")) == 4
