"""Runs scripts sequentially, each in a fork of a process that has already imported their modules, since importing torch
takes seconds.

Reads requests from standard input: the number of fields, then for each field its size in bytes and its content; numbers
are on separate lines. `import <module>` answers 1 if the module can be imported, else 0; `run <output file or nothing>
<folder> <script> <number of arguments> <arguments> <environment variables>` answers the script's exit code. Answers are
written to file descriptor 3.
"""

import ast
import atexit
import gc
import importlib
import os
import runpy
import sys
import threading
import traceback
import warnings


def read_request():
    line = sys.stdin.buffer.readline()
    fields = []
    for _ in range(int(line or 0)):
        size = int(sys.stdin.buffer.readline())
        fields.append(os.fsdecode(sys.stdin.buffer.read(size)))
    return fields


def has_module(name, known={}):
    if name not in known:
        try:
            importlib.import_module(name)
            known[name] = True
        except Exception:  # the script will report the error
            known[name] = False
    return known[name]


def import_for(script):
    with open(script, "rb") as file:
        text = file.read()
    if b"torch.optim" in text:
        has_module("torch._dynamo")  # imported by the first step of an optimizer
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                has_module(alias.name)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            has_module(node.module)


def answer(text):
    os.write(3, f"{text}\n".encode())


def main():
    warnings.simplefilter("ignore")
    while True:
        request = read_request()
        if not request:
            return
        if request[0] == "import":
            answer(int(has_module(request[1])))
            continue
        output, folder, script, count = request[1:5]
        arguments, variables = request[5 : 5 + int(count)], request[5 + int(count) :]
        import_for(script)
        gc.freeze()  # children neither scan nor copy existing objects
        child = os.fork()
        if child == 0:
            break
        answer(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    os.close(3)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variable.split("=", 1) for variable in variables)
    if output:
        file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        os.dup2(file, 1)
        os.dup2(file, 2)
    sys.argv = [script, *arguments]
    sys.path[0] = os.path.dirname(script)
    code = 0
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if code and not isinstance(end.code, int):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        code = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # unloading all modules would take as long as importing them


main()
