"""The drawing of a tree that is running, from the events that its stream still has."""

from __future__ import annotations

import copy
import time

from remit.engine.tree.context import TreeContext
from remit.observe.display.drawings import TreeDrawing
from remit.observe.display.tree_view import TreeView


def draw_running(tree: TreeContext) -> TreeDrawing:
    """The tree at this moment. Runs whose first event the stream has dropped are missing."""
    # A copy, because the view applies the events to it.
    view = TreeView(copy.deepcopy(tree.past) if tree.past.runs else None)
    for event in tree.stream.kept():
        view.feed(event)
    return TreeDrawing(view, view.clock(time.time()))
