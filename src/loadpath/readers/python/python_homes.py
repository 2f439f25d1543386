"""Python environments that paths in any text name: interpreters and site-packages folders, each once a capture.

/opt/venv/bin/python3.11 -m vllm.entrypoints.openai.api_server
  File "/usr/local/lib/python3.10/dist-packages/torch/__init__.py", line 1, in <module>
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from loadpath.core.facts.base import at
from loadpath.core.facts.stack import PythonHome
from loadpath.core.text import Capture


@cache
def _path() -> re.Pattern[str]:
    return re.compile(r"(/[\w./-]+?)/(?:lib/python3\.\d+/site-packages|(bin/python[\d.]*)\b)")


def read(capture: Capture) -> Iterator[PythonHome]:
    seen: set[tuple[str, str]] = set()
    for line in capture.lines:
        if "python" not in line.text:
            continue
        for prefix, program in _path().findall(line.text):
            if (prefix, program) not in seen:
                seen.add((prefix, program))
                yield PythonHome(
                    **at(capture, line), prefix=prefix, interpreter=f"{prefix}/{program}" if program else None
                )
