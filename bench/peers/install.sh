#!/bin/sh
# Installs the peers that requirements.txt cannot name: install.sh PYTHON, after `pip install -r requirements.txt`.
#
# Composer requires versions of torch, torchvision and others that exclude torch 2.13, and works without them: this
# script installs it without its requirements, then the packages that it imports; overhead_frameworks.py stands in for
# torchvision and mcli. Other peers need TensorBoard for their loggers. The installed torch stays, so that pip never
# downloads another with CUDA.
set -eu

[ $# -eq 1 ] || {
  echo "install.sh: expected PYTHON, got $# arguments" >&2
  exit 2
}
python=$1
constraints=$(mktemp)
trap 'rm -f "$constraints"' EXIT
"$python" -c 'import importlib.metadata; print("torch==" + importlib.metadata.version("torch"))' >"$constraints"
"$python" -m pip install --quiet --no-warn-conflicts --no-deps mosaicml==0.32.1 torch_optimizer==0.3.0 pytorch_ranger==0.1.1
"$python" -m pip install --quiet --no-warn-conflicts --constraint "$constraints" coolname==2.2.0 importlib-metadata packaging \
  pillow psutil py-cpuinfo==9.0.0 pyyaml requests tabulate==0.9.0 tensorboard==2.21.0 tqdm
