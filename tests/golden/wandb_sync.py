#!/usr/bin/env python3
"""Uploads an offline run with `wandb sync` to a server on loopback that keeps what it gets; needs PyPI's wandb.

Usage: wandb_sync.py RUN_DIRECTORY OUTPUT.json

The output has the variables of the first UpsertBucket ("run", its config parsed), the rows of wandb-history.jsonl
("history"), the last wandb-summary.json ("summary"), the exit code ("exitcode") and the uploaded files ("files").
Numbers that JSON cannot hold are strings.
"""

import gzip
import json
import math
import os
import subprocess
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

got = {"run": None, "history": {}, "summary": None, "exitcode": None, "files": {}}
lock = threading.Lock()


class Server(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def body(self):
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        return gzip.decompress(data) if self.headers.get("Content-Encoding") == "gzip" else data

    def answer(self, value):
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        self.answer({})

    def do_PUT(self):
        data = self.body()
        with lock:
            got["files"][self.path.removeprefix("/upload/")] = data.decode()
        self.answer({})

    def do_POST(self):
        data = json.loads(self.body())
        with lock:
            self.answer(self.graphql(data) if self.path == "/graphql" else self.file_stream(data))

    def graphql(self, request):
        variables = request.get("variables") or {}
        if "upsertBucket" in request["query"]:
            got["run"] = got["run"] or variables
            project = {"id": "p", "name": variables["project"], "entity": {"id": "e", "name": variables["entity"] or "me"}}
            bucket = {"id": "b", "name": variables["name"], "displayName": variables["displayName"], "config": "{}",
                      "historyLineCount": 0, "project": project}
            return {"data": {"upsertBucket": {"bucket": bucket, "inserted": True}}}
        if "createRunFiles" in request["query"]:
            url = f"http://127.0.0.1:{self.server.server_port}/upload/"
            files = [{"name": name, "uploadUrl": url + name} for name in variables["files"]]
            return {"data": {"createRunFiles": {"runID": "b", "uploadHeaders": [], "files": files}}}
        return {"data": {}}

    def file_stream(self, request):
        files = request.get("files") or {}
        rows = files.get("wandb-history.jsonl", {"offset": 0, "content": []})
        for number, row in enumerate(rows["content"], rows["offset"]):
            got["history"][number] = json.loads(row)
        for summary in files.get("wandb-summary.json", {"content": []})["content"]:
            got["summary"] = json.loads(summary)
        if request.get("complete"):
            got["exitcode"] = request["exitcode"]
        return {}


def finite(value):
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def main():
    ThreadingHTTPServer.handle_error = lambda *_: None  # the client ends with connections open
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as home:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("WANDB_")}
        environment |= {"WANDB_BASE_URL": f"http://127.0.0.1:{server.server_port}", "WANDB_API_KEY": "a" * 40,
                        "WANDB_ERROR_REPORTING": "false", "HOME": home, "NO_PROXY": "127.0.0.1"}
        environment |= {f"WANDB_{name}_DIR": home for name in ("CONFIG", "CACHE", "DATA")} | {"WANDB_DIR": home}
        done = subprocess.run([sys.executable, "-m", "wandb", "sync", sys.argv[1]], env=environment, cwd=home,
                              capture_output=True, text=True, timeout=120)
    print(done.stdout, done.stderr)
    if done.returncode != 0 or got["run"] is None:
        return 1
    got["run"]["config"] = {key: item["value"] for key, item in json.loads(got["run"]["config"]).items()}
    got["history"] = [got["history"][number] for number in sorted(got["history"])]
    Path(sys.argv[2]).write_text(json.dumps(finite(got)), encoding="utf-8")
    return 0


sys.exit(main())
