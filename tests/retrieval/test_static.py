"""The static embedder: exact to the bit, both languages in one space, its data whole."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import shutil
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from dialore.errors import InputError
from dialore.retrieval.static import StaticEmbedder, normalise

DATA = Path(str(files("dialore") / "data" / "embedding"))
TEXTS = [
    "I skipped lunch today and there's a meeting until six.",
    "我中午没吃饭，会要开到六点呢。",
    "我的 dog 想去 walk, naïve café 42!",
]


@pytest.fixture(scope="module")
def static():
    return StaticEmbedder()


def test_vectors_are_the_same_to_the_bit_everywhere(static):
    found = hashlib.sha256(static.encode(TEXTS).astype("<f4").tobytes()).hexdigest()
    assert found == "7bc3979b36824636925667ed9d53266fb3c7cd53cd97bd8df9623c014abc6611"


def test_vectors_are_the_exact_integer_sums_rounded_once(static):
    english = static._english
    tokens = english.pieces.ids(TEXTS[0])
    sums = [0] * static.dimension
    for token in tokens:
        weight = int(english.weights[token])
        for at, component in enumerate(english.vectors[token].tolist()):
            sums[at] += component * weight
    length = math.sqrt(sum(component * component for component in sums))
    expected = np.array([component / length for component in sums]).astype(np.float32)
    assert np.array_equal(static.encode(TEXTS[:1])[0], expected)


def test_vectors_do_not_depend_on_the_batch_or_its_order(static):
    many = [*TEXTS, *(f"{text} {number}" for number in range(300) for text in TEXTS)]
    whole = static.encode(many)
    assert np.array_equal(whole[::-1], static.encode(many[::-1]))
    assert all(np.array_equal(static.encode([text])[0], whole[at]) for at, text in enumerate(many[:9]))


def test_a_very_long_text_has_a_unit_vector(static):
    long = static.encode([TEXTS[0] * 2_000, TEXTS[0]])
    assert np.allclose(np.linalg.norm(long, axis=1), 1, atol=1e-6)
    assert long[0] @ long[1] > 0.99


def test_normalise_bears_the_largest_sums():
    rows = normalise(np.array([[2**62, -(2**62)], [3, 4], [0, 0]], dtype=np.int64))
    assert np.allclose(rows, [[0.70710678, -0.70710678], [0.6, 0.8], [0, 0]])


@pytest.mark.parametrize("text", ["", " \n", "，。！", "ありがとう", "\u0000", "\ud800"])
def test_texts_without_content_do_not_fail(static, text):
    assert np.isfinite(static.encode([text, f"a dog {text}"])).all()
    assert static.encode([f"a dog {text}"])[0] @ static.encode(["a dog"])[0] > 0.8


def test_special_tokens_in_a_text_are_plain_text(static):
    plain, special = static.encode(["pad", "[PAD]"])
    assert plain @ special > 0.8


def test_meaning_reaches_over_the_languages(static):
    dog, walk, tax = static.encode(["我的狗想出去散步", "a dog wants to go for a walk", "the form for the tax office"])
    assert dog @ walk > 0.5
    assert dog @ tax < 0.3


def test_traditional_characters_read_as_simplified(static):
    traditional, simplified, what = static.encode(["養寵物要每天遛它", "养宠物要每天遛它", "这是什么"])
    assert np.array_equal(traditional, simplified)
    assert static._chinese.split("这是什么") == ["这", "是", "什么"]
    assert what.any()


def test_sums_of_parts_add_up(static):
    parts = static.sums(["a dog", "needs a walk"])
    assert np.array_equal(parts.sum(axis=0), static.sums(["a dog needs a walk"])[0])


def test_chinese_needs_no_cache_and_no_writable_folder(tmp_path):
    program = (
        "import os, tempfile; tempfile.tempdir = os.environ['NOWHERE']\n"
        "from dialore.retrieval.embedding import load_embedder\n"
        "assert load_embedder('static').encode(['我的狗想出去散步']).any()"
    )
    nowhere = tmp_path / "missing"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        env={"PYTHONPATH": str(DATA.parents[2]), "PATH": "", "NOWHERE": str(nowhere)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not nowhere.exists()


def test_words_added_to_jieba_change_nothing(static, caplog):
    import jieba

    caplog.set_level(logging.ERROR, logger="jieba")
    text = ["今天晚上吃火锅"]
    before = static.encode(text)
    dictionary = jieba.dt.FREQ
    jieba.dt.FREQ = {**dictionary, "晚上吃火锅": 10**9}
    try:
        assert np.array_equal(static.encode(text), before)
    finally:
        jieba.dt.FREQ = dictionary


def test_the_manifest_fits_the_data():
    manifest = json.loads((DATA / "manifest.json").read_text(encoding="utf-8"))
    hashes = {name: hashlib.sha256((DATA / name).read_bytes()).hexdigest() for name in manifest["files"]}
    assert hashes == manifest["files"]
    assert set(hashes) == {"english.npz", "english.tokenizer.json", "chinese.npz"}
    assert hashlib.sha256(json.dumps(hashes, sort_keys=True).encode()).hexdigest()[:16] == manifest["fingerprint"]
    assert "CC-CEDICT" in (DATA / "NOTICE").read_text(encoding="utf-8")
    assert sum((DATA / name).stat().st_size for name in hashes) < 9_500_000


def test_a_folder_without_data_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match="no static embedding"):
        StaticEmbedder(tmp_path)


def test_a_damaged_file_is_an_input_error(tmp_path):
    for name in ("manifest.json", "english.tokenizer.json"):
        shutil.copy(DATA / name, tmp_path)
    (tmp_path / "english.npz").write_bytes((DATA / "english.npz").read_bytes()[:1000])
    with pytest.raises(InputError, match="not a data file"):
        StaticEmbedder(tmp_path).encode(["hello"])


def test_a_folder_of_ones_own_loads_without_chinese(tmp_path):
    for name in ("manifest.json", "english.tokenizer.json", "english.npz"):
        shutil.copy(DATA / name, tmp_path)
    embedder = StaticEmbedder(tmp_path)
    assert embedder.name == f"static:{tmp_path}"
    english, chinese = embedder.encode(["dog", "狗"])
    assert english.any()
    assert not chinese.any()


def test_the_sums_of_the_parts_are_the_text_s(static):
    texts = ["a dog needs a walk", "茶馆 and cafés", "", "Zoë's 饺子 dumplings, don't", "x\u3000y_z", "qwrtzx 龘"]
    for text, parts, whole in zip(texts, static.parts(texts), static.sums(texts), strict=True):
        assert np.array_equal(static.part_sums(parts).sum(axis=0), whole)
        words = static.parts(text.split())
        assert sorted(np.concatenate([*words, np.empty(0, np.int64)]).tolist()) == sorted(parts.tolist())
