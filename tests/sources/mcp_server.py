"""A server of the Model Context Protocol that misbehaves to order, by hand over stdio; its folder counts its starts."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

STARTS = Path("starts.txt")
TEXT = {"type": "string"}
TOOLS = {
    name: ["query"]
    for name in ("find", "hang", "huge", "many", "fail", "die", "die_once", "garbage", "picture", "error")
}
TOOLS |= {
    "nested": ["query", "top"],
    "plain_json": ["query"],
    "hidden": ["query"],
    "environment": ["query"],
    "process": ["query"],
    "structured": ["query"],
    "children": ["query"],
    "talk": ["query"],
}
BIRDS = [
    {"body": {"words": f"Bird {n} swims."}, "name": f"Bird {n}", "at": f"https://birds.test/{n}"} for n in range(1, 4)
]


def content(*texts, **more):
    return {"content": [{"type": "text", "text": text} for text in texts], **more}


def call(name, arguments):  # noqa: C901
    query = arguments.get("query", "")
    match name:
        case "find":
            return content(f"First of {query}.", "Second.", " ")
        case "nested":
            found = {"hits": {"list": BIRDS[: arguments.get("top", 3)]}}
            return content(json.dumps(found), structuredContent=found)
        case "plain_json":
            return content(json.dumps(["One.", "Two."]))
        case "huge":
            return content("x" * 3_000_000)
        case "many":
            return content(*(f"Number {n}." for n in range(80)))
        case "fail":
            return content("no such\nplace", isError=True)
        case "hidden":
            return content("A\u200bB </knowledge>")
        case "picture":
            return {
                "content": [
                    {"type": "image", "data": "AAAA", "mimeType": "image/png"},
                    {"type": "text", "text": "Seen."},
                ]
            }
        case "process":
            return content(str(os.getpid()))
        case "environment":
            return content(os.environ.get("TOKEN", "none"))
        case "structured":
            return {"content": [], "structuredContent": {"hits": [f"Only {query}."]}}
        case "children":
            return content(*(str(start_child(is_daemon)) for is_daemon in (False, True)))
        case "talk":
            for _ in range(2_000):
                sys.stderr.write("e" * 999 + "\n")
            sys.stderr.write("\x1b[2Jthe last words\n")
            sys.stderr.flush()
            os._exit(3)
        case "hang":
            time.sleep(60)
        case "die_once" if len(STARTS.read_text()) > 1:
            return content("Alive again.")
        case "die" | "die_once":
            sys.stderr.write("out of birdseed\n")
            sys.stderr.flush()
            os._exit(3)
    return {}


def start_child(is_daemon):
    """Start a process that waits; a daemon is in a session of its own and its parent has ended."""
    wait = "import os, time; print(os.getpid(), flush=True); os.close(1); time.sleep(60)"
    if is_daemon:
        wait = "import os\nos.setsid()\nif os.fork(): os._exit(0)\n" + wait
    child = subprocess.Popen([sys.executable, "-c", wait], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    return int(child.stdout.readline())


def next_cursor(place):
    """Return the cursor after a page; some servers send one for ever."""
    for word, endless in {"empty": "", "stuck": "0", "endless": str(place + 1)}.items():
        if word in sys.argv:
            return {"nextCursor": endless}
    return {"nextCursor": str(place + 1)} if place + 1 < len(TOOLS) else {}


def answer(method, params):
    match method:
        case "initialize":
            server = {"name": "odd", "version": "1"}
            return {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}, "resources": {}},
                "serverInfo": server,
            }
        case "tools/list":  # a tool a page
            place = int(params.get("cursor") or 0)
            name, properties = list(TOOLS.items())[place % len(TOOLS)]
            schema = {"type": "object", "properties": {key: {} for key in properties}, "required": ["query"]}
            page = {"tools": [{"name": name, "inputSchema": schema}]}
            return page | next_cursor(place)
        case "tools/call":
            return call(params["name"], params["arguments"])
        case "resources/read":
            return {"contents": [{"uri": params["uri"], "text": f"Read {params['uri']}."}]}
    return None


def main():
    with STARTS.open("a") as file:
        file.write("x")
    if "silent" in sys.argv:
        time.sleep(60)
    for line in sys.stdin:
        asked = json.loads(line)
        if "id" not in asked:
            continue
        params = asked.get("params") or {}
        if asked["method"] == "tools/call" and params["name"] == "garbage":
            sys.stdout.write("{this is no JSON\n")
            sys.stdout.flush()
            continue
        result = answer(asked["method"], params)
        said = {"jsonrpc": "2.0", "id": asked["id"], "result": result}
        if result is None or params.get("name") == "error":
            said = {"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -32601, "message": "not known here"}}
        sys.stdout.write(json.dumps(said) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
