"""The model that a program names in its own code or command: what no engine's log said.

pipe = pipeline('/models/Some-8B-Instruct', …)      AutoModel.from_pretrained("org/name")      --model_type qwen2-7b
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from loadpath.core.facts.base import at
from loadpath.core.facts.engine import ModelNamed
from loadpath.core.text import Capture

_NAMED = re.compile(
    r"(?:\bpipeline|from_pretrained|\bLLM|\bEngine|serve)\(\s*(?:model(?:_path)?\s*=\s*)?['\"](?P<call>[\w./\-]+)['\"]"
    r"|--model[-_](?:type|id|path|name|name_or_path)[ =]+['\"]?(?P<option>[\w./\-]+)"
)


def read(capture: Capture) -> Iterator[ModelNamed]:
    for line in capture.lines:
        if found := _NAMED.search(line.text):
            yield ModelNamed(**at(capture, line), name=found["call"] or found["option"])
