"""Read any architecture from the computation: the autograd graph of one forward pass.

`computation` is the graph, `axes` and `moves` follow a parameter's dimensions through it, `uses` finds what each is
used for (`products`, `packing`), `cuts` turns uses into an atom, and `reading` is the whole of it for one pass.
"""

from autogd.reading.graph.computation import Roots, roots_of
from autogd.reading.graph.cuts import same_cut
from autogd.reading.graph.reading import Reading, read_graph
from autogd.reading.graph.run import call, guessed_reading, read_model, read_without_numbers, without_numbers
from autogd.reading.graph.streams import Stream, streams_of

__all__ = [
    "Reading", "Roots", "Stream", "call", "guessed_reading", "read_graph", "read_model",
    "read_without_numbers", "roots_of", "same_cut", "streams_of", "without_numbers",
]  # fmt: skip
