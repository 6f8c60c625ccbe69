#!/usr/bin/env python3
"""Reads metrics with Prometheus's client library for Python.

Usage: prometheus_metrics.py openmetrics|prometheus FILE_OR_URL OUTPUT.json

From a URL it asks for the format, and checks the content type. The output is a list of {family, type, unit, name,
labels, value}; numbers that JSON cannot hold are strings.
"""

import json
import math
import sys
import urllib.request
from pathlib import Path

from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client import parser as prometheus

FORMATS = {
    "openmetrics": (openmetrics, "application/openmetrics-text; version=1.0.0; charset=utf-8"),
    "prometheus": (prometheus, "text/plain; version=0.0.4; charset=utf-8"),
}
# As Prometheus sends it.
ACCEPT = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.4,*/*;q=0.1"


def read(source, form):
    if not source.startswith("http://"):
        return Path(source).read_text(encoding="utf-8")
    headers = {"Accept": ACCEPT} if form == "openmetrics" else {}
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(urllib.request.Request(source, headers=headers), timeout=60) as response:
        assert response.headers["Content-Type"] == FORMATS[form][1], response.headers["Content-Type"]
        return response.read().decode()


def main():
    form, source, output = sys.argv[1:]
    samples = [
        {
            "family": family.name,
            "type": family.type,
            "unit": family.unit,
            "name": sample.name,
            "labels": sample.labels,
            "value": sample.value if math.isfinite(sample.value) else str(sample.value),
        }
        for family in FORMATS[form][0].text_string_to_metric_families(read(source, form))
        for sample in family.samples
    ]
    Path(output).write_text(json.dumps(samples), encoding="utf-8")


main()
