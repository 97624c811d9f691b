"""The part of the XPlane wire format that is read here, declared once and parsed by protobuf.

Field numbers are those of ``tsl/profiler/protobuf/xplane.proto``. An event is left as bytes on purpose: a trace has
millions of them, and one Python object each would cost ten times what ``columns`` needs to decode them in bulk.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_Field = descriptor_pb2.FieldDescriptorProto
_DOUBLE, _INT64, _UINT64, _STRING, _BYTES = (
    _Field.TYPE_DOUBLE,
    _Field.TYPE_INT64,
    _Field.TYPE_UINT64,
    _Field.TYPE_STRING,
    _Field.TYPE_BYTES,
)
_PACKAGE = "tfpipe.trace"

# message -> field -> (number, type or message name, repeated). Names are declared as bytes where a damaged file may
# hold something that is not UTF-8: the reader decodes them with replacement characters.
_MESSAGES: dict[str, dict[str, tuple[int, int | str, bool]]] = {
    "XStat": {
        "metadata_id": (1, _INT64, False),
        "double_value": (2, _DOUBLE, False),
        "uint64_value": (3, _UINT64, False),
        "int64_value": (4, _INT64, False),
        "str_value": (5, _BYTES, False),
        "ref_value": (7, _UINT64, False),
    },
    "XEventMetadata": {"id": (1, _INT64, False), "name": (2, _BYTES, False), "stats": (5, "XStat", True)},
    "XStatMetadata": {"id": (1, _INT64, False), "name": (2, _BYTES, False)},
    "EventMetadataEntry": {"key": (1, _INT64, False), "value": (2, "XEventMetadata", False)},
    "StatMetadataEntry": {"key": (1, _INT64, False), "value": (2, "XStatMetadata", False)},
    "XLine": {
        "id": (1, _INT64, False),
        "name": (2, _BYTES, False),
        "timestamp_ns": (3, _INT64, False),
        "events": (4, _BYTES, True),
        "display_name": (11, _BYTES, False),
    },
    "XPlane": {
        "name": (2, _BYTES, False),
        "lines": (3, "XLine", True),
        "event_metadata": (4, "EventMetadataEntry", True),
        "stat_metadata": (5, "StatMetadataEntry", True),
        "stats": (6, "XStat", True),
    },
    "XSpace": {
        "planes": (1, "XPlane", True),
        "errors": (2, _BYTES, True),
        "warnings": (3, _BYTES, True),
        "hostnames": (4, _BYTES, True),
    },
}

# The fields of XEvent, which ``columns`` decodes: metadata_id, offset_ps, duration_ps, stats.
EVENT_METADATA_ID, EVENT_OFFSET_PS, EVENT_DURATION_PS, EVENT_STATS = 1, 2, 3, 4
# The fields of XStat.
STAT_METADATA_ID, STAT_DOUBLE, STAT_STR, STAT_REF = 1, 2, 5, 7


@cache
def xspace_class() -> Any:
    """The message class of a whole trace."""
    file = descriptor_pb2.FileDescriptorProto(name="tfpipe_xplane.proto", package=_PACKAGE, syntax="proto3")
    for message_name, fields in _MESSAGES.items():
        message = file.message_type.add(name=message_name)
        for field_name, (number, kind, repeated) in fields.items():
            field = message.field.add(name=field_name, number=number)
            field.label = _Field.LABEL_REPEATED if repeated else _Field.LABEL_OPTIONAL
            if isinstance(kind, str):
                field.type = _Field.TYPE_MESSAGE
                field.type_name = f".{_PACKAGE}.{kind}"
            else:
                field.type = kind  # type: ignore[assignment]
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.XSpace"))
