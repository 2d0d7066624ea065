"""The charts of the report: from small records to drawings for a page, and for papers.

A chart is a frozen dataclass of plain numbers and words (`BarChart`, `PointChart`, `LineChart`,
`ScheduleChart`, `SegmentTraceChart`). The function of the same name (`bars`, `points`, ...) checks
it and returns a `Drawing`, which draws on demand: `inline()` for a page that has `style()` in its
head, `svg()`, or `save(folder)` for PNG and PDF files. Only then is matplotlib imported. Any number
may be an `Interval`, drawn as a whisker or a band.

Nothing here reads runs or computes measures; words and captions come from the caller.
"""

from __future__ import annotations

from anyorder.report.charts.kinds import (
    Bar,
    BarChart,
    BarGroup,
    BarPanel,
    LineChart,
    LinePanel,
    LineSeries,
    PointChart,
    PointPanel,
    PointSet,
    ScheduleChart,
    SchedulePanel,
    SegmentRow,
    SegmentStep,
    SegmentTraceChart,
    bars,
    lines,
    points,
    schedule,
    schedule_chart,
    segment_trace,
    segment_trace_chart,
)
from anyorder.report.charts.svg import Drawing, Number, Series, chart_colors, spare_colors, style

__all__ = [
    "Bar",
    "BarChart",
    "BarGroup",
    "BarPanel",
    "Drawing",
    "LineChart",
    "LinePanel",
    "LineSeries",
    "Number",
    "PointChart",
    "PointPanel",
    "PointSet",
    "ScheduleChart",
    "SchedulePanel",
    "SegmentRow",
    "SegmentStep",
    "SegmentTraceChart",
    "Series",
    "bars",
    "chart_colors",
    "lines",
    "points",
    "schedule",
    "schedule_chart",
    "segment_trace",
    "segment_trace_chart",
    "spare_colors",
    "style",
]
