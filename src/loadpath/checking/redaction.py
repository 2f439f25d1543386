"""Masking of what identifies a machine and its people: the same thing gets the same alias everywhere in a bundle.

Secrets, IPv4, IPv6 and MAC addresses, host and user names, UUIDs, serial numbers. An alias has the form of what it stands
for (a GPU's UUID stays one, addresses become those reserved for examples), so that the readers find in a masked
capture what they find in the original. PCI addresses, versions and all figures stay.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Iterator

from loadpath.checking.names import NameFinder, Names
from loadpath.checking.sought import sought
from loadpath.core.masking import MASK, mask

_HEX = "[0-9a-fA-F]"
_UUID = sought(
    rf"(?<![\w-])(?P<sort>(?:MIG-)?GPU-|MIG-|)(?P<id>{_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}})(?![\w-])"
)
_UUID_HEAD = sought(rf"(?<![\w-])(?P<sort>GPU-|MIG-)(?P<id>{_HEX}{{8}})(?![\w-])", "gpu-", "mig-")
_PLAIN_ID = sought(rf"(?<![\w-]){_HEX}{{32}}(?![\w-])")
_GUID = sought(
    rf"(?i)(?P<key>guid['\"]?\s*[:=]?\s+['\"]?)(?P<id>(?:0x)?{_HEX}{{16}}|(?:{_HEX}{{4}}:){{3}}{_HEX}{{4}})(?!\w)",
    "guid",
)
_DOCKER_ID = sought(r"(?<![\w:])(?:[A-Z2-7]{4}:){11}[A-Z2-7]{4}(?![\w:])")
_MAC = sought(rf"(?<![\w:-]){_HEX}{{2}}(?P<s>[:-])(?:{_HEX}{{2}}(?P=s)){{4,18}}{_HEX}{{2}}(?![\w:-])")
_IPV4 = sought(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?!\w|\.\d)")
_IPV6 = sought(r"(?<![\w:.])(?=[\da-fA-F]*:[\da-fA-F:]*:)[\da-fA-F:]{2,45}(?![\w:])")
_SERIAL = sought(
    r"(?i)(?P<key>\b(?:[a-z]+[_ ])?serial(?:[_ ]?(?:number|no\.?))?['\"]?\s*(?:[:=]|</?|>)\s*['\"]?)"
    r"(?P<id>(?=[\w-]*\d)[a-z0-9][\w-]{4,40})(?![\w/:.-])",
    "serial",
)
_SETTING = sought(
    r"\b(?P<name>[A-Z][A-Z0-9_]{2,100})(?P<eq>['\"]?\s{0,8}[=:]\s{0,8})(?P<quote>['\"]?)(?P<value>[^\s'\",;]+)"
)
_SECRET_NAME = re.compile(
    r"(?:TOKEN|SECRET|PASSW(?:OR)?D|PASSPHRASE|(?:API|ACCESS|PRIVATE|AUTH|ENCRYPTION)_?KEY|CREDENTIALS?|COOKIE|DSN)(?:_|$)"
)
_NO_SECRET = re.compile(r"(?i)^(?:true|false|none|null|\d{1,6}|/\S*|\*+)$")
# What stands before four numbers that are a version and no address, and what behind.
_VERSION_BEFORE = re.compile(
    r"(?i)(?:[=<>~!]=\s*|\.so\.|\bversion['\"]?\s*[:=]?\s*['\"]?|\b(?:nvidia|cuda|cudnn|nccl|cu[a-z]*\d*|tensorrt|trt|opencv|types|"
    r"driver|firmware|vbios|release|build|lib)[\w.+-]*['\"]?[\s:=@,(]{1,60}['\"]?)$"
)
_VERSION_BEHIND = re.compile(
    r"\.dist-info|\.egg|-(?:cp|py|\d)[\d.]|\.whl|\.tar|\.so|\.x86_64|\.el\d|\+cu|~|-\d+(?:ubuntu|\.el)"
)


class Redactor:
    """Masks texts one by one; remembers every alias, so a thing that comes again is called the same again.

    `names` are the hosts and users of the machine, masked wherever they stand; `learn` finds more of them in a text.
    Learn from all texts first, then redact them: an alias has to be known before the first place where its name stands alone.
    """

    def __init__(self, names: Names | None = None) -> None:
        self._names = NameFinder(names or Names())
        self._aliases: dict[str, dict[str, str]] = {}
        self._heads: dict[str, str] = {}

    def learn(self, text: str) -> None:
        """Host names, user names and serial numbers that `text` shows in the places where such names stand."""
        self._names.learn(text)
        for serial in (*(found["id"] for found in _SERIAL.finditer(text)), *_in_columns(text)):
            self._serial(serial)

    def redact(self, text: str) -> str:
        """`text` with everything masked. Line breaks, and so line numbers, stay."""
        text = _SETTING.sub(_secret, mask(text))
        text = _UUID.sub(lambda m: m["sort"] + self._uuid(m["id"]), text)
        text = _UUID_HEAD.sub(lambda m: m["sort"] + self._uuid_head(m["id"]), text)
        text = _PLAIN_ID.sub(lambda m: self._alias("identifier", m[0].lower(), "{:032x}".format), text)
        text = _GUID.sub(lambda m: m["key"] + self._guid(m["id"]), text)
        text = _DOCKER_ID.sub(lambda m: self._alias("identifier", m[0], "DOCKER-ID-{:04d}".format), text)
        text = self._mask_serials(text)
        text = _MAC.sub(self._mac, text)
        text = _IPV6.sub(self._ipv6, text)
        text = _IPV4.sub(self._ipv4, text)
        return self._names.redact(text)

    def redact_bytes(self, data: bytes) -> bytes:
        """The same for bytes: UTF-8, with whatever is none kept as it is."""
        return self.redact(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")

    @property
    def counts(self) -> dict[str, int]:
        """How many different things of each sort have an alias."""
        own = {sort: len(known) for sort, known in sorted(self._aliases.items()) if known}
        return own | self._names.counts

    def _alias(self, sort: str, thing: str, make: Callable[[int], str]) -> str:
        known = self._aliases.setdefault(sort, {})
        if thing not in known:
            known[thing] = make(len(known) + 1)
        return known[thing]

    def _uuid(self, text: str) -> str:
        if set(text) <= {"0", "-"}:
            return text
        alias = self._alias("UUID", text.lower(), "{:08x}-0000-0000-0000-000000000000".format)
        self._heads.setdefault(text[:8].lower(), alias[:8])
        return alias

    def _uuid_head(self, text: str) -> str:
        """The first eight digits of a GPU's UUID, as CUDA_VISIBLE_DEVICES may have them: its alias, cut alike."""
        if text.lower() not in self._heads:
            self._uuid(f"{text}-????-????-????-????????????")
        return self._heads[text.lower()]

    def _guid(self, text: str) -> str:
        number = self._alias("GUID", text.lower().removeprefix("0x").replace(":", ""), "{:016x}".format)
        if ":" in text:
            return ":".join(number[i : i + 4] for i in range(0, 16, 4))
        return f"0x{number}" if text.lower().startswith("0x") else number

    def _serial(self, text: str) -> str:
        return self._alias("serial number", text, lambda n: f"{n:0{len(text)}d}")

    def _mask_serials(self, text: str) -> str:
        known = [s for s in self._aliases.get("serial number", ()) if len(s) >= 8 and s in text]
        if known:
            anywhere = re.compile(rf"(?<![\w-])(?:{'|'.join(map(re.escape, known))})(?![\w-])")
            text = anywhere.sub(lambda m: self._serial(m[0]), text)
        given = set(self._aliases.get("serial number", {}).values())
        return _SERIAL.sub(lambda m: m[0] if m["id"] in given else m["key"] + self._serial(m["id"]), text)

    def _mac(self, match: re.Match[str]) -> str:
        octets = re.split("[:-]", match[0].lower())
        if set(octets) <= {"00"} or set(octets) <= {"ff"}:
            return match[0]
        count = len(octets)
        number = self._alias("MAC address", ":".join(octets), lambda n: f"02{n:0{2 * count - 2}x}")
        return match["s"].join(number[i : i + 2] for i in range(0, 2 * count, 2))

    def _ipv6(self, match: re.Match[str]) -> str:
        try:
            address = ipaddress.IPv6Address(match[0])
        except ValueError:
            return match[0]
        if address.is_loopback or address.is_unspecified:
            return match[0]
        return self._alias("IPv6 address", address.compressed, "2001:db8::{:x}".format)

    def _ipv4(self, match: re.Match[str]) -> str:
        try:
            address = ipaddress.IPv4Address(match[0])
        except ValueError:  # a number above 255, or a leading zero: a version
            return match[0]
        if address.is_loopback or address.is_unspecified or match[0].startswith("255.") or _is_version(match):
            return match[0]
        network = self._alias(
            "IPv4 network", match[0].rpartition(".")[0], lambda n: f"198.{18 + n // 256 % 2}.{n % 256}"
        )
        return self._alias("IPv4 address", match[0], lambda _: f"{network}.{self._next_host(network)}")

    def _next_host(self, network: str) -> int:
        known = self._aliases.get("IPv4 address", {}).values()
        return sum(alias.rpartition(".")[0] == network for alias in known) % 254 + 1


def redacted(texts: Iterable[bytes], names: Names | None = None) -> tuple[list[bytes], dict[str, int]]:
    """All `texts` masked together, and how many things of each sort were."""
    kept = list(texts)
    redactor = Redactor(names)
    for data in kept:
        redactor.learn(data.decode("utf-8", "surrogateescape"))
    return [redactor.redact_bytes(data) for data in kept], redactor.counts


def _secret(match: re.Match[str]) -> str:
    if not _SECRET_NAME.search(match["name"]) or _NO_SECRET.match(match["value"]):
        return match[0]
    return match["name"] + match["eq"] + match["quote"] + MASK


def _is_version(match: re.Match[str]) -> bool:
    before = match.string[max(0, match.start() - 100) : match.start()].rpartition("\n")[2]
    behind = match.string[match.end() : match.end() + 16]
    return bool(_VERSION_BEFORE.search(before) or _VERSION_BEHIND.match(behind))


_VALUE = re.compile(r"(?=[\w-]*\d)[\w-]{5,40}")


def _in_columns(text: str) -> Iterator[str]:
    """Serial numbers in comma-separated rows under a header that names such a column."""
    if "serial" not in text.lower():
        return
    column: int | None = None
    width = 0
    for line in text.split("\n"):
        cells = line.split(",") if "," in line else []
        names = [cell.strip().lower() for cell in cells] if "serial" in line.lower() else []
        header = next((i for i, name in enumerate(names) if name in ("serial", "gpu_serial", "serial_number")), None)
        if header is not None:
            column, width = header, len(cells)
        elif column is not None and len(cells) == width:
            if _VALUE.fullmatch(value := cells[column].strip()):
                yield value
        else:
            column = None
