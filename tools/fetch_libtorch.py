#!/usr/bin/env python3
"""Downloads the CPU wheel of torch and unpacks the files that a C++ program needs.

Usage: fetch_libtorch.py VERSION DIRECTORY

Prints the directory of LibTorch. The wheel comes from the package index that pip is configured with if that has a CPU
build, else from PyTorch's own index of CPU builds; DANLING_TORCH_INDEX names another index instead of both. Python's
part is not unpacked, so a wheel for any version of Python serves.
"""

import fcntl
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

PYTORCH_INDEX = "https://download.pytorch.org/whl/cpu"
OTHER_PYTHONS = ("3.12", "3.11", "3.10", "3.13", "3.14")
# Libraries that only Python or PyTorch's tests load.
PYTHON_LIBRARIES = re.compile(
    r"torch/lib/lib(torch_python|shm|torchbind_test|jitbackend_test|backend_with_compiler|aoti_custom_ops)\.so"
)
NEEDED = re.compile(
    r"torch/(include|share|lib)/|torch\.libs/|torch-[^/]*\.dist-info/(METADATA|(licenses/)?(LICENSE|NOTICE))$"
)


def say(text):
    print(f"dev: {text}", file=sys.stderr, flush=True)


class Unavailable(Exception):
    """A source has no CPU build, with the reason. `final`: other wheels of this source need not be tried."""

    def __init__(self, text, final=False):
        super().__init__(text)
        self.final = final


class Pip:
    """Runs the first working pip, with the options for one source of wheels."""

    def __init__(self):
        for command in ([sys.executable, "-m", "pip"], ["/usr/bin/python3", "-m", "pip"], ["pip3"]):
            try:
                answer = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True).stdout
            except (OSError, subprocess.CalledProcessError):
                continue
            self.command = command
            self.version = tuple(int(part) for part in re.match(r"pip (\d+)\.(\d+)", answer).groups())
            return
        sys.exit("dev: pip was not found; install it with: apt-get install python3-pip")

    def run(self, action, source, arguments, quiet):
        options = [*action, "--no-deps", "--disable-pip-version-check", "--retries", "2", *arguments]
        environment = dict(os.environ, PIP_NO_INPUT="1")
        if source:
            # Uses only this index, without additional configured ones, but with the configured connection settings.
            for name in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX"):
                environment.pop(name, None)
            environment.update(self.connection(), PIP_CONFIG_FILE=os.devnull, PIP_INDEX_URL=source)
        process = subprocess.run(
            [*self.command, *options],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL if quiet else sys.stderr,
            stderr=subprocess.PIPE,
            text=True,
        )
        if process.returncode:
            if "Retrying" in process.stderr:
                raise Unavailable("it could not be reached", final=True)
            errors = [line for line in process.stderr.splitlines() if line.startswith("ERROR")]
            raise Unavailable(errors[-1][len("ERROR: ") :] if errors else process.stderr.strip()[-200:])

    def connection(self):
        """Returns pip's configured connection settings as environment variables."""
        listed = subprocess.run([*self.command, "config", "list"], capture_output=True, text=True, check=False).stdout
        settings = re.findall(r"^[^=]*\.(cert|client-cert|proxy|timeout|default-timeout|trusted-host)='(.*)'$", listed, re.M)
        return {"PIP_" + name.upper().replace("-", "_"): value for name, value in settings}

    def other_python(self, version):
        tags = [f"manylinux_2_28_{platform.machine()}", f"manylinux2014_{platform.machine()}"]
        options = ["--only-binary=:all:", "--python-version", version, "--implementation", "cp"]
        options += ["--abi", "cp" + version.replace(".", "")]
        for tag in tags:
            options += ["--platform", tag]
        return options

    def is_cpu_build(self, requirement, source, options):
        """Checks a wheel by its metadata, without a download: a build for a device requires that device's packages."""
        with tempfile.TemporaryDirectory() as directory:
            report = os.path.join(directory, "report.json")
            ask = ["--dry-run", "--ignore-installed", "--target", directory, "--report", report, *options, requirement]
            self.run(["install"], source, ask, quiet=True)
            with open(report, encoding="utf-8") as file:
                metadata = json.load(file)["install"][0]["metadata"]
        if "+" in metadata["version"]:
            return metadata["version"].split("+")[1].startswith("cpu")
        needs = [need for need in metadata.get("requires_dist", []) if "extra ==" not in need]
        return not any(re.match(r"(nvidia|cuda|triton|pytorch-triton|rocm|intel)", need) for need in needs)

    def download(self, version, source, directory):
        """Downloads a CPU wheel from one source and returns its path."""
        labelled, plain = f"torch=={version}+cpu", f"torch=={version}"
        reason = None
        wheels = [[], *map(self.other_python, OTHER_PYTHONS)]
        # Tries all labelled wheels first: if this Python has a CUDA build, there may still be a CPU build.
        for requirement, options in [(labelled, other) for other in wheels] + [(plain, other) for other in wheels]:
            try:
                if requirement == plain:
                    if self.version < (22, 2) and not source:
                        continue  # this pip cannot check without downloading gigabytes
                    if self.version >= (22, 2) and not self.is_cpu_build(plain, source, options):
                        raise Unavailable("its build is not for CPU only", final=True)
                self.run(["download"], source, ["--dest", directory, *options, requirement], quiet=False)
            except Unavailable as error:
                if error.final:
                    raise
                reason = reason or error
                continue
            (wheel,) = (name for name in os.listdir(directory) if name.endswith(".whl"))
            return os.path.join(directory, wheel)
        raise reason


def unpack(wheel, directory):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        if any(re.match(r"torch/lib/libtorch_(cuda|hip|xpu)\.so", name) for name in names):
            raise Unavailable(f"{os.path.basename(wheel)} is not a build for CPU only")
        for name in names:
            if NEEDED.match(name) and not PYTHON_LIBRARIES.match(name):
                archive.extract(name, directory)
    config = os.path.join(directory, "torch/share/cmake/Torch/TorchConfig.cmake")
    if not os.path.isfile(config):
        raise Unavailable(f"{os.path.basename(wheel)} holds no LibTorch")


def fetch(version, work):
    chosen = os.environ.get("DANLING_TORCH_INDEX")
    sources = [chosen] if chosen else [None, PYTORCH_INDEX]
    pip = Pip()
    reasons = []
    for source in sources:
        name = source or "the configured package index"
        say(f"fetching torch {version} (CPU) from {name}")
        downloads = tempfile.mkdtemp(dir=work)
        unpacked = tempfile.mkdtemp(dir=work)
        try:
            wheel = pip.download(version, source, downloads)
            say(f"unpacking {os.path.basename(wheel)}")
            unpack(wheel, unpacked)
            return unpacked
        except Unavailable as error:
            reasons.append(f"{name}: {error}")
    sys.exit(
        f"dev: found no CPU build of torch {version} ({'; '.join(reasons)}). Set DANLING_TORCH_INDEX to an index that has "
        "one, or give the directory of a LibTorch by CMAKE_PREFIX_PATH."
    )


def main():
    version, deps = sys.argv[1], os.path.abspath(sys.argv[2])
    result = os.path.join(deps, f"torch-{version}")
    work = os.path.join(deps, "tmp")
    os.makedirs(deps, exist_ok=True)
    with open(os.path.join(deps, "lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.isdir(result):
            # While this process holds the lock, existing files are from an interrupted run.
            shutil.rmtree(work, ignore_errors=True)
            os.makedirs(work)
            try:
                unpacked = fetch(version, work)
                os.chmod(unpacked, 0o755)
                os.rename(unpacked, result)
            finally:
                shutil.rmtree(work, ignore_errors=True)
    print(os.path.join(result, "torch"))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
