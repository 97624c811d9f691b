"""What a candidate will need in memory, from what is known once the workload is prepared. Pure."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from tfpipe.analysis.memory import (
    MemoryForecast,
    cache_part,
    forecast_memory,
    place_cache,
    shared_row_bytes,
    shuffle_part,
)
from tfpipe.messages import Prepared
from tfpipe.records import Pipeline
from tfpipe.settings import PipelineSettings
from tfpipe.sites import Finding, sites_on


def with_caches_placed(prepared: Prepared, *, memory_bytes: int | None, disk_bytes: int) -> Prepared:
    """``prepared`` with every cache that could be added in memory, else on disk, else not to be added, and why.

    Args:
        memory_bytes: how large the worker may become; None for any size.
        disk_bytes: free where its temporary files are.
    """
    pipeline = prepared.pipeline
    if pipeline is None:
        return prepared

    def placed(finding: Finding) -> Finding:
        if finding.memory_bytes is None or not finding.elements:
            return finding
        where, why = place_cache(
            finding.elements,
            finding.memory_bytes // finding.elements,
            resident_bytes=prepared.memory.resident_bytes,
            memory_bytes=memory_bytes,
            disk_bytes=disk_bytes,
        )
        return replace(
            finding,
            sites=() if where is None else finding.sites,
            value="disk" if where == "disk" else True,
            note=f"{finding.note} {why}".strip(),
        )

    findings = tuple(placed(finding) for finding in pipeline.findings)
    return msgspec.structs.replace(prepared, pipeline=replace(pipeline, findings=findings))


def forecast_candidate(settings: PipelineSettings, prepared: Prepared) -> MemoryForecast | None:
    """The forecast for a candidate; of a user's own pipeline only its shuffle buffers and caches are forecast."""
    data, memory = prepared.data, prepared.memory
    if prepared.pipeline is not None:
        return _forecast_buffers(settings, prepared.pipeline, memory.resident_bytes)
    assert data.examples is not None
    return forecast_memory(
        settings,
        examples=data.examples,
        example_bytes=data.example_bytes,
        mapped_example_bytes=memory.batch_bytes // data.batch_size,
        batch_size=data.batch_size,
        cores=prepared.environment.cores,
        resident_bytes=memory.resident_bytes,
        shared_bytes=shared_row_bytes(memory.row_bytes),
        array_bytes=memory.row_bytes * data.examples,
    )


def _forecast_buffers(settings: PipelineSettings, pipeline: Pipeline, resident_bytes: int) -> MemoryForecast:
    overrides = dict(settings.overrides or ())
    stages = {stage.id: stage for stage in pipeline.stages}
    parts = []
    for site in sites_on("shuffle_buffer", pipeline.sites):
        stage = stages.get(site.stage)
        buffer = overrides.get(site.id, site.value)
        if stage is None or stage.element_bytes is None or isinstance(buffer, bool) or not isinstance(buffer, int):
            continue
        held = buffer if stage.cardinality is None else min(buffer, stage.cardinality)
        parts.append(shuffle_part(held, example_bytes=stage.element_bytes))
    for site in sites_on("cache", pipeline.sites):
        stage = stages.get(site.stage)
        kept = site.argument == "filename" and overrides.get(site.id, site.value) == ""
        if kept and stage is not None and stage.element_bytes is not None and stage.cardinality is not None:
            parts.append(cache_part(stage.cardinality, stage.element_bytes))
    for finding in pipeline.findings:
        if finding.memory_bytes is not None and any(overrides.get(site) is True for site in finding.sites):
            elements = finding.elements or 1
            parts.append(cache_part(elements, finding.memory_bytes // elements))
    return MemoryForecast(resident_bytes=resident_bytes, rewriting_bytes=0, parts=tuple(parts))
