"""Spatial values as Debezium shows them: the well-known binary and the reference system. Pure."""

from __future__ import annotations

from struct import Struct
from typing import Any, Final

_POINT_SIZE: Final = 21
_POINT: Final = 1
_LITTLE: Final = Struct("<xIdd").unpack
_BIG: Final = Struct(">xIdd").unpack
#: An empty GEOMETRYCOLLECTION, Debezium's stand-in for a value that is missing where it must not.
EMPTY: Final = bytes.fromhex("010700000000000000")


def read_geometry(stored: bytes) -> dict[str, Any]:
    """``io.debezium.data.geometry.Geometry`` from the server's form: 4 bytes of SRID (0: none), then WKB.

    Raises:
        ValueError: it is too short.
    """
    if len(stored) < 9:
        raise ValueError(f"{len(stored)} bytes are not a spatial value")
    return {"wkb": stored[4:], "srid": int.from_bytes(stored[:4], "little") or None}


def read_point(stored: bytes) -> dict[str, Any]:
    """``io.debezium.data.geometry.Point``: the coordinates and the WKB.

    Raises:
        ValueError: it is no point of two dimensions.
    """
    wkb = stored[4:]
    if len(wkb) != _POINT_SIZE:
        raise ValueError(f"{len(wkb)} bytes are not a POINT")
    kind, x, y = (_LITTLE if wkb[0] else _BIG)(wkb)
    if kind != _POINT:
        raise ValueError(f"a column of type POINT holds a geometry of type {kind}")
    return {"x": x, "y": y, "wkb": wkb, "srid": int.from_bytes(stored[:4], "little") or None}


def missing_value(*, is_point: bool) -> dict[str, Any]:
    """Return the value for null of a column that can't be null."""
    return {"x": 0.0, "y": 0.0, "wkb": EMPTY, "srid": None} if is_point else {"wkb": EMPTY, "srid": None}
