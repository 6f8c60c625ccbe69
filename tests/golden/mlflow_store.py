#!/usr/bin/env python3
"""Reads and changes a file store of MLflow with PyPI's mlflow.

Usage: mlflow_store.py read STORE OUTPUT.json     all experiments and runs; numbers that JSON cannot hold are strings
       mlflow_store.py create STORE EXPERIMENT    makes an experiment with a run
       mlflow_store.py delete STORE EXPERIMENT
       mlflow_store.py rename STORE RUN NAME
       mlflow_store.py migrate STORE              copies it to a database, and compares params and finite points
"""

import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"

from mlflow import MlflowClient  # noqa: E402
from mlflow.entities import ViewType  # noqa: E402


def number(value):
    return value if math.isfinite(value) else str(value)


def read(uri):
    client = MlflowClient(tracking_uri=uri)
    out = {}
    for experiment in client.search_experiments():
        runs = client.search_runs([experiment.experiment_id], run_view_type=ViewType.ALL)
        out[experiment.name] = {run.info.run_id: run_of(client, run) for run in runs}
    return out


def run_of(client, run):
    history = {key: client.get_metric_history(run.info.run_id, key) for key in run.data.metrics}
    return {
        "name": run.info.run_name,
        "status": run.info.status,
        "start": run.info.start_time,
        "end": run.info.end_time,
        "params": run.data.params,
        "tags": run.data.tags,
        "latest": {key: number(value) for key, value in run.data.metrics.items()},
        "metrics": {key: [[m.timestamp, number(m.value), m.step] for m in points] for key, points in history.items()},
        "artifacts": [item.path for item in client.list_artifacts(run.info.run_id)],
    }


def migrate(store):
    with tempfile.TemporaryDirectory() as folder:
        uri = f"sqlite:///{folder}/mlflow.db"
        subprocess.run([sys.executable, "-m", "mlflow", "migrate-filestore", "--source", store, "--target", uri],
                       check=True, cwd=folder)  # fmt: skip
        before, after = read(Path(store).as_uri()), read(uri)
        for name, runs in before.items():
            for run_id, run in runs.items():
                other = after[name][run_id]
                for key, points in run["metrics"].items():
                    copies = other["metrics"][key]
                    assert len(points) == len(copies), (name, run_id, key)
                    for point in points:  # the database has no infinities
                        assert point in copies or isinstance(point[1], str), (name, run_id, key)
                assert run["params"] == other["params"], (name, run_id)


def main():
    command, store, *rest = sys.argv[1:]
    uri = Path(store).as_uri()
    if command == "read":
        Path(rest[0]).write_text(json.dumps(read(uri)), encoding="utf-8")
    elif command == "migrate":
        migrate(store)
    elif command == "create":
        client = MlflowClient(tracking_uri=uri)
        client.create_run(client.create_experiment(rest[0]))
    elif command == "delete":
        client = MlflowClient(tracking_uri=uri)
        client.delete_experiment(client.get_experiment_by_name(rest[0]).experiment_id)
    else:
        MlflowClient(tracking_uri=uri).update_run(rest[0], name=rest[1])


main()
