"""Check an installed zinc with the declared dependencies alone: every module, every verb's help, `serve` and `route`.

Usage: ENVIRONMENT/bin/python -P .ci/gate.py. What needs an extra is left out.
"""

import importlib
import pkgutil
import re
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import zinc_rt
from zinc_rt.cli.main import VERBS

EXTRAS = ("zinc_rt.ray", "zinc_rt.opencl.", "zinc_rt.backends.opencl")
ZINC = [str(Path(sys.executable).with_name("zinc"))]


def modules() -> list[str]:
    names = [m.name for m in pkgutil.walk_packages(zinc_rt.__path__, "zinc_rt.", onerror=lambda _: None)]
    return [n for n in names if not n.startswith(EXTRAS) and not n.endswith("__main__")]


def checked(*words: str) -> str:
    done = subprocess.run([*ZINC, *words], capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        raise SystemExit(f"zinc {' '.join(words)}: exit code {done.returncode}\n{done.stderr}")
    return done.stdout


def started(*words: str) -> tuple[subprocess.Popen[str], str]:
    """A server, and the address that it says."""
    process = subprocess.Popen([*ZINC, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    said = ""
    for line in process.stdout:
        said += line
        if found := re.match(r"zinc: (http://127\.0\.0\.1:\d+)", line):
            return process, found[1]
    raise SystemExit(f"zinc {' '.join(words)} ended: {process.wait()}\n{said}")


def main() -> None:
    for name in modules():
        importlib.import_module(name)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda verb: checked(verb, "--help"), VERBS))
    serve, at = started("serve", "--port", "0")
    route, through = started("route", "-b", at, "--port", "0")
    try:
        for address in (at, through):
            with urllib.request.urlopen(f"{address}/health", timeout=60) as answer:
                assert answer.status == 200
    finally:
        for process in (route, serve):
            process.terminate()
            if process.wait(60):
                raise SystemExit(f"{process.args}: exit code {process.returncode}\n{process.stdout.read()}")


main()
