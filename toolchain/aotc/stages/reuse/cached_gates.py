"""What a build judged and measured, kept with it in the cache: equal builds are told alike."""

from __future__ import annotations

from typing import Final

from aotc.contract.codec.parsing import Json, decode, encode
from aotc.contract.document_places import DocumentPlaces
from aotc.contract.results.journal import Journal
from aotc.contract.results.run_report import Figure, Gate
from aotc.records import replace

# Gates of variants that could not be made stand in no line of a profile.
_NO_SETTING: Final = frozenset({"variants"})


def kept_judgements(journal: Journal) -> Json:
    """Gates and figures as data; their places are left out, as another profile may be equal."""
    return {
        "gates": [encode(replace(gate, place=None)) for gate in journal.gates],
        "figures": [encode(figure) for figure in journal.figures],
    }


def tell_judgements(kept: Json, journal: Journal, places: DocumentPlaces) -> None:
    """Write down what was kept, with the places of this build's profile.

    Raises KeyError, TypeError or ParseError if it is not what `kept_judgements` made.
    """
    for item in kept["gates"]:
        gate = decode(Gate, item)
        place = None if gate.name in _NO_SETTING else places.of(gate.name)
        journal.judged((replace(gate, place=place),))
    journal.measured(decode(Figure, item) for item in kept["figures"])
