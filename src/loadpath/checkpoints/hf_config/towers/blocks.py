"""Parameters of the parts that encoders are made of."""

from __future__ import annotations


def linear(inputs: int, outputs: int, bias: bool = True) -> int:
    return inputs * outputs + (outputs if bias else 0)


def block(
    width: int,
    inner: int,
    *,
    gated: bool = False,
    qkv_bias: bool = True,
    o_bias: bool = True,
    mlp_bias: bool = True,
    norm: int = 2,
    extra: int = 0,
) -> int:
    """One transformer layer. `norm`: vectors of one norm (2: with bias); `extra`: norms of heads, scales."""
    attention = 3 * linear(width, width, qkv_bias) + linear(width, width, o_bias)
    up = 2 if gated else 1
    mlp = up * linear(width, inner, mlp_bias) + linear(inner, width, mlp_bias)
    return attention + mlp + 2 * norm * width + extra


def merger(width: int, out: int, merge: int, *, norm: int) -> int:
    """The two linear layers that join `merge` x `merge` patches (Qwen's merger); `norm`: parameters of its norm."""
    wide = width * merge * merge
    return norm + linear(wide, wide) + linear(wide, out)


def pooling_head(width: int, inner: int) -> int:
    """SigLIP's attention pooling."""
    probe, attention = width, linear(width, 3 * width) + linear(width, width)
    return probe + attention + 2 * width + linear(width, inner) + linear(inner, width)
