"""Any text is valid input: garbage in the places of figures breaks nothing."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from loadpath.core.text import Capture, Line
from loadpath.engines import vllm
from loadpath.engines.vllm import errors, kernels, memory, serving, shutdown, startup
from loadpath.engines.vllm import settings as dumps
from loadpath.readers import load_bars

LITERALS = [p.literal for m in (errors, kernels, memory, serving, shutdown, startup, dumps) for p in m.PATTERNS]
PIECES = st.lists(
    st.one_of(st.sampled_from(LITERALS), st.sampled_from(["9" * 5000, "1.2.3", "-", "(", ": ", " GiB", "x", "%|", "/", "٣", "\0"]),
              st.text(max_size=12)),
    max_size=12,
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.lists(PIECES, max_size=6))
def test_no_text_breaks_the_reader(rows: list[list[str]]) -> None:
    lines = tuple(Line(i, "".join(row), "".join(row)) for i, row in enumerate(rows, 1))
    vllm.read(Capture("vllm-log", "x", lines))
    list(load_bars.read(Capture("log", "x", lines)))
    for line in lines:
        vllm.starts_run(line)


def test_figures_that_are_none_are_left_out() -> None:
    texts = (
        "Model loading took 1.2.3 GiB and 4..5 seconds", "# GPU blocks: ,,,", "Available KV cache memory: . GiB",
        f"GPU KV cache size: {'9' * 5000} tokens", f"Loading weights took {'9' * 400} seconds",
        "Loading safetensors checkpoint shards: 1% Completed | 1/0 [99:99:99<?, 1]",
    )  # fmt: skip
    lines = tuple(Line(i, text, text) for i, text in enumerate(texts, 1))
    assert vllm.read(Capture("vllm-log", "x", lines))
