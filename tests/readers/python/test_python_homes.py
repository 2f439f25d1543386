"""Environments that paths name are facts, each once, whatever the text around them."""

from __future__ import annotations

from loadpath.core.facts.stack import PythonHome
from loadpath.core.text import Capture
from loadpath.intake.clean import clean
from loadpath.readers.python.python_homes import read

TEXT = b"""/opt/venv/bin/python3.11 -m vllm.entrypoints.openai.api_server
  File "/usr/local/lib/python3.10/site-packages/torch/__init__.py", line 1, in <module>
  File "/usr/local/lib/python3.10/site-packages/torch/cuda.py", line 2, in f
"""


def test_each_environment_once_with_its_interpreter() -> None:
    homes = list(read(Capture("log", "x", tuple(clean(TEXT)))))
    assert [(h.prefix, h.interpreter) for h in homes] == [
        ("/opt/venv", "/opt/venv/bin/python3.11"),
        ("/usr/local", None),
    ]
    assert all(isinstance(h, PythonHome) for h in homes)
