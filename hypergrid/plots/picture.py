"""A figure of matplotlib that shows itself in a notebook, whatever its settings."""

import io
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure


class Picture(Figure):
    """Drawn in memory: it opens no window, and no list of open figures keeps it."""

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 - those of a figure
        super().__init__(**options)
        FigureCanvasAgg(self)

    def png(self) -> bytes:
        """Return it as a file."""
        buffer = io.BytesIO()
        self.savefig(buffer, format="png")
        return buffer.getvalue()

    _repr_png_ = png
