"""Uses a page of `danling report` with two runs as a reader does, in Chromium. Exits with 77 where there is none.

Usage: report_browser.py PAGE
"""

import sys
from pathlib import Path

from chromium import Page

# Pixels of a chart that have the colour of a run's line.
COUNT = """(() => {
  const chart = [...page.charts.values()][0];
  const {canvas} = chart;
  const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  const wanted = page.colour('--c%d').match(/\\d+/g).map(Number);
  let count = 0;
  for (let i = 0; i < pixels.length; i += 4) {
    count += pixels[i + 3] > 200 && wanted.every((value, k) => Math.abs(value - pixels[i + k]) < 12);
  }
  return count;
})()"""
# The first chart on the screen is up to date.
DRAWN = "(c => c.visible && c.lines && !c.stale && !c.waiting)([...page.charts.values()][0])"


def pixels(page, run):
    page.wait_for(DRAWN)
    return page.run(COUNT % run)


def check(page, condition):
    assert page.run(condition), condition


def read_as_a_reader(page):
    assert pixels(page, 0) > 50 and pixels(page, 1) > 50
    # Hostile names are text.
    check(page, "document.querySelectorAll('img').length === 0")
    check(page, "document.querySelector('#head').textContent.includes('b<img src=x onerror=alert(1)>')")
    check(page, "document.querySelector('.run .error').textContent === '<b>bad</b>'")
    # A run, a split.
    page.run("document.querySelectorAll('.run input')[1].click()")
    assert pixels(page, 1) == 0 and pixels(page, 0) > 50
    page.run("document.querySelectorAll('.run input')[1].click()")
    with_all = pixels(page, 1)
    page.run("document.querySelector('[data-kind=val]').click()")
    assert 0 < pixels(page, 1) < with_all
    # Axes: the second run has ten times the steps, and both have four epochs.
    check(page, "page.x_range()[1] === 4000")
    page.run("document.querySelector('[value=epoch]').click()")
    check(page, "JSON.stringify(page.x_range()) === '[0,4]'")
    page.run("document.querySelector('[value=time]').click()")
    check(page, "page.x_range()[1] === 3999")
    page.run("document.querySelector('[value=step]').click()")
    # Logarithm: 1 / step is drawn down to its lowest value.
    page.run("document.querySelector('[data-control=log]').click()")
    page.wait_for(DRAWN)
    check(page, "[...page.charts.values()][0].y.log && [...page.charts.values()][0].y.low < 0.25 / 4000")
    page.run("document.querySelector('[data-control=log]').click()")
    # Smoothing draws the values behind their average.
    before = pixels(page, 0)
    page.run("{const s = document.querySelector('[data-control=smoothing]'); s.value = 0.9; s.dispatchEvent(new Event('input'))}")
    assert pixels(page, 0) != before
    # A closed form: 1, 0 smoothed by one half is 1, then 1/3 (0.25 of 0.75 weights).
    check(page, "Math.abs(smooth([1, 0], 0.5)[1] - 1 / 3) < 1e-15")
    # Drag, double click, wheel, keys.
    page.run("document.querySelector('canvas').scrollIntoView({block: 'center'})")
    box = page.run("(b => [b.left, b.top, b.width, b.height])(document.querySelector('canvas').getBoundingClientRect())")
    x, y = box[0] + box[2] / 2, box[1] + box[3] / 2
    page.mouse("mouseMoved", x, y)
    page.wait_for("!document.querySelector('.tip').hidden")
    check(page, "/^step [0-9,]+/.test(document.querySelector('.tip').textContent)")
    page.mouse("mousePressed", x, y, button="left", clickCount=1)
    page.mouse("mouseMoved", x + 60, y, button="left", buttons=1)
    page.mouse("mouseReleased", x + 60, y, button="left", clickCount=1)
    page.wait_for("page.zoom !== null")
    check(page, "page.zoom[0] > 1500 && page.zoom[1] < 3500 && !page.reset.disabled")
    page.mouse("mouseWheel", x, y, deltaX=0, deltaY=-200, modifiers=2)
    page.wait_for("page.zoom[1] - page.zoom[0] < 600")
    page.run("page.reset.click()")
    check(page, "page.zoom === null && page.reset.disabled")
    page.run("document.querySelector('canvas').focus()")
    page.key("+")
    page.wait_for("page.zoom !== null")
    page.key("0")
    page.wait_for("page.zoom === null")
    page.key("Escape")
    page.key("ArrowRight")
    page.wait_for("/^step [0-9,]+: /.test(document.getElementById('speech').textContent)")
    # Tables.
    check(page, "document.querySelector('[aria-label=\"Comparison of the runs\"]').textContent.includes('★ 0.25')")
    check(page, "document.querySelector('[aria-label=\"Differences between the configs\"]').textContent.includes('optim.lr')")


def pinch(page):
    page.run("document.querySelector('canvas').scrollIntoView({block: 'center'})")
    left, top, width, height = page.run("(b => [b.left, b.top, b.width, b.height])(document.querySelector('canvas').getBoundingClientRect())")
    y, middle = top + height / 2, left + width / 2
    page.touch("touchStart", (middle - 20, y), (middle + 20, y))
    for apart in (30, 40, 60, 80):
        page.touch("touchMove", (middle - apart, y), (middle + apart, y))
    page.touch("touchEnd")
    page.wait_for("page.zoom !== null")
    # Four times as far apart: a quarter of the steps, around those that were between the fingers.
    check(page, "Math.abs((page.zoom[1] - page.zoom[0]) / 4000 - 0.25) < 0.02")
    check(page, "page.zoom[0] > 1200 && page.zoom[1] < 2800")
    page.run("page.reset.click()")


def main():
    url = Path(sys.argv[1]).resolve().as_uri()
    for options in ({}, {"dark": True}, {"width": 360, "height": 780, "scale": 2, "mobile": True}):
        page = Page(**options)
        try:
            page.open(url)
            check(page, "document.documentElement.scrollWidth <= innerWidth")
            assert pixels(page, 0) > 50, options
            if not options:
                read_as_a_reader(page)
            if options.get("mobile"):
                pinch(page)
            assert not page.complaints, page.complaints
        finally:
            page.close()


if __name__ == "__main__":
    main()
