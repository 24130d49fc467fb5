"""The pages Knowledge, Annotate and Runs in Chromium: what people do there, and axe in light and dark."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dialore.evaluation.human.reading import read_answers
from dialore.experiments.store import Job, RunStore
from dialore.server.middleware import new_key
from tests.server.browsing import checked
from tests.server.conftest import Scripted, need, wait_until
from tests.server.sheets import write_sheets
from tests.server.test_runs import write_run

playwright = pytest.importorskip("playwright.sync_api", reason="the clients extra is not installed")
HOSTILE = "<img src=x onerror=\"document.title='hit'\"><script>document.title='hit'</script>"


def test_what_is_added_and_edited_is_known_at_the_next_answer_and_shows_who_used_it(serving, page):
    running = serving(Scripted("Of course. [1]", needs=[need("dogs on the terrace")]))
    page.goto(f"{running.url}/#/knowledge")
    page.get_by_role("button", name="Add a text").click()
    page.get_by_role("textbox", name="Text", exact=True).fill("Dogs may not enter the terrace.")
    page.get_by_label("Title").fill("House rules > Dogs")
    page.get_by_role("button", name="Save").click()
    page.get_by_role("button", name="Edit: Dogs may not enter").click()
    page.get_by_role("textbox", name="Text", exact=True).fill(f"Dogs are welcome on the terrace. {HOSTILE}")
    page.get_by_role("button", name="Save").click()
    page.get_by_text("Dogs are welcome").wait_for()
    assert not page.get_by_text("may not enter").count()
    [piece] = running.say().json()["choices"][0]["message"]["grounding"]["citations"]
    assert piece["text"] == f"Dogs are welcome on the terrace. {HOSTILE}"
    page.get_by_label("Files", exact=True).set_input_files(
        {"name": "bees.md", "mimeType": "text/markdown", "buffer": b"# Bees\n\nThe bees live behind the house.\n"}
    )
    page.get_by_text("The bees live behind the house.").wait_for()
    page.get_by_label("Files", exact=True).set_input_files(
        {"name": "bees.md", "mimeType": "text/markdown", "buffer": b"# Bees\n\nThe bees live on the roof.\n"}
    )
    page.get_by_text("The bees live on the roof.").wait_for()
    playwright.expect(page.get_by_text("The bees live behind the house.")).to_have_count(0)  # of the older file
    page.get_by_role("button", name="Add a text").click()
    page.get_by_role("textbox", name="Text", exact=True).fill("One sentence of many is this one. " * 60)
    page.get_by_role("button", name="Save").click()
    page.get_by_text("which is changed by adding it anew").first.wait_for()
    playwright.expect(page.get_by_role("button", name="Add a text")).to_be_focused()
    page.reload()
    page.get_by_text("Used by 1 of the latest responses").click()
    page.get_by_text("May I bring my dog?").wait_for()
    assert page.get_by_text("House rules · Dogs").count() == 1
    page.get_by_role("searchbox").fill("bees")
    playwright.expect(page.locator(".piece").first).to_contain_text("The bees live")
    page.get_by_role("searchbox").fill("")
    page.get_by_text("Used by 1 of the latest responses").wait_for()
    checked(page, "documents")
    assert page.title() == "Knowledge · Dialore"
    page.get_by_text("Files that were uploaded").click()
    page.locator("details").get_by_role("button", name="Delete: bees.md").click()
    page.get_by_role("button", name="Delete", exact=True).click()
    page.get_by_text("The bees live").wait_for(state="detached")


def test_facts_persona_and_memory_are_browsed_mended_and_forgotten(serving, page):
    running = serving()
    page.goto(f"{running.url}/#/knowledge")
    page.get_by_role("button", name="Facts").click()
    page.get_by_role("button", name="Add a fact").click()
    page.get_by_label("Head").fill("dog")
    page.get_by_label("Tail").fill("terrace")
    page.get_by_role("button", name="Save").click()
    edit = page.get_by_role("button", name=re.compile("Edit: "))
    # The first field has the focus at once: one that came later would take what is typed elsewhere.
    focused = edit.evaluate("async edit => (edit.click(), await null, await null, document.activeElement.name)")
    assert focused == "head"
    page.get_by_label("Weight").fill("0.5")
    page.get_by_role("button", name="Save").click()
    page.get_by_text("weight 0.5").wait_for()
    assert [one["weight"] for one in running.http.get("/v1/knowledge/facts").json()["data"]] == [0.5]
    page.get_by_role("button", name="dog", exact=True).first.click()
    playwright.expect(page.get_by_role("searchbox")).to_have_value("dog")
    page.locator(".piece", has_text="from the settings").first.wait_for()
    checked(page, "facts")
    page.get_by_role("button", name="Persona").click()
    page.get_by_text("There is nothing yet.").wait_for()
    page.get_by_role("button", name="Add a sentence").click()
    page.get_by_label("in the first person").fill("I keep bees.")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Edit: I keep bees.").click()
    page.get_by_label("in the first person").fill("I keep geese.")
    page.keyboard.press("Enter")
    page.get_by_text("I keep geese.").wait_for()
    assert running.http.get("/v1/knowledge/persona").json() == {"sentences": ["I keep geese."]}
    running.say()
    assert "I keep geese." in running.model.prompt("draft")
    page.get_by_role("button", name="Memory").click()
    page.get_by_label("Remember me").check()
    page.get_by_text("Nothing is remembered yet.").wait_for()
    assert running.http.get("/v1/memory?user=page").json()["consents"]
    page.get_by_label("Remember me").click()
    page.get_by_role("button", name="Keep").click()
    assert running.http.get("/v1/memory?user=page").json()["consents"]
    page.get_by_label("Remember me").click()
    page.get_by_role("button", name="Forget me").click()
    playwright.expect(page.get_by_label("Remember me")).not_to_be_checked()
    assert not running.http.get("/v1/memory?user=page").json()["consents"]
    page.get_by_label("Remember me").check()
    page.get_by_role("button", name="中文").click()
    page.get_by_text("还没有记住任何内容。").wait_for()
    checked(page, "memory-zh")


def test_two_annotators_judge_by_keys_undo_resume_and_their_agreement_is_shown(serving, page, tmp_path):
    pytest.importorskip("scipy", reason="the evaluation extra is not installed")
    key = write_sheets(tmp_path / "sheets")
    running = serving(server={"annotate": str(tmp_path / "sheets")})
    page.goto(f"{running.url}/#/annotate")
    page.get_by_label("Show the codes").check()
    codes = page.locator("tbody tr td:nth-child(2)").all_inner_texts()[:2]
    page.get_by_label("Your code").fill("wrong")
    page.get_by_role("button", name="Begin").click()
    page.get_by_text("there is no such code").wait_for()
    for code in codes:
        page.get_by_label("Your code").fill(code)
        page.keyboard.press("Enter")
        page.get_by_text("Item 1 of 3, 0 done").wait_for()
        if code == codes[0]:
            checked(page, "annotate")
            sheet = tmp_path / "sheets" / "annotator-1.csv"
            page.keyboard.press("t")
            wait_until(lambda place=sheet: ",tie," in place.read_text("utf-8"))
            page.keyboard.press("u")
            wait_until(lambda place=sheet: ",tie," not in place.read_text("utf-8"))
            page.reload()
            page.get_by_text("Item 1 of 3, 0 done").wait_for()
            assert "plain" not in page.inner_text("main")
        for number in range(3):
            page.get_by_text(f"Item {number + 1} of 3, {number} done").wait_for()
            shown = page.locator(".texts .quoted").all_inner_texts()
            better = "AB"["calms me" in shown[1]]
            for letter in [better] * 4:
                page.keyboard.press(letter.lower())
            playwright.expect(page.get_by_role("status").first).to_contain_text(f"{number + 1} done")
            page.keyboard.press("Enter")
        page.get_by_text("All items are done").wait_for()
        page.get_by_role("button", name="Leave").click()
        page.get_by_label("Your code").wait_for()
    page.reload()
    page.get_by_role("region", name="Agreement").get_by_text("100.0%").first.wait_for()
    assert page.get_by_text("3 / 3").count() == 2
    checked(page, "agreement")
    assert {one.winner for one in read_answers(tmp_path / "sheets").annotations} == {"rich"}
    assert len(key.items) == 3
    assert page.title() == "Annotate · Dialore"


def test_ranks_and_scores_are_given_by_digits_and_by_buttons_in_chinese(serving, page, tmp_path):
    for form in ("ranking", "likert"):
        write_sheets(tmp_path / form, form=form, dialogues=1, annotators=1)
        running = serving(server={"annotate": str(tmp_path / form)})
        [annotator] = running.http.get("/v1/annotate").json()["annotators"]
        page.goto(f"{running.url}/#/annotate/{annotator['code']}")
        page.get_by_role("button", name="中文").click()
        page.get_by_text("第 1 条").wait_for()
        page.keyboard.press("2")
        page.keyboard.press("1")
        page.get_by_role("group").last.get_by_role("button", name="1", exact=True).click()
        checked(page, f"{form}-zh")
        wait_until(lambda place=tmp_path / form: read_answers(place).annotations)
        first = read_answers(tmp_path / form).annotations[0]
        assert set(first.values.values()) == ({1, 2} if form == "ranking" else {2})


def test_an_annotator_needs_a_code_alone_where_the_service_has_keys(serving, page, tmp_path):
    write_sheets(tmp_path / "sheets", annotators=1)
    key, mark = new_key()
    keys = [{"name": "owner", "sha256": mark, "knowledge": True}]
    running = serving(server={"annotate": str(tmp_path / "sheets"), "keys": keys})
    told = running.http.get("/v1/annotate", headers={"Authorization": f"Bearer {key}"}).json()
    page.goto(f"{running.url}/#/annotate/{told['annotators'][0]['code']}")
    page.get_by_text("Item 1 of 3").wait_for()
    page.goto(f"{running.url}/#/knowledge")
    page.get_by_text("This service wants a key").wait_for()


def test_where_there_are_no_runs_and_no_sheets_the_pages_say_what_would_show_them(serving, page):
    page.goto(f"{serving().url}/#/annotate")
    page.get_by_text('annotate = "FOLDER"').wait_for()
    assert not page.get_by_label("Your code").count()
    checked(page, "annotate-none")
    page.goto(page.url.replace("annotate", "runs"))
    page.get_by_text('runs = "FOLDER"').wait_for()
    playwright.expect(page.get_by_role("link", name="Annotate")).to_have_count(0)
    checked(page, "runs-none")


def test_a_run_is_followed_and_its_dialogues_are_browsed(serving, page, tmp_path):
    pytest.importorskip("scipy", reason="the evaluation extra is not installed")
    with ThreadPoolExecutor() as threads:  # in this one playwright's loop runs
        folder = threads.submit(write_run, tmp_path / "runs" / "small", done=3).result()
    running = serving(server={"runs": str(tmp_path / "runs")})
    page.goto(f"{running.url}/#/runs")
    page.get_by_text("6 of 8 responses").wait_for()
    page.get_by_text("running", exact=True).wait_for()
    with RunStore.open(folder) as store:
        store.add(Job(3, 0), store.response(Job(2, 0)))
    page.get_by_text("7 of 8 responses").first.wait_for()
    page.get_by_role("region", name="Scores").get_by_text("dcrag").wait_for()
    page.get_by_role("searchbox").fill("garden")
    page.get_by_role("button", name="d3").click()
    playwright.expect(page.locator(".answer")).to_have_count(1)
    page.get_by_role("searchbox").fill("")
    page.get_by_role("button", name="d1").click()
    playwright.expect(page.locator(".answer")).to_have_count(2)
    page.get_by_text(re.compile("Knowledge: ")).first.wait_for()
    checked(page, "runs")
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save the whole report").click()
    assert "<h1>small</h1>" in Path(saved.value.path()).read_text("utf-8")
    assert page.title() == "Runs · Dialore"
