"""The stages of readiness, each one look: port, health page, models, first token, warm shapes."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import msgspec

from loadpath.core.readiness import FailureKind
from loadpath.core.traffic import Exchange, ServerIdentity
from loadpath.knowledge.engine_health import PAGES
from loadpath.traffic.approach import Approach, Refused, approach
from loadpath.traffic.connections import CannotConnect
from loadpath.traffic.identity import identify
from loadpath.traffic.pages import Page, page
from loadpath.traffic.prompts import Prompt
from loadpath.traffic.sender import PATHS, Sender
from loadpath.traffic.statistics import e2e, tpot, ttft
from loadpath.traffic.steady import DRIFT, LEAST, steady_start
from loadpath.traffic.texts import TextMaker

HEALTH_SECONDS = 25.0
"""SGLang's page generates a token, and gives itself 20 s."""
BRIEF = 3
"""Requests of a shape that show whether its first is cold."""
TAIL = LEAST
"""Steady requests in a row that end a warm-up: as many as the change-point needs to judge them."""
MOST = 64
"""Requests of a shape after which a warm-up is given up."""
RESOLUTION = 0.010
"""Seconds added to every latency: a gate does not care for differences of a few milliseconds."""


class Shape(msgspec.Struct, frozen=True):
    """Prompt and output tokens of a kind of request that has to be warm."""

    prompt: int
    output: int

    @property
    def label(self) -> str:
        return f"{self.prompt}x{self.output}"


class Look(msgspec.Struct, frozen=True):
    """What one look at a stage found. `final`: waiting will not change it."""

    holds: bool
    kind: FailureKind = ""
    why: str = ""
    final: bool = False
    skipped: bool = False


async def look_at_port(sender: Sender) -> Look:
    """Whether something accepts connections there."""
    try:
        sender.pool.give_back(await sender.pool.take())
    except CannotConnect as error:
        return Look(False, "closed", str(error), final="is not known" in str(error) or "certificate" in str(error))
    return Look(True)


async def look_at_health(sender: Sender, seconds: float) -> Look:
    """The first health page that is there; a server without one is asked for a token anyway."""
    for path in PAGES:
        answer = await page(sender, path, seconds=min(seconds, HEALTH_SECONDS))
        if answer.status in (404, 405, 501):
            continue
        return _health(path, answer)
    return Look(True, why="no health page", skipped=True)


def _health(path: str, answer: Page) -> Look:
    said = _brief(answer.body)
    if answer.status is None:
        return Look(False, "closed" if "refuses" in answer.why else "unhealthy", f"{path}: {answer.why}")
    if answer.status == 200:
        return Look(True, why=f"{path} 200")
    if answer.status in (401, 403):
        return Look(True, why=f"{path} is not open to us ({answer.status})", skipped=True)
    told = f"{path} {answer.status} {said}".strip()
    return Look(False, "loading" if answer.status in (400, 503) else "unhealthy", told)


async def look_at_models(sender: Sender, model: str | None, seconds: float) -> tuple[Look, ServerIdentity | None]:
    """Which model answers. Raises nothing: a server that lists none is told."""
    answer = await page(sender, "/v1/models", seconds=seconds)
    if answer.status in (401, 403):
        why = f"/v1/models {answer.status}: it wants a key (--api-key or OPENAI_API_KEY)"
        return Look(False, "no-key", why, final=True), None
    if answer.status is None or answer.status >= 500:
        kind: FailureKind = "loading" if answer.status == 503 else "closed" if "refuses" in answer.why else "no-model"
        return Look(False, kind, f"/v1/models {answer.status or answer.why} {_brief(answer.body)}".strip()), None
    listed = _listed(answer)
    if model and listed and model not in listed:
        why = f"/v1/models lists {', '.join(listed[:4])}, not {model}"
        return Look(False, "no-model", why, final=True), None
    if not listed and not model:
        return Look(False, "no-model", "/v1/models lists no model (name it with --model)"), None
    identity = await identify(sender, model)
    return Look(True, why=identity.model), identity


def _listed(answer: Page) -> list[str]:
    rows = answer.document().get("data")
    return [str(row["id"]) for row in rows if isinstance(row, dict) and row.get("id")] if isinstance(rows, list) else []


async def look_at_first_token(
    sender: Sender, identity: ServerIdentity, *, calibrate: bool = True
) -> tuple[Look, Approach | None, list[Exchange]]:
    """A small real request, by whichever API the server has; the exchanges that it took.

    `calibrate`: a second one, which tells how many tokens a word makes.
    """
    try:
        found = await approach(
            sender,
            identity,
            ("chat", "completions", "embeddings"),
            stream=True,
            ignore_eos=True,
            fields={},
            calibrate=calibrate,
        )
    except Refused as error:
        tried = list(error.exchanges)
        whole = not tried or tried[-1].error == "http"  # then each API said its own
        return _refusal(str(error) if whole else _words(tried[-1]), tried), None, tried
    bad = next(
        (x for x in found.exchanges[-2:] if (x.error and x.error not in ("http", "empty")) or _tokenless(x)), None
    )
    if bad is not None:
        return _refusal(_words(bad), (bad,)), None, list(found.exchanges)
    return Look(True, why=PATHS[found.manner.api]), found, list(found.exchanges)


def _tokenless(exchange: Exchange) -> bool:
    """Answered without one token. (Tokens whose text is empty, or half a character, are tokens.)"""
    return exchange.output_tokens == 0 or (exchange.error == "empty" and not exchange.output_tokens)


def _refusal(words: str, exchanges: Sequence[Exchange]) -> Look:
    last = exchanges[-1] if exchanges else None
    kind, final = _kind(last)
    return Look(False, kind, words, final)


def _kind(exchange: Exchange | None) -> tuple[FailureKind, bool]:
    """What an exchange that failed says of the server, and whether waiting cannot help."""
    if exchange and not exchange.error and _tokenless(exchange):
        return "no-token", False
    match exchange.error if exchange else "":
        case "connect":
            return "closed", False
        case "timeout" | "empty":
            return "no-token", False
        case "error-chunk":
            return "stream-error", False
        case "cut" | "bad-answer":
            return "cut", False
        case "http" if exchange and exchange.status in (502, 503, 504):
            return "loading", False
        case "http" if exchange and exchange.status in (401, 403):
            return "no-key", True
        case "http" if exchange and exchange.status == 429:
            return "refused", False
        case "http":
            return "refused", bool(exchange and exchange.status and exchange.status < 500)
    return "refused", False


def _words(exchange: Exchange) -> str:
    if not exchange.error and _tokenless(exchange):
        return "an answer without one token"
    status = f"HTTP {exchange.status}: " if exchange.error == "http" else ""
    kind = "" if exchange.error in ("http", "connect", "timeout") else f"{exchange.error}: "
    return f"{status}{kind}{exchange.message}"


class Warmth:
    """The requests of one shape: sent one after the other until their latencies are steady."""

    def __init__(self, sender: Sender, maker: TextMaker, shape: Shape) -> None:
        self.sender, self.shape = sender, shape
        self._maker = maker
        self.values: list[float] = []
        """Seconds of each: of a stream what the whole length takes at its pace, for some answers end early; else as seen."""
        self.firsts: list[float] = []

    async def send(self) -> Look | None:
        """One request; None where it was answered."""
        message = {"role": "user", "content": self._maker.prompt(self.shape.prompt)}
        exchange, _ = await self.sender.send(Prompt((message,), self.shape.output), self.sender.now())
        if (exchange.error and exchange.error != "empty") or _tokenless(exchange):
            return _refusal(f"request {len(self.values) + 1}: {_words(exchange)}", (exchange,))
        whole, first, pace = e2e(exchange), ttft(exchange), tpot(exchange)
        if first is not None:
            whole = first + (pace or 0.0) * (self.shape.output - 1)
        self.values.append(whole if whole is not None else 0.0)
        self.firsts.append(first if first is not None else self.values[-1])
        return None

    def steady(self, warming: bool) -> bool:
        """`warming`: by the change-point over all that were sent; else: whether the last few are alike."""
        if not warming:
            last = self.values[-BRIEF:]
            return len(last) == BRIEF and steady_start(_coarse(last)).start == 0
        if len(self.values) < TAIL:
            return False
        return all(_settled(_coarse(values)) for values in (self.values, self.firsts))

    def why_not(self) -> str:
        """In words, with the figures."""
        shown = ", ".join(f"{value:.3g}" for value in self.values[:1] + self.values[-2:])
        return f"{self.shape.label}: not steady after {len(self.values)} requests (first and last: {shown} s)"

    @property
    def first(self) -> float | None:
        return self.firsts[0] if self.firsts else None

    @property
    def middle(self) -> float | None:
        """Of the last few."""
        return median(self.firsts[-BRIEF:]) if self.firsts else None


def _settled(values: Sequence[float]) -> bool:
    """Whether enough values at the end are of one level: no change-point, and halves that agree where noise hides one."""
    found = steady_start(values)
    tail = values[found.start :]
    if not found.steady or len(tail) < TAIL:
        return False
    early, late = sorted((median(tail[: len(tail) // 2]), median(tail[len(tail) // 2 :])))
    return late <= DRIFT * early


def _coarse(values: Sequence[float]) -> list[float]:
    return [value + RESOLUTION for value in values]


async def look_at_warmth(warmth: Warmth, *, warming: bool, until: float) -> Look:
    """Requests of a shape until they are steady, the time is over (`until`, on the sender's clock) or one fails."""
    while len(warmth.values) < MOST:
        if failed := await warmth.send():
            return failed
        if warmth.steady(warming):
            return Look(True)
        if warmth.sender.now() >= until:
            break
        if not warming and len(warmth.values) % BRIEF == 0:
            return Look(False, "unsteady", warmth.why_not())
    return Look(False, "unsteady", warmth.why_not(), final=len(warmth.values) >= MOST)


def _brief(body: bytes) -> str:
    text = " ".join(body[:600].decode("utf-8", "replace").split())
    return text[:120]
