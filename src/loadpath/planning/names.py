"""What a model's name says of its size: `Qwen3-32B-AWQ` has 32 billion parameters of about 4 bits.

A name is a promise, not a measurement: whoever uses these figures says "by its name" or "about".
"""

from __future__ import annotations

import re

from loadpath.planning.kv import Model

# Total parameters; the active ones of a mixture (A3B) and tokens (1048k) are no size of the weights.
_SIZE = re.compile(r"(?:^|[-_/. ])(?:(\d{1,2})x)?(\d{1,4}(?:[.p]\d{1,2})?)\s?[bB](?=$|[-_/. ])")
_SCHEMES: tuple[tuple[re.Pattern[str], int, str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), bits, scheme)
    for pattern, bits, scheme in (
        (r"mxfp4|nvfp4|(?:^|[-_/.])fp4|awq|w4a\d+|int4|4[-_]?bit|nf4|q4(?:_|$)|iq4", 4, "4-bit"),
        (r"gptq", 4, "4-bit"),
        (r"fp8|int8|w8a\d+|8[-_]?bit|q8(?:_|$)", 8, "8-bit"),
        (r"q6_", 7, "6-bit"),
        (r"q5_", 6, "5-bit"),
        (r"q3_|iq3", 4, "3-bit"),
        (r"q2_|iq2", 3, "2-bit"),
    )
)


def scheme_of(name: str) -> str:
    """`4-bit`, `8-bit`, … where the name says that its weights are quantised; "" where it does not."""
    if re.search(r"gptq.{0,12}(?:int8|8bit)", name, re.IGNORECASE):
        return "8-bit"
    return next((scheme for pattern, _, scheme in _SCHEMES if pattern.search(name)), "")


def model_of(name: str | None) -> Model | None:
    """Parameters and stored bits by `name`; None where it tells no size. 16 bits unless the name says otherwise."""
    if not name:
        return None
    sizes = _SIZE.findall(name.rstrip("/").rsplit("/", 1)[-1])
    if not sizes:
        return None
    experts, size = sizes[0]
    parameters = float(size.replace("p", ".")) * 1e9 * (int(experts) if experts else 1)
    scheme = scheme_of(name)
    bits = next((b for _, b, s in _SCHEMES if s == scheme), 16) if scheme else 16
    return Model(parameters, bits, scheme)
