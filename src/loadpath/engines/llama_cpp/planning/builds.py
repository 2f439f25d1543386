"""llama.cpp's builds (`b9181` → 9181) at which its memory changed. Dates of the pull requests tell the builds to within some tens."""

from __future__ import annotations

NEWEST = 11549
WINDOW_CACHE = 5434
"""Window layers keep only their window (pull request 13194, May 2025); before, every layer keeps every token."""
LATENT_CACHE = 5140
"""DeepSeek's cache holds the latent instead of all heads (12801, April 2025)."""
FIT = 7406
"""Settings that are not given are fitted to the free memory (16653, December 2025); layers go to the GPU by themselves, the
context is the model's own, four slots share one cache. Before: 4,096 tokens, one slot, nothing on the GPU."""
LATENT_WITHOUT_VALUES = 7800
"""The latent cache has no value tensor any more (early 2026)."""
HALF_MASK = 7000
"""The attention mask is made in 16 bits where flash attention is used (late 2025)."""
AUTO_FLASH = 6325
"""Flash attention is `auto`: on where the device has it (15434, August 2025). Before: off unless asked for."""
FEW_OUTPUTS = 9460
"""The server reserves logits for one token of a slot, not for a whole batch (23861, June 2026)."""
TIMED_LINES = 9181
"""Log lines begin with the time since the start (23021, May 2026)."""
