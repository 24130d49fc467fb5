"""The pages Chat and Compare in Chromium: what people do there, and axe in light and dark."""

from __future__ import annotations

import asyncio
import json
import re

import pytest

from tests.server.browsing import checked
from tests.server.conftest import Scripted, need

expect = pytest.importorskip("playwright.sync_api", reason="the clients extra is not installed").expect
HOSTILE = "<img src=x onerror=\"document.title='hit'\">"
RULES = b"# House rules\n\n## Dogs\n\nDogs are welcome on the terrace. They drink for free.\n"


def ask(page, text):
    page.get_by_role("textbox", name="Your message").fill(text)
    page.keyboard.press("Enter")


def upload(page):
    page.locator(".composer input[type=file]").set_input_files(
        {"name": "rules.md", "mimeType": "text/markdown", "buffer": RULES}
    )
    page.get_by_text("rules.md is known now").wait_for()


def test_a_file_is_uploaded_asked_about_and_its_passage_opened_from_the_citation(serving, page):
    running = serving(Scripted("Of course, on the terrace. [1]", needs=[need("dogs on the terrace")]))
    page.goto(running.url)
    checked(page, "chat-empty")
    upload(page)
    ask(page, "May I bring my dog?")
    reply = page.get_by_role("article", name="Response")
    expect(reply).to_contain_text("Of course, on the terrace.")
    page.get_by_role("button", name=re.compile("Source 1: House rules")).click()
    panel = page.get_by_role("complementary", name="Grounds and settings")
    expect(panel.locator(".piece.open mark").first).to_contain_text("terrace")
    expect(panel.locator(".place").first).to_contain_text("rules.md")
    expect(reply.locator("mark")).to_contain_text("Of course, on the terrace")
    expect(panel.get_by_role("button", name=re.compile("Looked for in: "))).to_be_visible()
    panel.get_by_role("button", name=re.compile("dogs on the terrace")).first.focus()
    page.keyboard.press("ArrowRight")
    expect(panel.locator(".told")).to_contain_text("Looked for in")
    checked(page, "chat-grounds")
    panel.get_by_role("tab", name="Stages").or_(panel.get_by_role("button", name="Stages")).first.click()
    panel.get_by_text("needs", exact=True).click()
    assert panel.locator("details[open] pre").count() >= 2  # the prompt as sent, and the completion
    checked(page, "chat-stages")


MARKDOWN = """**Dogs are welcome** on the terrace [1]. See [the rules](https://cafe.example) and [this](javascript:x).

- a *short* lead [1]
- `--quiet` ones

```python
def bark():
  return "wow"
```

<b onclick="x">Bold</b> claims &amp; ![pictures](https://cafe.example/a.png)
"""


def test_markdown_is_drawn_with_its_citations_and_html_stays_text(serving, page):
    running = serving(Scripted(MARKDOWN, needs=[need("dogs on the terrace")]))
    page.goto(running.url)
    upload(page)
    ask(page, "May I bring my dog?")
    reply = page.get_by_role("article", name="Response").locator(".written")
    expect(reply.get_by_role("button", name=re.compile("Source 1"))).to_have_count(2)
    expect(reply.locator("p").first).to_have_text("Dogs are welcome on the terrace1. See the rules and this.")
    expect(reply.locator("strong")).to_have_text("Dogs are welcome")
    expect(reply.locator("li")).to_have_text(["a short lead1", "--quiet ones"])
    expect(reply.locator("li code")).to_have_text("--quiet")
    assert reply.locator("pre code").inner_text().startswith("def bark():\n")
    assert [link.get_attribute("href") for link in reply.locator("a").all()] == ["https://cafe.example"]
    assert reply.locator("b, img").count() == 0
    expect(reply.locator("p").last).to_have_text(
        '<b onclick="x">Bold</b> claims & ![pictures](https://cafe.example/a.png)'
    )
    reply.get_by_role("button", name=re.compile("Source 1")).first.click()
    expect(reply.locator("mark").first).to_have_text("Dogs are welcome")
    checked(page, "chat-markdown")


def test_while_an_answer_is_awaited_the_draft_is_greyed_with_step_and_seconds(serving, page):
    class Thoughtful(Scripted):
        async def complete(self, request, on_token=None):
            await asyncio.sleep(3 if request.output_schema else 0)
            return await super().complete(request, on_token)

    running = serving(Thoughtful("Good morning to you, too."))
    page.goto(running.url)
    ask(page, "Good morning.")
    expect(page.locator(".draft")).to_have_text("Good morning to you, too.")
    expect(page.locator(".stage")).to_have_text(re.compile(r"^ ?(draft|needs) · 1 of 2 · [12] s$"))
    checked(page, "chat-waiting")
    expect(page.locator(".reply > .written")).to_have_text("Good morning to you, too.")
    expect(page.locator(".draft, .stage")).to_have_count(0)
    expect(page.get_by_role("navigation").get_by_role("link")).to_have_text(["Chat", "Compare", "Knowledge"])


def test_a_turn_is_edited_answered_anew_and_the_conversation_exported_and_opened_again(serving, page):
    running = serving(Scripted(f"Certainly. {HOSTILE}"))
    page.goto(running.url)
    ask(page, "Hello there")
    page.get_by_role("button", name=re.compile("Answer anew")).click()
    expect(page.get_by_role("article", name="Response")).to_have_count(1)
    page.get_by_role("button", name="Edit this turn").click()
    page.get_by_role("textbox", name="Your turn").fill(f"Good evening {HOSTILE}")
    page.get_by_role("button", name="Send").first.click()
    expect(page.get_by_role("article", name="You")).to_contain_text("Good evening <img")
    expect(page.get_by_role("article", name="Response")).to_contain_text("Certainly. <img")
    page.get_by_role("button", name="Share and export").click()
    with page.expect_download() as kept:
        page.get_by_role("button", name="Export as JSON").click()
    exported = json.loads(kept.value.path().read_text("utf-8"))
    assert [turn["role"] for turn in exported["turns"]] == ["user", "assistant"]
    assert exported["turns"][1]["trace"]["trace"]
    page.get_by_role("button", name="New conversation").click()
    expect(page.get_by_role("article", name="Response")).to_have_count(0)
    page.locator("input[accept='.json']").set_input_files(kept.value.path())
    expect(page.get_by_role("article", name="You")).to_contain_text("Good evening")
    page.reload()  # and a new look has it still
    expect(page.get_by_role("article", name="You")).to_contain_text("Good evening")
    assert page.title() == "Chat · Dialore"


def test_what_was_dropped_for_one_need_and_kept_for_another_is_given(serving, page):
    needs = [need("dogs on the terrace"), need("opening hours")]
    running = serving(Scripted("Bring it to the terrace. [1] We open at half past seven. [2]", needs=needs))
    text = "# Café\n\n## Dogs\n\nDogs are welcome on the terrace.\n\n## Hours\n\nThe opening hours are 7 to 18.\n"
    files = {"file": ("rules.md", text.encode(), "text/markdown")}
    assert running.http.post("/v1/knowledge/files", files=files).status_code < 300
    page.goto(running.url)
    ask(page, "May I bring my dog, and when?")
    page.get_by_role("button", name="Source 1").click()
    page.get_by_role("heading", name="Given to the response (2)").wait_for()
    expect(page.locator("details .piece", has_text="cited as")).to_have_count(0)


def test_several_methods_answer_side_by_side(serving, page):
    running = serving(
        Scripted("Of course. [1]", needs=[need("dogs on the terrace")]),
        agents={"plain": {"method": "vanilla"}},
        method="weave",
    )
    page.goto(running.url)
    upload(page)
    page.get_by_role("link", name="Compare").click()
    expect(page.get_by_label("dialore/weave")).to_have_count(0)  # it is dialore itself
    page.get_by_placeholder("Say something to all of them").fill("May I bring my dog?")  # Chat's box is named alike
    page.get_by_role("button", name="Ask").click()
    for model in ("dialore", "dialore/plain"):
        column = page.get_by_role("region", name=model, exact=True)
        expect(column).to_contain_text("Of course.")
        column.get_by_text("Grounds", exact=True).click()
    expect(page.locator(".columns .piece").first).to_contain_text("Dogs are welcome")
    checked(page, "compare")
    page.get_by_role("button", name="Go on with this").first.click()
    expect(page.get_by_role("list", name="History")).to_contain_text("Of course.")


def listed(page, name="Earlier conversations"):
    """The list of earlier conversations, opened by the keyboard."""
    page.get_by_role("button", name=name).focus()
    page.keyboard.press("Enter")
    return page.locator("#earlier")


def test_earlier_conversations_are_listed_gone_on_with_and_deleted(serving, page):
    running = serving(Scripted("Of course, on the terrace. [1]", needs=[need("dogs on the terrace")]))
    page.goto(running.url)
    earlier = listed(page)
    checked(page, "conversations-none")
    earlier.get_by_label("Remember me").check()
    expect(earlier).to_contain_text("None is kept yet.")
    page.keyboard.press("Escape")
    expect(earlier).to_be_hidden()
    upload(page)
    reply = page.get_by_role("article", name="Response")
    for text in ("May I bring my dog?", "May I bring my two very old cats to the terrace, and stay until late? " * 2):
        page.get_by_role("button", name="New conversation").click() if text != "May I bring my dog?" else None
        ask(page, text)
        expect(reply.get_by_role("button", name="Source 1")).to_be_visible()
    listed(page)
    expect(earlier.get_by_role("listitem")).to_have_count(2)
    expect(earlier.locator("[aria-current]")).to_contain_text("two very old cats")
    checked(page, "conversations")
    page.get_by_role("button", name=re.compile("^May I bring my dog")).focus()
    page.keyboard.press("Enter")
    expect(earlier).to_be_hidden()
    expect(page.get_by_role("status")).to_have_text("Opened: May I bring my dog?")
    expect(page.locator(".log")).to_be_focused()
    page.get_by_role("button", name=re.compile("Source 1: House rules")).click()  # it rests on what it did
    expect(page.locator(".piece.open mark").first).to_contain_text("terrace")
    ask(page, "And another one?")
    expect(reply).to_have_count(2)
    expect(reply.nth(1).get_by_role("button", name="Source 1")).to_be_visible()
    page.reload()
    listed(page)
    expect(earlier.get_by_role("listitem").first).to_contain_text("May I bring my dog?")
    expect(earlier.get_by_role("listitem")).to_have_count(2)
    for left in (1, 0):  # the current one first, which leaves the page, too
        earlier.get_by_role("button", name=re.compile("^Delete: ")).first.click()
        earlier.get_by_role("button", name="Delete", exact=True).click()
        expect(earlier.get_by_role("listitem")).to_have_count(left)
        expect(reply).to_have_count(0)
    assert running.http.get("/v1/conversations?user=page").json() == {"data": []}


def test_where_no_conversations_are_kept_there_is_no_list(serving, page):
    running = serving(server={"kept_days": 0})
    page.goto(running.url)
    with page.expect_response(re.compile("v1/conversations")) as asked:
        page.reload()
    assert asked.value.status == 404
    expect(page.get_by_role("button", name="Share and export")).to_be_visible()
    expect(page.get_by_role("button", name="Earlier conversations")).to_have_count(0)


def test_without_a_language_model_the_page_says_so(serving, page):
    running = serving(None, method="lexical")
    page.goto(running.url)
    page.get_by_text("No language model is set").wait_for()
    checked(page, "chat-without")
    page.locator(".composer input[type=file]").set_input_files(
        {"name": "tool.exe", "mimeType": "application/x-msdownload", "buffer": b"MZ"}
    )
    expect(page.get_by_role("status")).to_contain_text("tool.exe: name a file that ends in .txt")
    page.get_by_role("link", name="Compare").click()
    page.get_by_text("No language model is set").wait_for()


def test_the_page_speaks_chinese(serving, browser):
    running = serving(Scripted("当然可以。"))
    context = browser.new_context(viewport={"width": 1400, "height": 900}, locale="zh-CN")
    shown = context.new_page()
    shown.goto(running.url)
    shown.get_by_role("textbox", name="你的消息").fill("可以带狗吗？")
    shown.keyboard.press("Enter")
    expect(shown.get_by_role("article", name="回复")).to_contain_text("当然可以。")
    shown.get_by_role("button", name="为什么这样说？").click()
    checked(shown, "chat-zh")
    shown.keyboard.press("Escape")
    listed(shown, "以往的对话").get_by_label("记住我").check()
    shown.get_by_text("还没有保存对话。").wait_for()
    checked(shown, "conversations-zh")
    assert shown.evaluate("document.documentElement.lang").startswith("zh")
    context.close()
