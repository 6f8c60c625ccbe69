"""Watches a run in Chromium while it grows, and goes away in the middle. Exits with 77 where there is no Chromium.

Usage: watch_browser.py URL METRICS_FILE
"""

import sys

from chromium import Page


def main():
    url, metrics = sys.argv[1:]
    page = Page()
    try:
        page.open(url)
        page.wait_for("page.model.metrics.get('loss')?.[0].curve.last[0] === 40")
        page.run("document.querySelector('[data-kind=val]').click()")
        for step in (41, 42):
            with open(metrics, "a", encoding="utf-8") as file:
                file.write('{"split":"train","mode":"train","epoch":4,"global_step":%d,"iteration":1,"loss":9.5}\n' % step)
            page.wait_for("page.model.metrics.get('loss')[0].curve.last[0] === %d" % step)
        assert page.run("document.querySelector('.chart .legend').textContent.includes('9.500')")
        assert page.run("!document.querySelector('[data-kind=val]').checked"), "an update changed what is shown"
        assert page.run("document.querySelector('.live').textContent") == "live"
        assert not page.complaints, page.complaints
    finally:
        page.process.kill()  # in the middle of its requests
        page.close()


if __name__ == "__main__":
    main()
