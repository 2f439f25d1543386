"""The planner's speed: a plan from nothing, many plans at once, and accelerate's estimator on the same model.

The peer's own program asks the hub for the model, so its estimate is called as its command does, on a local
configuration; hf-mem has no way without the hub and is left out.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

MODEL = "Qwen/Qwen3-14B"
CARD = "H100 80GB"
GOAL_COLD, GOAL_SWEEP = 300, 5.0  # ms; s for POINTS
POINTS = 10_000
CONFIG = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 5120, "num_hidden_layers": 40,
    "num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 17408, "vocab_size": 151936,
    "tie_word_embeddings": False, "max_position_embeddings": 40960, "torch_dtype": "bfloat16",
}  # fmt: skip
ESTIMATE = """
import sys
from accelerate import init_empty_weights
from accelerate.utils import calculate_maximum_sizes
from transformers import AutoConfig, AutoModelForCausalLM
with init_empty_weights():
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(sys.argv[1]))
print(calculate_maximum_sizes(model)[0] // 2)
"""


def planning(folder: Path, loadpath: Path, start: Callable[[Sequence[str]], float]) -> None:
    """Print the rows. `start`: milliseconds of a command's cold start. `LOADPATH_BENCH_ESTIMATOR`: a Python that has
    accelerate and transformers."""
    model = folder / "qwen3-14b"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(CONFIG))
    cold = start([str(loadpath), "plan", str(model), "--gpu", CARD, "--max-model-len", "8192", "--json"])
    seconds = swept()
    print("planner")
    print(f"  plan, cold              {cold:8.0f} ms     goal below {GOAL_COLD} ms: {_said(cold < GOAL_COLD)}")
    print(
        f"  {POINTS:,} plans in a sweep {seconds:8.2f} s      goal below {GOAL_SWEEP:g} s: {_said(seconds < GOAL_SWEEP)}"
    )
    peer = os.environ.get("LOADPATH_BENCH_ESTIMATOR")
    if peer:
        theirs = start([peer, "-c", ESTIMATE, str(model)])
        print(f"  accelerate's estimator  {theirs:8.0f} ms     weights only; plan is {theirs / cold:.1f} times as fast")


def swept() -> float:
    """Seconds of a sweep over context length and sequences, in this process."""
    from loadpath.forecast.request import Request
    from loadpath.forecast.sweep import parse_field, sweep

    fields = (parse_field("max-model-len=1024:102400:1024"), parse_field("max-num-seqs=8:800:8"))
    begun = time.perf_counter()
    table, _ = sweep(Request(MODEL, (CARD,)), fields)
    seconds = time.perf_counter() - begun
    if len(table.rows) != POINTS:
        sys.exit(f"the sweep made {len(table.rows):,} plans, not {POINTS:,}")
    return seconds


def _said(met: bool) -> str:
    return "met" if met else "MISSED"
