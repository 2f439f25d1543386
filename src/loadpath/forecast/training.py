"""A training run, planned: the parts of one GPU, the verdict by a rule, and the other ways beside it."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from loadpath.core.case import Case
from loadpath.core.facts.planned import Alternative, TrainingNeed
from loadpath.core.plan import PlanPart
from loadpath.core.report import MemoryLedger, MemoryPart, Report, Verdict
from loadpath.core.shape import ModelShape
from loadpath.core.table import Cell, Column, Table
from loadpath.core.text import Span
from loadpath.core.units import show_bytes
from loadpath.diagnosis.diagnose import diagnose
from loadpath.forecast.deploy import cards_of_request, opened_model
from loadpath.forecast.request import PlanRefused, Request
from loadpath.planning.parameters import parameters
from loadpath.planning.training import Training, bytes_per_parameter, memory

COLUMNS = (Column("way"), Column("per GPU", "bytes"), Column("fits"), Column("bytes a trained parameter"))


def train(request: Request, how: Training) -> Report:
    """The report on a training run that has not happened. Raises PlanRefused."""
    shape = opened_model(request.model).shape
    cards = cards_of_request(request)
    how = msgspec.structs.replace(how, gpus=len(cards))
    card = min(cards, key=lambda c: c.total_bytes)
    try:
        parts = memory(shape, how)
    except ValueError as error:
        raise PlanRefused(str(error)) from error
    needed = sum(part.bytes for part in parts)
    largest = max(parts, key=lambda part: part.bytes)
    words = f"{how.method}, {how.precision}, {how.optimiser}"
    text = f"{shape.id}: {words}: {show_bytes(needed)} of {show_bytes(card.total_bytes)} per GPU"
    need = TrainingNeed(
        span=Span("plan", 1, 1), text=text, method=words, model=shape.id, needed_bytes=needed, total_bytes=card.total_bytes,
        gpu=card.name, largest=largest.name, largest_bytes=largest.bytes, bytes_per_parameter=bytes_per_parameter(how),
        exact_bytes=sum(part.bytes for part in parts if part.basis == "exact"),
        alternatives=tuple(_alternatives(shape, how)),
    )  # fmt: skip
    report = diagnose(Case([need]))
    verdict = report.verdict if report.findings else _fits(need)
    return msgspec.structs.replace(
        report, verdict=verdict, steps=(), skipped=(), memory=(_ledger(parts, card.total_bytes),),
        tables=(_ways(shape, how, card.total_bytes),), notes=tuple(_notes(shape, how)),
    )  # fmt: skip


def _fits(need: TrainingNeed) -> Verdict:
    left = show_bytes(need.total_bytes - need.needed_bytes)
    return Verdict("healthy", f"Fits: {show_bytes(need.needed_bytes)} per GPU, {left} of the {need.gpu} left.")


def _ledger(parts: tuple[PlanPart, ...], total: int) -> MemoryLedger:
    return MemoryLedger(0, total, tuple(MemoryPart(p.name, p.bytes, _basis(p)) for p in parts))


def _basis(part: PlanPart) -> str:
    return f"{part.basis}: {part.note}" if part.note else part.basis


def _alternatives(shape: ModelShape, how: Training) -> Iterator[Alternative]:
    """The same run with one thing changed, where that is not so already."""
    changes: list[tuple[str, str, dict[str, object]]] = []
    if not how.checkpointing:
        changes.append(
            ("Recompute activations (gradient checkpointing)", "--gradient_checkpointing true", {"checkpointing": True})
        )
    if how.optimiser == "adamw":
        changes.append(("An 8-bit optimiser", "--optim adamw_bnb_8bit", {"optimiser": "adamw-8bit"}))
    if not how.fused_loss:
        changes.append(("A fused loss that never keeps all logits", "--use_liger_kernel true", {"fused_loss": True}))
    if how.micro_batch > 1:
        changes.append(
            ("A micro-batch of 1 with more accumulation", "--per_device_train_batch_size 1", {"micro_batch": 1})
        )
    if how.gpus > 1 and how.stage < 3:
        changes.append(
            (
                f"Shard all model states over the {how.gpus} GPUs (FSDP full shard, ZeRO-3)",
                "--fsdp full_shard",
                {"stage": 3},
            )
        )
    if how.method == "full":
        changes.append(
            (f"LoRA adapters of rank {how.rank} on a frozen BF16 base", "peft LoraConfig", {"method": "lora"})
        )
    if how.method != "qlora":
        changes.append((f"QLoRA: the same on a 4-bit base (rank {how.rank})", "load_in_4bit=True", {"method": "qlora"}))
    for what, command, change in changes:
        other = msgspec.structs.replace(how, **change)
        yield Alternative(what, command, sum(part.bytes for part in memory(shape, other)))


def _ways(shape: ModelShape, how: Training, total: int) -> Table:
    """The usual ways side by side, all else alike."""
    ways = [
        (
            "full, BF16 throughout (four times the weights)",
            msgspec.structs.replace(how, method="full", precision="bf16"),
        ),
        ("full, mixed with FP32 master and states", msgspec.structs.replace(how, method="full", precision="mixed")),
        (f"LoRA, rank {how.rank}", msgspec.structs.replace(how, method="lora")),
        (f"QLoRA, rank {how.rank}", msgspec.structs.replace(how, method="qlora")),
    ]
    rows: list[tuple[Cell, ...]] = []
    for name, way in ways:
        needed = sum(part.bytes for part in memory(shape, way))
        rows.append((name, needed, needed <= total, round(bytes_per_parameter(way), 2)))
    setting = f"{how.sequence:,} tokens x {how.micro_batch}, {'with' if how.checkpointing else 'without'} checkpointing"
    note = f"{how.optimiser}, {setting}, {how.gpus} GPU{'s' if how.gpus > 1 else ''}, ZeRO stage {how.stage}."
    return Table("training", "The ways to train it", COLUMNS, tuple(rows), note)


def _notes(shape: ModelShape, how: Training) -> Iterator[str]:
    total = parameters(shape).total
    yield f"{total / 1e9:.2f} B parameters; {bytes_per_parameter(how):.3g} bytes of model states for each that is trained."
    if how.method != "full":
        yield "Adapters are counted in FP32, as PEFT keeps them under autocast (BF16 with --precision bf16)."
    yield "Not counted: fragmentation, evaluation passes, the data loader's pinned memory."
