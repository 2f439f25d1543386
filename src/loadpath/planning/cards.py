"""Cards by the names that people write: `H100 80GB`, `L4 24GB`, `2x RTX 3090`, `24GiB`, `H100 80GB 3g.40gb`, `A + B`."""

from __future__ import annotations

import re
from functools import cache

import msgspec

from loadpath.core.units import GIB, MIB
from loadpath.knowledge.gpus import Gpu, by_id, by_name, gpus
from loadpath.planning.deployment import Card

_MEMORY = re.compile(r"(?<![\w.])(\d{1,3}(?:\.\d+)?) ?(gib|gb|g|mib|mb)(?![\w.])")
_PROFILE = re.compile(r"(?<![\w.])(\d)g\.(\d+)gb(?:\+me(?:\.all)?)?(?![\w.])")
_COUNT = re.compile(r"^\s*(\d{1,3}) ?[x×] ?(?=[a-z])|\s[x×] ?(\d{1,3})\s*$")
_LIMIT = re.compile(r"\blimited to (\d{1,3}(?:\.\d+)?) ?gi?b")
_FORM = frozenset({
    "sxm", "sxm2", "sxm4", "sxm5", "pcie", "hbm2", "hbm2e", "hbm3", "hbm3e", "ac", "edition", "generation", "blackwell",
    "workstation", "ws", "server", "ada", "ls", "lc", "spark", "dgx", "asus", "ascent", "gx10", "ng", "gpu", "gpus", "card",
})  # fmt: skip
"""Words of a board's name that people leave out."""
_NOISE = frozenset(
    {"nvidia", "geforce", "tesla", "quadro", "suspected", "nvlink", "nvlinked", "single", "class", "card"}
)
_USUAL = {
    "h100": "h100-sxm-80", "h200": "h200-sxm", "h20": "h20", "gh200": "gh200-96", "b300": "b300", "b200": "b200",
    "rtx pro 6000": "rtx-pro-6000-ws", "orin": "jetson-agx-orin-64", "h800": "h800-sxm", "rtx 3060": "rtx-3060-12",
    "rtx 3080": "rtx-3080-10",
}  # fmt: skip
"""What a bare name means where boards of several sizes or forms bear it."""
_OTHER_MAKERS = {
    "mi210": 64,
    "mi250": 64,
    "mi250x": 64,
    "mi300a": 128,
    "mi300x": 192,
    "mi325x": 256,
    "mi350x": 288,
    "mi355x": 288,
}
"""GiB of cards that are not NVIDIA's but run the same engines."""
RESERVED_BYTES, RESERVED_SHARE = 350 * MIB, 0.002
"""What the driver keeps of the total that nvidia-smi prints, where no figure of the board is known (2 to 700 MiB seen)."""
LEAST_BYTES = GIB
"""No card that engines run on has less."""
EXPECTED = "a name (H100 80GB, RTX 4090), a MIG profile (H100 80GB 3g.40gb) or an amount of memory (24GiB)"
SLICES, SLICE_RESERVED_BYTES = 8, 256 * MIB
"""A card is cut into eight memory slices for MIG; each instance keeps about this of its own (A100, H100: 200 to 500 MiB)."""


class CardUnknown(LookupError):
    """No card, or more than one, bears the name: the message offers what was perhaps meant."""


def cards_of(text: str) -> tuple[Card, ...]:
    """The cards that `text` names: one, several of a kind (`4x L4`), or a mixture (`A + B`)."""
    found: list[Card] = []
    for part in re.split(r"\s\+\s", text):
        count = _COUNT.search(part.lower())
        named = part[: count.start()] + part[count.end() :] if count else part
        found += [_one(named)] * (int(count[1] or count[2]) if count else 1)
    return tuple(found)


def card(text: str) -> Card | tuple[str, ...]:
    """The one card that `text` names, or near names."""
    try:
        found = cards_of(text)
    except CardUnknown:
        return near(text)
    return found[0]


def card_of(gpu: Gpu, total_bytes: int | None = None) -> Card:
    """A board of the table as a card: all of it, or `total_bytes` as its process sees it."""
    figure, assumed = total_of(gpu)
    major, _, minor = gpu.capability.partition(".")
    return Card(
        name=gpu.names[0],
        total_bytes=total_bytes if total_bytes is not None else figure,
        id=gpu.id,
        capability=(int(major), int(minor)),
        bandwidth_bytes_per_s=gpu.bandwidth_gbs * 1e9,
        link_bytes_per_s=_link(gpu),
        unified_memory=gpu.unified_memory,
        assumed=assumed and total_bytes is None,
    )


def total_of(gpu: Gpu) -> tuple[int, bool]:
    """What cudaMemGetInfo reports as total, and whether that is a rule of thumb: totals of nvidia-smi hold what the
    driver keeps to itself."""
    if gpu.cuda_total_mib is not None:
        return gpu.cuda_total_mib * MIB, False
    printed = max(gpu.memory_mib, default=gpu.memory_gb * 1024) * MIB
    return round(printed * (1 - RESERVED_SHARE)) - RESERVED_BYTES, True


def near(text: str, most: int = 5) -> tuple[str, ...]:
    """Names of the table that share most with `text`."""
    wanted = set(_words(text))
    sizes = {word for word in wanted if word.endswith("gb")}
    scored = sorted(
        ((2 * len((wanted - sizes) & _vocabulary(gpu)) + len(sizes & _vocabulary(gpu)), gpu) for gpu in gpus()),
        key=lambda pair: -pair[0],
    )
    return tuple(_printed(gpu) for score, gpu in scored[:most] if score)


def _one(text: str) -> Card:
    plain = re.sub(r"\((?:nvlink|suspected)[^)]*\)", " ", text.lower()).replace("(", " ").replace(")", " ")
    limit = _LIMIT.search(plain)
    plain = _LIMIT.sub(" ", plain)
    profile = _PROFILE.search(plain)
    plain = _PROFILE.sub(" ", plain)
    size = _MEMORY.search(plain)
    memory = _bytes(size) if size else None
    words = _words(_MEMORY.sub(" ", plain))
    if not words:
        if memory is None or memory < LEAST_BYTES or "-" in text:
            raise CardUnknown(f"no GPU in {text!r}: {EXPECTED} was expected")
        return Card(name=text.strip(), total_bytes=_exact(plain) or memory, assumed=True)
    if other := next((word for word in words if word in _OTHER_MAKERS), None):
        return Card(name=text.strip(), total_bytes=_exact(plain) or _OTHER_MAKERS[other] * GIB, assumed=True)
    gpu = _board(text, words, memory)
    found = card_of(gpu, _exact(plain))
    if memory is not None and not _near(gpu, memory):
        found = msgspec.structs.replace(
            found, total_bytes=memory - gpu.memory_gb * GIB + found.total_bytes, assumed=True
        )
    if profile:
        found = _slice(gpu, found, int(profile[1]), int(profile[2]))
    if limit:
        found = card_of(gpu, round(float(limit[1]) * GIB))
    return found


def _bytes(size: re.Match[str]) -> int:
    return round(float(size[1]) * (MIB if size[2].startswith("m") else GIB))


def _exact(plain: str) -> int | None:
    """A total in GiB with decimals is what the process was told, no nominal size."""
    exact = re.search(r"(\d{1,3}\.\d+) ?gib", plain)
    return round(float(exact[1]) * GIB) if exact else None


def _words(text: str) -> list[str]:
    plain = re.sub(r"[-_/,()]", " ", text.lower())
    plain = re.sub(r"\b(rtx|gtx|gb|a|h|l|b|t|v|p)\s?(\d{1,4})\b", lambda m: _joined(m[1], m[2]), plain)
    plain = re.sub(r"(\d{4})(ti|super|d)\b", r"\1 \2", plain)
    return [word for word in plain.split() if word not in _NOISE]


def _joined(letters: str, digits: str) -> str:
    return f"{letters} {digits}" if letters in ("rtx", "gtx") else f"{letters}{digits}"


def _vocabulary(gpu: Gpu) -> frozenset[str]:
    return _vocabularies()[gpu.id]


@cache
def _vocabularies() -> dict[str, frozenset[str]]:
    """Every word of a board's names, by its id."""
    return {
        gpu.id: frozenset(word for name in (*gpu.names, gpu.id, f"{gpu.memory_gb}gb") for word in _words(name))
        for gpu in gpus()
    }


def _board(text: str, words: list[str], memory: int | None) -> Gpu:
    usual = by_id(text.strip().lower()) or by_id(_USUAL.get(" ".join(words), ""))
    if usual is not None and (memory is None or _near(usual, memory)):
        return usual
    found = [gpu for gpu in gpus() if _bears(gpu, words) and (memory is None or _near(gpu, memory))]
    named = by_name(text)
    if named is not None and named in found:
        return named
    if not found and memory is not None:
        found = [gpu for gpu in gpus() if _bears(gpu, words) and _rebuilt(gpu, memory)]
    if not found:
        offers = ", ".join(near(text))
        told = f"near names: {offers}" if offers else f"{EXPECTED} was expected"
        raise CardUnknown(f"no GPU {text.strip()!r} in the catalogue; {told}")
    found.sort(key=lambda gpu: (_extra(gpu, words), "pcie" in _vocabulary(gpu)))
    best = [gpu for gpu in found if _extra(gpu, words) == _extra(found[0], words)]
    if len({gpu.memory_gb for gpu in best}) > 1:
        raise CardUnknown(f"{text.strip()!r} is made in several sizes: {', '.join(_printed(gpu) for gpu in best)}")
    return best[0]


def _bears(gpu: Gpu, words: list[str]) -> bool:
    """Are all the words part of the board's names (`sxm` of `SXM4`, too)?"""
    vocabulary = _vocabulary(gpu)
    return all(word in vocabulary or (word == "sxm" and any(w.startswith(word) for w in vocabulary)) for word in words)


def _near(gpu: Gpu, memory: int) -> bool:
    """Does a size as people round it fit the board (nominal, printed, or usable)?"""
    return 0.9 * gpu.memory_gb * GIB <= memory <= 1.05 * gpu.memory_gb * GIB


def _rebuilt(gpu: Gpu, memory: int) -> bool:
    """Boards are sold with twice (or one and a half times) their memory: the rest of it is the board's."""
    return gpu.kind == "geforce" and any(abs(memory / (gpu.memory_gb * GIB) - more) < 0.05 for more in (1.5, 2))


def _extra(gpu: Gpu, words: list[str]) -> int:
    """Words of the board's shortest name that were not said, forms of the board aside."""
    least = 99
    for name in gpu.names:
        kept = [word for word in _words(_MEMORY.sub(" ", name.lower())) if word not in _FORM and word not in words]
        least = min(least, len(kept))
    return least


def _printed(gpu: Gpu) -> str:
    name = re.sub(r"^(NVIDIA|Tesla) ", "", gpu.names[0]).replace("GeForce ", "")
    return name if re.search(rf"{gpu.memory_gb}\s?GB", name) else f"{name} {gpu.memory_gb}GB"


def _link(gpu: Gpu) -> float | None:
    """Bytes/s to a peer, both directions together: NVLink, else the slot (about 2 GB/s a lane for generation 3, doubling)."""
    if gpu.nvlink_gbs:
        return gpu.nvlink_gbs * 1e9
    if gpu.pcie_gen and gpu.pcie_width:
        return 2e9 * (1 << (gpu.pcie_gen - 3)) * gpu.pcie_width
    return None


def _slice(gpu: Gpu, whole: Card, compute: int, memory_gb: int) -> Card:
    wanted = f"{compute}g.{memory_gb}gb"
    offered = [profile.partition(":")[0] for profile in gpu.mig_profiles]
    if wanted not in offered:
        raise CardUnknown(f"{_printed(gpu)} has no MIG profile {wanted}; it has {', '.join(offered) or 'none'}")
    slices = min(SLICES, max(1, round(memory_gb * SLICES / gpu.memory_gb)))
    printed = max(gpu.memory_mib, default=gpu.memory_gb * 1024) * MIB
    total = min(printed * slices // SLICES - SLICE_RESERVED_BYTES, whole.total_bytes)
    bandwidth = whole.bandwidth_bytes_per_s
    return Card(
        name=f"{whole.name} MIG {wanted}",
        total_bytes=total,
        id=whole.id,
        capability=whole.capability,
        bandwidth_bytes_per_s=bandwidth * slices / SLICES if bandwidth else None,
        unified_memory=whole.unified_memory,
        assumed=True,
    )
