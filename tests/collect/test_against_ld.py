"""The loader itself as the judge: every compiled module of the environment that runs the tests is opened, each in a process
of its own, and what fails to open is what the probe foretells."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from loadpath.collect.libraries import Followed
from loadpath.collect.probe import Machine
from loadpath.collect.pythons import Environment, environments

OPEN_EACH = """
import ctypes, json, os, sys
try:
    import torch
except ImportError:
    pass
failed = {}
for path in json.load(sys.stdin):
    reader, writer = os.pipe()
    if os.fork() == 0:
        try:
            ctypes.CDLL(path, mode=os.RTLD_NOW)
            told = "opened"
        except OSError as error:
            told = str(error)
        os.write(writer, told.encode()[:2000])
        os._exit(0)
    os.close(writer)
    told = os.read(reader, 2000).decode()
    os.close(reader)
    os.wait()
    if told != "opened":
        failed[path] = told
print(json.dumps(failed))
"""
# What the probe leaves to other layers: the driver's libraries, and functions that are not torch's.
OTHERS = re.compile(r"libcuda\.so|libnvidia-|undefined symbol: (?!_ZN?[A-Z]*(?:3c10|2at|5torch)|aoti_)|TLS")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ld.so is Linux's")
def test_modules_that_do_not_open_are_foretold_and_no_others() -> None:
    machine = Machine("/", options={"python": sys.prefix})
    mine = next((e for e in environments(machine) if e.prefix == sys.prefix), None)
    if mine is None:  # without torch and the like in it
        site = next(path for path in sys.path if path.endswith("site-packages"))
        mine = Environment(sys.prefix, (site,), f"{sys.version_info.major}.{sys.version_info.minor}", "the tests' own")
    followed = Followed(machine, mine)
    told = [json.loads(line) for line in followed.lines()]
    foretold = {path for askers in followed.unfound.values() for path in askers} | set(followed.undefined)
    foretold |= {row["library"] for row in told if row["type"] == "SystemVersionUnmet"}
    asked = subprocess.run([sys.executable, "-W", "ignore", "-c", OPEN_EACH], input=json.dumps(followed.modules), capture_output=True,
                           text=True, timeout=300, check=True)  # fmt: skip
    failed = {path: why for path, why in json.loads(asked.stdout).items() if not OTHERS.search(why)}
    assert len(followed.modules) > 5
    assert {path: failed.get(path, "opened") for path in foretold ^ set(failed)} == {}
