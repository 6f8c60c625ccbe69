"""Chromium without a display, by the DevTools protocol over two pipes: nothing but Python's standard library."""

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

OPTIONS = (
    "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-extensions --remote-debugging-pipe"
).split()


def find_chromium():
    """The program that DANLING_CHROMIUM names, or one of the usual names; ends the script with 77 without one."""
    named = os.environ.get("DANLING_CHROMIUM")
    for name in [named] if named else ["chromium", "chromium-browser", "google-chrome"]:
        found = shutil.which(name)
        if found:
            return found
    sys.exit(77)


class Page:
    """One page. `complaints` are errors of scripts and the console, and requests to anywhere but files and loopback."""

    def __init__(self, width=1280, height=900, scale=1, mobile=False, dark=False):
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)  # its helpers may still write
        to_read, self.to_write = os.pipe()
        self.to_listen, from_write = os.pipe()

        # Higher numbers first: a pipe's own may be 3 or 4.
        high_read, high_write = (os.dup2(end, 100 + i) for i, end in enumerate((to_read, from_write)))

        def place():
            os.dup2(high_read, 3)
            os.dup2(high_write, 4)

        self.process = subprocess.Popen(
            [find_chromium(), *OPTIONS, f"--user-data-dir={self.folder.name}", "about:blank"],
            preexec_fn=place, pass_fds=(3, 4), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for end in (to_read, from_write, high_read, high_write):
            os.close(end)
        self.buffer = b""
        self.number = 0
        self.session = None
        self.complaints = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=mobile)
        if mobile:
            self.send("Emulation.setTouchEmulationEnabled", enabled=True)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])

    def send(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to_write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self.note(answer)

    def receive(self):
        while b"\0" not in self.buffer:
            block = os.read(self.to_listen, 65536)
            if not block:
                raise RuntimeError("Chromium ended")
            self.buffer += block
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def note(self, event):
        method, details = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(details["exceptionDetails"]))
        elif method == "Log.entryAdded" and details["entry"]["level"] == "error":
            self.complaints.append(details["entry"]["text"])
        elif method == "Runtime.consoleAPICalled" and details["type"] in ("error", "assert"):
            self.complaints.append(json.dumps(details["args"]))
        elif method == "Network.requestWillBeSent":
            url = details["request"]["url"]
            if not url.startswith(("file:", "data:", "http://127.0.0.1:")):
                self.complaints.append(f"request to {url}")

    def open(self, url):
        self.send("Page.navigate", url=url)
        self.wait_for("document.readyState === 'complete'")

    def run(self, script):
        """The value of a JavaScript expression."""
        answer = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{script}: {json.dumps(answer['exceptionDetails'])}")
        return answer["result"].get("value")

    def wait_for(self, condition, seconds=60):
        end = time.monotonic() + seconds
        while not self.run(condition):
            assert time.monotonic() < end, f"never true: {condition}"
            time.sleep(0.02)

    def mouse(self, kind, x, y, **more):
        self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def touch(self, kind, *points):
        self.send("Input.dispatchTouchEvent", type=kind, touchPoints=[{"x": x, "y": y, "id": i} for i, (x, y) in enumerate(points)])

    def key(self, key, **more):
        text = {"text": key} if len(key) == 1 else {}
        self.send("Input.dispatchKeyEvent", type="keyDown", key=key, **text, **more)
        self.send("Input.dispatchKeyEvent", type="keyUp", key=key, **more)

    def screenshot(self, path, whole=False):
        picture = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(picture))

    def close(self):
        self.process.terminate()
        self.process.wait()
        self.folder.cleanup()
