"""Chat templates that know no system message, drop it without a word, or want roles to alternate."""

from __future__ import annotations

import logging

import pytest

from dialore.llm.local import LocalModel
from dialore.llm.model import ChatForm, Message, Request, Sampling
from dialore.llm.structured import complete_structured
from dialore.methods.stage_runner import Text
from tests.llm.tiny_causal import make_tiny_causal, needs_torch

pytestmark = [pytest.mark.filterwarnings("ignore"), needs_torch]

_TURNS = "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}\n{% endfor %}"
_ASKS = "{% if add_generation_prompt %}<assistant>{% endif %}"
_ALTERNATE = (
    "{% for m in turns %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate') }}{% endif %}{% endfor %}"
)
PLAIN = _TURNS + _ASKS
# As Gemma's: it raises on a system message, and roles must alternate from the user on.
REFUSES = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% set turns = messages %}" + _ALTERNATE + _TURNS + _ASKS
)
# It looks for two roles and leaves out what has another one.
DROPS = "{% for m in messages if m.role in ['user', 'assistant'] %}<{{ m.role }}>{{ m.content }}\n{% endfor %}" + _ASKS
# As Mistral's: a system message first is taken, and then roles must alternate.
ALTERNATES = (
    "{% set turns = messages[1:] if messages[0].role == 'system' else messages %}" + _ALTERNATE + _TURNS + _ASKS
)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    path = tmp_path_factory.mktemp("tiny")
    make_tiny_causal(path, positions=800)
    model = LocalModel(str(path))
    return path, model._load()[0], model


def messages(*said):
    return tuple(Message(role=role, content=text) for role, text in said)


S, U, A, V = ("system", "Be kind."), ("user", "I like tea."), ("assistant", "Why?"), ("user", "It is warm.")
S2 = ("system", "Be brief.")


@pytest.mark.parametrize(
    ("template", "given", "rendered"),
    [
        (PLAIN, [S, U, V], "<system>Be kind.\n<user>I like tea.\n<user>It is warm.\n"),
        (REFUSES, [U], "<user>I like tea.\n"),
        (REFUSES, [S, U], "<user>Be kind.\n\nI like tea.\n"),
        (REFUSES, [S, U, A, V], "<user>Be kind.\n\nI like tea.\n<assistant>Why?\n<user>It is warm.\n"),
        (REFUSES, [U, V], "<user>I like tea.\n\nIt is warm.\n"),
        (REFUSES, [S, S2, U, V], "<user>Be kind.\n\nBe brief.\n\nI like tea.\n\nIt is warm.\n"),
        (REFUSES, [S, A, V], "<user>Be kind.\n<assistant>Why?\n<user>It is warm.\n"),
        (REFUSES, [A, V], "<user>\n<assistant>Why?\n<user>It is warm.\n"),
        (REFUSES, [S], "<user>Be kind.\n"),
        (DROPS, [S, U], "<user>Be kind.\n\nI like tea.\n"),
        (DROPS, [U, S2, V], "<user>I like tea.\n<user>Be brief.\n\nIt is warm.\n"),
        (ALTERNATES, [S, U], "<system>Be kind.\n<user>I like tea.\n"),
        (ALTERNATES, [S, U, V, A], "<system>Be kind.\n<user>I like tea.\n\nIt is warm.\n<assistant>Why?\n"),
    ],
)
def test_messages_stand_as_the_template_takes_them(loaded, template, given, rendered):
    _, tokenizer, model = loaded
    tokenizer.chat_template = template
    assert model._render(messages(*given)) == f"{rendered}<assistant>"


def test_it_is_decided_once_for_each_template_and_roles(loaded, caplog, monkeypatch):
    _, tokenizer, model = loaded
    tokenizer.chat_template = REFUSES
    model._forms.clear()
    rendered, render = [], type(tokenizer).apply_chat_template

    def counted(self, conversation, **settings):
        rendered.append([message["role"] for message in conversation])
        return render(self, conversation, **settings)

    monkeypatch.setattr(type(tokenizer), "apply_chat_template", counted)
    with caplog.at_level(logging.INFO, "dialore.llm.local"):
        for text in ("I like tea.", "I like coffee."):
            assert text in model._render(messages(S, ("user", text)))
        assert len(rendered) == 3 + 2, "three forms were tried, then two prompts rendered"
        assert len(caplog.records) == 1
        tokenizer.chat_template = PLAIN
        assert model._render(messages(S, U)).startswith("<system>")


def test_a_template_that_takes_no_form_raises_its_own_error(loaded):
    _, tokenizer, model = loaded
    tokenizer.chat_template = "{{ raise_exception('Never') }}"
    with pytest.raises(Exception, match="Never"):
        model._render(messages(U))


def test_no_form_loses_a_text():
    given = messages(S, U, V, S2, A, A, U, S)
    for form in (ChatForm(folds=f, merges=m, opens=o) for f in (0, 1) for m in (0, 1) for o in (None, "")):
        joined = "\n\n".join(message.content for message in form.arrange(given))
        assert joined == "\n\n".join(message.content for message in given)


@pytest.mark.parametrize("template", [REFUSES, DROPS, ALTERNATES, PLAIN])
async def test_a_model_reads_the_system_text_whatever_its_template(loaded, template):
    path, *_ = loaded
    model = LocalModel(str(path))
    tokenizer, _ = model._load()
    tokenizer.chat_template = template
    sampling = Sampling(max_tokens=8, temperature=0)
    completion = await model.complete(Request(messages=messages(S, U), sampling=sampling))
    both = "<system>Be kind.\n<user>I like tea.\n" if template in {ALTERNATES, PLAIN} else None
    prompt = both or "<user>Be kind.\n\nI like tea.\n"
    assert completion.usage.prompt_tokens == len(tokenizer(f"{prompt}<assistant>")["input_ids"])
    # The repair turn speaks after the model's own answer.
    found = await complete_structured(model, Request(messages=messages(S, U), sampling=sampling), Text)
    assert len(found.completions) == 2
    await model.close()
