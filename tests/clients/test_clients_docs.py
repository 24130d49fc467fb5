"""docs/clients.md: the snippets that it shows are run against the service."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.clients.conftest import ANSWER, HANDBOOK, QUESTION, listens
from tests.server.conftest import wait_until

HERE = Path(__file__).parent
PAGE = (HERE.parents[1] / "docs" / "clients.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
NEEDS = {"langchain_openai": "langchain-openai", "gradio": "gradio", "llama_index.core": "dialore[llamaindex]"}
NEEDS |= {"haystack": "dialore[haystack]", "langchain_core": "dialore[langchain]"}


def snippet(kind, word):
    [found] = [block for language, block in BLOCKS if language == kind and word in block]
    return found


def python(service, world, word, needs):
    if importlib.util.find_spec(needs.partition(".")[0]) is None:
        pytest.skip(f"{needs} is not here: pip install {NEEDS[needs]}")
    text = (
        snippet("python", word).replace("http://127.0.0.1:8017/v1", service.url).replace('"none"', f'"{service.key}"')
    )
    environment = {**world.environment, "DIALORE_SETTINGS": str(world.folder / "dialore.toml")}
    endpoint = re.search(r'base_url = "(.*)"', (world.folder / "dialore.toml").read_text("utf-8"))[1]
    environment |= {"DIALORE_BASE_URL": endpoint, "DIALORE_MODEL": "served-model"}
    environment |= {"HAYSTACK_TELEMETRY_ENABLED": "False", "GRADIO_ANALYTICS_ENABLED": "False", "HF_HUB_OFFLINE": "1"}
    return [sys.executable, "-c", text], environment


@pytest.mark.parametrize(
    ("word", "needs", "said"),
    [
        ("ChatOpenAI", "langchain_openai", ANSWER),
        ("adapters.langchain", "langchain_core", f"{HANDBOOK} Dogs"),
        ("adapters.llamaindex", "llama_index.core", f"{HANDBOOK} 0."),
        ("adapters.haystack", "haystack", HANDBOOK),
    ],
)
def test_a_snippet_runs(service, world, word, needs, said):
    words, environment = python(service, world, word, needs)
    done = subprocess.run(words, check=False, cwd=world.folder, env=environment, capture_output=True, text=True)
    assert not done.returncode, done.stderr
    assert said in done.stdout


@pytest.mark.skipif(
    shutil.which("node") is None or not (HERE / "node_modules").exists(), reason="npm ci in tests/clients"
)
def test_the_snippet_for_node_runs(service):
    text = (
        snippet("js", "OpenAI").replace("http://127.0.0.1:8017/v1", service.url).replace('"none"', f'"{service.key}"')
    )
    words = ["node", "--input-type=module", "-e", text]
    done = subprocess.run(words, check=False, cwd=HERE, capture_output=True, text=True)
    assert not done.returncode, done.stderr
    assert ANSWER in done.stdout
    assert HANDBOOK in done.stdout


def test_the_files_that_are_shown_are_what_the_tests_use():
    from tests.clients.test_matrix import MODELS

    [shown] = yaml.safe_load(snippet("yaml", "model_id"))
    assert shown.keys() == yaml.safe_load(MODELS)[0].keys()
    assert json.loads(snippet("json", "mcpServers"))["mcpServers"]["dialore"]["args"][0] == "mcp"


def test_gradio_s_page_answers(service, world):
    words, environment = python(service, world, "gradio", "gradio")
    import gradio_client

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment |= {"GRADIO_SERVER_PORT": str(port)}
    with subprocess.Popen(words, cwd=world.folder, env=environment, stdout=subprocess.DEVNULL) as process:
        try:
            wait_until(lambda: process.poll() is not None or listens(("127.0.0.1", port)), 60)
            client = gradio_client.Client(f"http://127.0.0.1:{port}", verbose=False, analytics_enabled=False)
            with contextlib.closing(client):
                assert client.predict(QUESTION, api_name="/answer") == ANSWER
                assert client.predict("And my cat?", api_name="/answer") == ANSWER
        finally:
            process.terminate()
            process.wait(20)
