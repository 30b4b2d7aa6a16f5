"""Makes `assets/coastlines.npz` from the npm package `world-atlas` (Natural Earth 1:110m land, TopoJSON). Run once, by hand:

    npm pack world-atlas && tar xzf world-atlas-*.tgz
    python -m engine.demo.coastlines package/land-110m.json

The result is one lon/lat polyline, float32, its pieces separated by NaN, so that any plotting library draws it as one line and nothing is
fetched when a map is drawn.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from engine.types import Array

ASSET = Path(__file__).parents[2] / "assets" / "coastlines.npz"


def decode_arcs(topology: dict[str, Any]) -> list[Array]:
    """Arcs `(point, 2)` in degrees: TopoJSON stores integer steps, scaled and shifted."""
    scale, shift = np.asarray(topology["transform"]["scale"]), np.asarray(topology["transform"]["translate"])
    return [np.cumsum(np.asarray(arc, float), axis=0) * scale + shift for arc in topology["arcs"]]


def false_segments(lon: Array, lat: Array) -> np.ndarray:
    """Segments that close a polygon on the map's edge and are no coast: across or along the dateline, or around the pole."""
    across = np.abs(np.diff(lon)) > 180
    on_edge = np.abs(np.abs(lon) - 180) < 1e-3
    along = on_edge[:-1] & on_edge[1:]
    polar = (lat[:-1] < -89.9) | (lat[1:] < -89.9)
    return across | along | polar


def polyline(arcs: list[Array]) -> Array:
    """`(point, 2)` with NaN rows between pieces, false segments cut."""
    gap = np.full((1, 2), np.nan)
    pieces: list[Array] = []
    for arc in arcs:
        cuts = np.flatnonzero(false_segments(arc[:, 0], arc[:, 1])) + 1
        for piece in np.split(arc, cuts):
            if len(piece) > 1:
                pieces += [piece, gap]
    return np.concatenate(pieces[:-1]).astype(np.float32)


def main() -> None:
    """Decode one file and write the asset."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("topojson", type=Path, help="land-110m.json of the npm package world-atlas")
    parser.add_argument("--out", type=Path, default=ASSET)
    options = parser.parse_args()
    line = polyline(decode_arcs(json.loads(options.topojson.read_text())))
    np.savez_compressed(options.out, longitude=line[:, 0], latitude=line[:, 1])


if __name__ == "__main__":
    main()
